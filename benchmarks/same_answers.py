"""Do two installations give the same answers? The JSON of ten commands on random inputs, compared.

    python benchmarks/same_answers.py --before ../before/.venv/bin/python
    python benchmarks/same_answers.py --before python --before-path ../before --commands plan fit --inputs 50

For each command a seed draws the inputs: options good and bad, calibration files with other coefficients, run
tables generated from a law. Each installation answers all of them in one process. Losses must agree to 1e-6,
what is chosen to 1e-6 of itself, remarks in their codes, refusals in that they refuse. Where the loss is
flat, the compute or epochs of its minimum are found to what `FLAT` says. Fields that were renamed are
compared under their new names (`RENAMED`). What may differ besides is listed in ALLOWED, with the reason.
Printed are the inputs, those that have an answer (the others are refused), those on which both agree, and
those of them that differ in what is allowed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Rng = np.random.Generator
ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("fineweb-llama2", "c4-gpt2", "c4-muennighoff", "micro")
FORMS = [
    "chinchilla",
    "exponential_decay",
    "effective_parameters",
    "additive_1p",
    "additive_2p",
    "additive_4p",
]
GPUS = ("B200", "H200", "H100", "A100", "L40S", "L4", "T4", "V100", "MI300X", "TPU-v4", "TPU-v5e", "abacus")
TABLES = 40


class Allowed(NamedTuple):
    """A part of an answer that may differ: of which commands, where it is, why, and how far."""

    commands: str  # a regular expression, like the place
    place: str  # the path in the answer, such as `answer.settings.0.corpus`
    reason: str
    alike: Callable[[Any, Any], bool] = lambda before, after: True


RENAMED = {
    # of answers
    "floor": "irreducible",
    "capacity": "parameter",
    "guessing_loss": "uniform_loss",
    "sureness": "predictive_uncertainty",
    "spending_limit": "loss_minimising_compute",
    "spending_limit_flops": "loss_minimising_flops",
    "spending_limit_loss": "loss_minimising_loss",
    "dial": "weight_decay_advice",
    "memory_epochs": "timescale_epochs",
    "memory_tokens": "timescale_tokens",
    "calibrated_memory": "calibrated_timescale",
    "worth": "gains",
    "untried": "beyond_evidence",
    # of calibrations
    "ensemble": "draws",
    "misfit": "discrepancy",
    "over_all": "loss_draws",
    "law_skill": "extrapolation_errors",
    "the floor": "irreducible loss",
    # of remarks
    "above_guessing": "worse_than_uniform",
    "outside_memory": "outside_timescale",
    "dial_simple": "weight_decay_simple",
    "dial_steep": "weight_decay_steep",
}
RENAMED_VALUES = {"dial": "micro-weight-decay", "dial_steep": "weight_decay_steep"}  # calibrations, laws
LOSS = re.compile(r"loss|regret|terms|perplexity|irreducible|parameter$|data$|overfitting")
# Where a minimum is flat, or a figure is read off a curve: how far, of itself, the place may be off.
FLAT = {
    r"answer\.(loss_minimising_compute|turning_point|cheapest_as_good)\..*": 1e-2,
    r"answer\.marginal_value\.(loss_per|flops_per).*": 1e-3,
    r"answer\.(flat_range|predictive_uncertainty\.as_good)\..*": 1e-4,
    r"answer\.(repeats|unique_tokens|unused_flops|terms\..*)": 1e-3,
    r"answer\.intervals?\..*": 2e-2,
    r"answer\.settings\.\d+\.(laws\.\w+\.(spread|intervals|metrics)|draws|learnt.*)\..*": 1e-3,
    r"answer\.(crossings|crossover_flops).*": 1e-4,
    r"answer\.(rows\.\d+\.|other_\w+\.\d+\.)?(continuous_epochs|epochs|params|tokens|spent_flops).*": 1e-3,
}
ALLOWED = (
    Allowed(
        "plan|compare|frontier|crossover|predict",
        r"answer\.(verdict|note|crossover_note|interval_note|warnings\.\d+\.text)",
        "sentences use the field's words",
    ),
    Allowed(
        ".*", "said", "refusals use the field's words", lambda before, after: bool(before) == bool(after)
    ),
    Allowed(
        "plan",
        r"answer\.turning_point",
        "where a limit on the epochs holds them, nothing turns",
        lambda before, after: after is None,
    ),
    Allowed("plan", r"answer\.loss_minimising_compute\.regained_flops", "read off a finer curve"),
    Allowed(
        "plan",
        r"answer\.marginal_value\.flops_per_token",
        "at a minimum along compute a little more of it buys nothing",
        lambda before, after: after is None,
    ),
    Allowed(
        "plan",
        r"answer\.intervals\.(turning|loss_minimising)_.*",
        "where a limit on the epochs holds them, draws do not turn, and their minimum is found",
        lambda before, after: "-" in (before, after),
    ),
    Allowed("laws|calibrate fit", r"answer\.(\d+\.)?schema_version", "files are of version 3"),
    Allowed("calibrate fit", r"answer\.settings\.\d+\.draws\.method", "in the field's words"),
    Allowed("calibrate fit", r"answer\.settings\.\d+\.method\.objective", "in the field's words"),
    Allowed(
        "laws",
        r"answer\.\d+\.(title|source|name)",
        "in the field's words, like the study's folder",
        lambda before, after: any(word in before for word in ("full ensemble", "Dial study", "studies/dial")),
    ),
    Allowed("crossover|plan", r"answer\.searched\.\d", "read off a finer curve"),
    Allowed(
        "plan|crossover|compare",
        r"answer\.limits\.min_epochs",
        "a limit that there was not",
        lambda before, after: before == "-",
    ),
)


# -- the inputs ----------------------------------------------------------------------------------------------


def questions(command: str, inputs: int, seed: int) -> list[list[str]]:
    """`inputs` calls of a command, as they would be typed."""
    rng = np.random.default_rng([seed, *command.encode()])
    return [[*command.split(), *DRAWN[command](rng), "--json"] for _ in range(inputs)]


def amount(rng: Rng, low: float, high: float) -> str:
    """A positive number, evenly on a log scale; one in a hundred is not one."""
    if rng.random() < 0.01:
        return str(rng.choice(["0", "-3", "many", "nan", "1e400"]))
    return f"{np.exp(rng.uniform(np.log(low), np.log(high))):.4g}"


def some(rng: Rng, **options: Callable[[], Any]) -> Iterator[str]:
    """Each option with a chance of one in four."""
    for name, value in options.items():
        if rng.random() < 0.25:
            yield from ("--" + name.replace("_", "-"), str(value()))


def a_calibration(rng: Rng) -> str:
    """A shipped one, a file, or rarely one that is not there."""
    kind = rng.choice(["shipped", "file", "absent"], p=[0.6, 0.38, 0.02])
    file = {"file": f"calibration-{rng.integers(TABLES)}.json", "absent": "nowhere.json"}
    return file.get(kind) or str(rng.choice(SHIPPED))


def a_weight_decay(rng: Rng) -> str:
    return str(rng.choice(["0.1", "1.0", "0.3"], p=[0.6, 0.35, 0.05]))


def a_share(rng: Rng) -> str:
    return str(rng.choice(["0.3", "0.5", "2"], p=[0.5, 0.45, 0.05]))


def a_law(rng: Rng) -> str:
    return "fourier" if rng.random() < 0.05 else str(rng.choice(FORMS))


def scale(calibration: str) -> float:
    """Corpora of the micro study are a thousandth as large."""
    return 1e-3 if calibration == "micro" else 1.0


def asked(rng: Rng, *, with_law: bool = True) -> tuple[list[str], float]:
    """The options that most commands of the planner share, and the scale of the amounts that suit them."""
    calibration = a_calibration(rng) if rng.random() < 0.6 else SHIPPED[0]
    size = scale(calibration)
    options = some(
        rng,
        weight_decay=lambda: a_weight_decay(rng),
        epochs=lambda: rng.choice(["whole", "continuous"]),
        min_params=lambda: amount(rng, size * 1e6, size * 1e8),
        max_params=lambda: amount(rng, size * 1e8, size * 1e11),
        max_epochs=lambda: amount(rng, 1, 50),
    )
    law = some(rng, law=lambda: a_law(rng)) if with_law else ()
    return ["--calibration", calibration, *options, *law], size


def compute(rng: Rng, size: float) -> list[str]:
    """As FLOPs or as hours on accelerators."""
    if rng.random() < 0.7:
        return ["--flops", amount(rng, size**2 * 1e16, size**2 * 1e22)]
    hours = ["--gpu", str(rng.choice(GPUS)), "--hours", amount(rng, size**2 * 0.1, size**2 * 1e3)]
    return [*hours, *some(rng, gpus=lambda: rng.integers(1, 65), mfu=lambda: a_share(rng))]


def for_plan(rng: Rng) -> list[str]:
    options, size = asked(rng)
    money = some(rng, price=lambda: amount(rng, 0.1, 10), tolerance=lambda: amount(rng, 1e-3, 0.1))
    return ["--ud", amount(rng, size * 1e7, size * 1e10), *compute(rng, size), *options, *money]


def for_compare(rng: Rng) -> list[str]:
    options, size = asked(rng, with_law=False)
    return ["--ud", amount(rng, size * 1e7, size * 1e10), *compute(rng, size), *options]


def for_frontier(rng: Rng) -> list[str]:
    options, size = asked(rng)
    ends = some(
        rng,
        **{"from": lambda: amount(rng, size**2 * 1e16, size**2 * 1e19)},
        to=lambda: amount(rng, size**2 * 1e18, size**2 * 1e23),
        points=lambda: rng.integers(1, 40),
    )
    fresh = ["--single-epoch"] if rng.random() < 0.2 else []
    return ["--ud", amount(rng, size * 1e7, size * 1e10), *ends, *options, *fresh]


def for_crossover(rng: Rng) -> list[str]:
    options, size = asked(rng)
    while "--weight-decay" in options:  # this command asks for two
        options, size = asked(rng)
    two = ["--weight-decays", "0.1", "1.0"] if rng.random() < 0.3 else []
    return ["--ud", amount(rng, size * 1e7, size * 1e10), *options, *two]


def for_predict(rng: Rng) -> list[str]:
    calibration = a_calibration(rng)
    size = scale(calibration)
    where = ["--params", amount(rng, size * 1e6, size * 1e11), "--ud", amount(rng, size * 1e7, size * 1e10)]
    options = some(
        rng,
        epochs=lambda: amount(rng, 0.1, 50),
        weight_decay=lambda: a_weight_decay(rng),
        law=lambda: a_law(rng),
    )
    return [*where, "--calibration", calibration, *options]


def for_laws(rng: Rng) -> list[str]:
    return [] if rng.random() < 0.02 else [a_calibration(rng)]


def for_cost(rng: Rng) -> list[str]:
    options = some(
        rng,
        gpus=lambda: rng.integers(1, 65),
        mfu=lambda: a_share(rng),
        price=lambda: amount(rng, 0.1, 10),
        params=lambda: amount(rng, 1e6, 1e11),
        vocab=lambda: rng.integers(256, 200_000),
        sequences=lambda: rng.integers(1, 64),
        sequence_length=lambda: rng.integers(1, 4096),
    )
    return ["--flops", amount(rng, 1e16, 1e22), "--gpu", str(rng.choice(GPUS)), *options]


def a_table(rng: Rng) -> str:
    return f"runs-{rng.integers(TABLES)}.csv"


def filters(rng: Rng) -> dict[str, Callable[[], Any]]:
    return {
        "max_epochs": lambda: rng.choice(["4", "8", "12", "-1"]),
        "where": lambda: rng.choice(
            ["epochs <= 8", "params > 20M", "kind == base", "tokens >= 1e8", "params >"]
        ),
    }


def for_fit(rng: Rng) -> list[str]:
    options = some(
        rng,
        **filters(rng),
        law=lambda: a_law(rng),
        delta=lambda: rng.choice(["noise", "1e-2", "0"]),
        resample=lambda: "cells",
        scheme=lambda: "weights",
        seed=lambda: rng.integers(100),
        name=lambda: "mine",
        corpus=lambda: "news",
        vocab_size=lambda: rng.choice(["32000", "0"]),
    )
    joint = ["--joint"] if rng.random() < 0.1 else []
    return [a_table(rng), "--bootstrap", str(rng.choice([0, 5, 20])), *options, *joint]


def for_backtest(rng: Rng) -> list[str]:
    options = some(
        rng,
        **filters(rng),
        tolerance=lambda: rng.choice(["0.05", "0.3", "-1"]),
        leave=lambda: "cells",
        seed=lambda: rng.integers(100),
    )
    forms = rng.choice(FORMS, 2, replace=False)
    return [a_table(rng), *(word for form in forms for word in ("--law", str(form))), *options]


def for_design(rng: Rng) -> list[str]:
    target = ["--target-ud", amount(rng, 5e7, 1e9), "--target-flops", amount(rng, 1e18, 1e20)]
    options = some(
        rng,
        runs=lambda: a_table(rng),
        weight_decay=lambda: a_weight_decay(rng),
        law=lambda: a_law(rng),
        min_params=lambda: amount(rng, 1e6, 1e8),
    )
    return ["--budget", amount(rng, 1e18, 1e20), *target, "--max-runs", str(rng.integers(1, 9)), *options]


DRAWN: dict[str, Callable[[Rng], list[str]]] = {
    "plan": for_plan,
    "compare": for_compare,
    "frontier": for_frontier,
    "crossover": for_crossover,
    "predict": for_predict,
    "laws": for_laws,
    "cost": for_cost,
    "calibrate fit": for_fit,
    "calibrate backtest": for_backtest,
    "calibrate design": for_design,
}


def write_files(folder: Path, seed: int) -> None:
    """Calibrations with other coefficients than the shipped ones, and run tables, a few of them broken."""
    from simulated import grid_table

    from planner import Calibration

    rng = np.random.default_rng(seed)
    shipped = Calibration.load(SHIPPED[0])
    for i in range(TABLES):
        text = json.loads(shipped.model_dump_json())
        for setting in text["settings"]:
            for law in setting["laws"].values():
                values = law["parameters"]
                values |= {name: value * np.exp(rng.normal(0, 0.05)) for name, value in values.items()}
        if i % 10 == 9:
            text["settings"][0]["laws"]["chinchilla"]["parameters"].pop("E")
        (folder / f"calibration-{i}.json").write_text(json.dumps(text), encoding="utf-8")

        form = str(rng.choice(FORMS[1:]))
        runs, noise = int(rng.integers(15, 60)), float(rng.uniform(0.001, 0.01))
        table = grid_table(shipped.law(0.1, form), runs, noise, rng).assign(kind="base")
        if i % 10 == 9:
            table["loss"] = table["loss"].astype(object).where(rng.random(len(table)) < 0.8, "nan")
        table.to_csv(folder / f"runs-{i}.csv", index=False)


# -- the answers ---------------------------------------------------------------------------------------------


# Where fits with a prior stop, and after how many steps: the version before the one solver stopped at a
# thousandth of the log density, so that both are asked for what they converge to.
STOPPING: dict[str, dict[str, float]] = {
    "calibration.fitting.posterior": {
        "_SETTLED": 1e-14,
        "_REDRAWN_SETTLED": 1e-12,
        "_ITERATIONS": 3000,
        "_REDRAWN_ITERATIONS": 1000,
    },
    "calibration.fitting.bayes.posterior": {
        "_LEFT": 1e-15,
        "_DRAW_LEFT": 1e-12,
        "_ITERATIONS": 3000,
        "_DRAW_ITERATIONS": 1000,
    },
}


def answer() -> None:
    """In the installation that is asked: calls from stdin, answers to stdout."""
    from click.testing import CliRunner

    from planner.cli import planner

    for name, constants in STOPPING.items():
        if importlib.util.find_spec(name.rpartition(".")[0]) and importlib.util.find_spec(name):
            module = importlib.import_module(name)
            for constant, value in constants.items():
                assert hasattr(module, constant), (
                    f"{name} has no {constant}: fits would be compared half done"
                )
                setattr(module, constant, value)
    answers = []
    for call in json.load(sys.stdin):
        result = CliRunner().invoke(planner, call)
        crash = result.exception if not isinstance(result.exception, SystemExit | None) else None
        said = f"{type(crash).__name__}: {crash}" if crash else result.stderr
        parsed = json.loads(result.stdout) if result.exit_code == 0 else result.stdout
        answers.append({"code": result.exit_code, "said": said, "answer": parsed})
    json.dump(answers, sys.stdout)


def ask(python: str, path: str | None, calls: list[list[str]], folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    if path is not None:
        environment["PYTHONPATH"] = str(Path(path).resolve())
    (folder / "calls.json").write_text(json.dumps(calls), encoding="utf-8")
    with (folder / "calls.json").open() as stdin:
        return subprocess.Popen(
            [python, "-P", __file__, "--answer"],
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
        )


def losses_of(form: str, parameters: dict[str, float], fitted_on: dict[str, Any]) -> list[float]:
    """What a law says inside its runs: parameters that compensate for each other mean nothing apart."""
    from planner.laws import Law

    params, unique = (fitted_on[name] for name in ("params", "unique_tokens"))
    grid = np.meshgrid(
        np.geomspace(*params, 4), np.geomspace(*unique, 4), np.geomspace(1, fitted_on["epochs"][1], 4)
    )
    return [float(loss) for loss in np.ravel(Law(form, renamed(parameters)).loss(*grid))]


def renamed(answer: Any) -> Any:
    """An answer under the names of today; of remarks their codes, of fitted laws their losses."""
    if isinstance(answer, dict):
        if "fitted_on" in answer and "laws" in answer and "weight_decay" in answer:
            laws = {
                form: {
                    **{
                        name: value
                        for name, value in law.items()
                        if name not in ("convergence", "parameters")
                    },
                    "losses": losses_of(form, law["parameters"], answer["fitted_on"]),
                }
                for form, law in answer["laws"].items()
            }
            answer = answer | {"laws": laws}
        columns = [name for name, values in answer.items() if isinstance(values, list)]
        if {"epochs", "loss"} <= set(columns):  # a table, row by row
            rows = zip(*(answer[name] for name in columns), strict=True)
            alone = {name: value for name, value in answer.items() if name not in columns}
            answer = alone | {"rows": [dict(zip(columns, row, strict=True)) for row in rows]}
        if set(answer) == {"code", "text"}:
            return {"code": RENAMED.get(answer["code"], answer["code"]), "text": answer["text"]}
        names = RENAMED | {"dial": "weight_decay_law"} if "settings" in answer else RENAMED
        return {names.get(name, name): renamed(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [renamed(one) for one in answer]
    return RENAMED_VALUES.get(answer, answer) if isinstance(answer, str) else answer


def same_number(place: str, before: float, after: float) -> bool:
    if before == after or (before != before and after != after):  # NaN is the same as NaN
        return True
    of_itself = next((far for pattern, far in FLAT.items() if re.fullmatch(pattern, place)), 1e-6)
    close = abs(after - before) <= of_itself * abs(before)
    if LOSS.search(place):
        close |= abs(after - before) <= 1e-6 * max(1.0, abs(before))
    return bool(close)


def tied(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two choices of one law have the same loss to the last digits: where repeated data fades and
    costs nothing, hundreds of epochs are as good as any more, and which is chosen means nothing.
    """
    name = "predicted_loss" if "predicted_loss" in before else "loss"
    if "terms" in before or not all(
        isinstance(side.get(key), float) for side in (before, after) for key in (name, "epochs")
    ):
        return False
    return before["epochs"] > 10 and abs(after[name] - before[name]) <= 1e-12 * abs(before[name])


def differences(before: Any, after: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two answers differ, as dotted paths."""
    if isinstance(before, dict) and isinstance(after, dict):
        if tied(before, after):
            return
        for name in [*before, *(name for name in after if name not in before)]:
            yield from differences(before.get(name, "-"), after.get(name, "-"), f"{place}.{name}".strip("."))
    elif all(
        isinstance(side, list) and side and isinstance(side[0], dict) and "code" in side[0]
        for side in (before, after)
    ):
        one, other = (sorted(remark["code"] for remark in remarks) for remarks in (before, after))
        if one != other:
            yield place, one, other
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{place}.{i}".strip("."))
    elif isinstance(before, int | float) and isinstance(after, int | float):
        if not same_number(place, before, after):
            yield place, before, after
    elif before != after:
        yield place, before, after


def allowed(command: str, place: str, before: Any, after: Any) -> bool:
    return any(
        re.fullmatch(rule.commands, command) and re.fullmatch(rule.place, place) and rule.alike(before, after)
        for rule in ALLOWED
    )


class Tally:
    """How many answers of one command agree, and the first that do not."""

    def __init__(self, command: str, show: int) -> None:
        self.command, self.show = command, show
        self.counts: Counter[str] = Counter()
        self.shown: list[str] = []

    def add(self, call: list[str], before: dict[str, Any], after: dict[str, Any]) -> None:
        found = list(differences(renamed(before), renamed(after)))
        wrong = [difference for difference in found if not allowed(self.command, *difference)]
        self.counts["inputs"] += 1
        self.counts["answered"] += before["code"] == 0
        self.counts["agree"] += not wrong
        self.counts["allowed"] += bool(found) and not wrong
        if wrong and len(self.shown) < self.show:
            self.shown.append(difference_text(call, wrong))

    @property
    def agrees(self) -> bool:
        return self.counts["agree"] == self.counts["inputs"]


def compare(command: str, options: argparse.Namespace, folder: Path) -> Tally:
    calls = questions(command, options.inputs, options.seed)
    both = [
        ask(options.before, options.before_path, calls, folder),
        ask(options.after, options.after_path, calls, folder),
    ]
    before, after = (json.loads(process.communicate()[0]) for process in both)
    tally = Tally(command, options.show)
    for call, one, other in zip(calls, before, after, strict=True):
        tally.add(call, one, other)
    return tally


def main() -> int:
    options = parsed_options()
    if options.answer:
        answer()
        return 0
    if options.write:
        write_files(Path(options.write), options.seed)
        return 0
    tallies = []
    print(f"{'command':20}{'inputs':>10}{'answered':>10}{'agree':>10}{'allowed':>10}")
    with tempfile.TemporaryDirectory() as folder:
        # By the version before: later ones read its files.
        command = [options.before, __file__, "--write", folder, "--seed", str(options.seed)]
        path = {} if options.before_path is None else {"PYTHONPATH": str(Path(options.before_path).resolve())}
        subprocess.run(command, check=True, env={**os.environ, **path})
        for command in options.commands:
            tallies.append(compare(command, options, Path(folder)))
            counts = tallies[-1].counts
            numbers = (f"{counts[name]:10}" for name in ("inputs", "answered", "agree", "allowed"))
            print(f"{command:20}", *numbers, sep="", flush=True)
    for tally in tallies:
        print(*tally.shown, sep="\n", end="")
    return 0 if all(tally.agrees for tally in tallies) else 1


def difference_text(call: list[str], wrong: list[tuple[str, Any, Any]]) -> str:
    lines = [f"\nplanner {' '.join(call)}", *(f"  {p}: {a!r:.200} -> {b!r:.200}" for p, a, b in wrong[:5])]
    return "\n".join([*lines, f"  ... {len(wrong)} differences"] if len(wrong) > 5 else lines)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for which in ("before", "after"):
        # Absolute, because each is started in another folder; links stay, as they make a virtual environment.
        parser.add_argument(
            f"--{which}",
            default=sys.executable,
            type=lambda name: os.path.abspath(shutil.which(name) or name),
            help=f"the Python {which}",
        )
        parser.add_argument(f"--{which}-path", help=f"its PYTHONPATH (after: {ROOT.name}/ by default)")
    parser.set_defaults(after_path=str(ROOT))
    parser.add_argument("--commands", nargs="+", choices=DRAWN, default=list(DRAWN), metavar="COMMAND")
    parser.add_argument("--inputs", type=int, default=200, help="for each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="so many differing answers of each command")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
