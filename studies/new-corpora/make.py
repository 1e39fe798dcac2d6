"""Run protocol.md: calibrate, choose, train what was chosen, and print the tables of the report.

    python studies/new-corpora/make.py run WORK german c          # 1 and 2; again: goes on where it was
    python studies/new-corpora/make.py run WORK english russian   # 3 and 4, once that is mended
    python studies/new-corpora/make.py afterwards WORK            # the shipped law with C alone
    python studies/new-corpora/make.py tables                     # of the CSV files next to this one
    python studies/new-corpora/make.py picture docs/pictures/new-corpora.png
    python studies/new-corpora/make.py miniature WORK             # all of it on a few tiny runs, in minutes

WORK holds text, runs and checkpoints. NAME.csv has a row for each configuration and seed that was trained to
be compared, NAME-runs.csv every run that a law was fitted to, NAME-afterwards.csv what the protocol lacks.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prepare import SOURCES, prepare

from calibration.studies.calibration_loop import Loop, Question, read_question
from calibration.studies.directory import StudyDirectory, begin
from calibration.studies.fit import fit
from calibration.studies.local import LocalEngine
from calibration.studies.progress import live_progress
from calibration.studies.study import StudyRun
from calibration.studies.sweep import sweep
from planner import Calibration, plan
from planner.inputs import InvalidInput, scientific, short
from planner.show.palette import INK, MARKERS, NEUTRAL, SERIES
from planner.solve import allocate

HERE = Path(__file__).resolve().parent
DECAY = 0.1  # of the rules that know none


@dataclass(frozen=True)
class Protocol:
    """The figures of protocol.md."""

    calibration: float = 8.5e11  # K, FLOPs of every calibration
    budgets: tuple[float, ...] = (5e10, 2.5e11, 8.5e11)  # C
    ud: int = 65_536
    own_runs: tuple[int, ...] = (8, 16, 32)
    seeds: int = 3
    smallest: float = 65_000  # parameters, of the random search
    changes: tuple[str, ...] = ("tokenizer=bpe:1024", "development_documents=100")
    # params, unique tokens, epochs: what Chinchilla and Muennighoff are fitted to, at weight decay 0.1
    grid: tuple[tuple[int, int, int], ...] = (
        *((65_000, unique, 1) for unique in (32_768, 49_152, 65_536)),
        *((110_000, unique, 1) for unique in (32_768, 49_152, 65_536)),
        *((180_000, unique, 1) for unique in (32_768, 65_536)),
        (280_000, 65_536, 1),
        *((65_000, 32_768, passes) for passes in (4, 8)),
        *((110_000, 32_768, passes) for passes in (4, 8)),
        (180_000, 32_768, 2),
    )


MINIATURE = Protocol(
    calibration=3e9,
    budgets=(8e8, 3e9),
    ud=16_384,
    own_runs=(4,),
    seeds=2,
    smallest=6_000,
    changes=("tokenizer=bytes", "development_documents=20", "sequence_length=32", "compile=off"),
    grid=tuple(
        cell
        for size in (6_000, 9_000, 14_000)
        for cell in ((size, 4_096, 1), (size, 8_192, 1), (size, 16_384, 1), (size, 4_096, 4))
    ),
)


# -- what every rule is fitted to ----------------------------------------------------------------------------


def calibrate(text: Path, work: Path, protocol: Protocol) -> Question:
    """The loop with each number of own runs, by the command that a user types; the question of the last."""
    question = None
    for runs in protocol.own_runs:
        out = work / f"databound-{runs}"
        figures = {"--budget": protocol.calibration, "--runs": runs, "--ud": protocol.ud}
        figures |= {"--flops": protocol.budgets[-1], "--tolerance": 1e-6}
        words = [str(word) for pair in figures.items() for word in pair]
        words += [word for change in protocol.changes for word in ("--set", change)]
        command = [sys.executable, "-m", "planner", "calibrate", "run", str(text), "-o", str(out), *words]
        if not (out / "report.html").exists():  # which is written last
            subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        question = read_question(StudyDirectory(out))
    if question is None:
        raise SystemExit("the protocol names no numbers of own runs")
    return question


def trained(loop: Loop, runs: Sequence[StudyRun]) -> None:
    """Train what is missing of these runs, in the directory of the loop."""
    begin(loop.study, loop.folder.path)

    with live_progress(loop.folder) as watch:
        progress = sweep(runs, loop.folder, LocalEngine(loop.folder.compiled), watch=watch)
    if progress.failed:
        raise SystemExit("\n".join(f"{name} failed: {why}" for name, why in progress.failed.items()))


def fitted_grid(question: Question, work: Path, protocol: Protocol) -> Calibration:
    """Chinchilla and Muennighoff, each form fitted to a grid of their own."""
    loop = Loop(question, StudyDirectory(work / "grid"))
    runs = [
        loop.study.run(params=size, unique_tokens=unique, epochs=passes, weight_decay=DECAY, seed=0)
        for size, unique, passes in protocol.grid
    ]
    trained(loop, runs)
    laws = ["chinchilla", "effective_parameters"]
    return fit(loop.folder.path, laws=laws, bootstrap=0, name="grid")


# -- what every rule chooses ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """A configuration that a rule chooses for a budget, with what it expects of it."""

    rule: str
    budget: float
    flops: float  # that are trained
    params: float
    epochs: float
    weight_decay: float
    expected: float = math.nan
    low: float = math.nan  # 95% interval of the loss
    high: float = math.nan


def planned(rule: str, budget: float, known: Calibration | str, ud: int, ceiling: float) -> Choice:
    """A plan, which may leave compute unspent."""
    found = plan(ud, ceiling, calibration=known)
    within = (found.intervals or {}).get("loss")
    ends = (math.nan, math.nan) if within is None else (within.low, within.high)
    where = (found.params, found.epochs, found.weight_decay)
    return Choice(rule, budget, found.spent_flops, *where, found.loss, *ends)


def choices(question: Question, grid: Calibration, work: Path, protocol: Protocol) -> Iterator[Choice]:
    """What each rule but the random search would train."""
    ud = int(question.ud)
    names = [f"databound-{runs}" for runs in protocol.own_runs]
    own = {name: Calibration.load(work / name / "calibration.json") for name in names}
    forms = {"chinchilla": "chinchilla", "muennighoff": "effective_parameters"}

    def choose(rule: str, budget: float) -> Choice:
        total = budget + protocol.calibration
        if rule in forms:
            return _by_law(rule, forms[rule], grid, ud, budget)
        if rule == "4 epochs":
            return Choice(rule, budget, total, total / (24 * ud), 4.0, DECAY)
        return planned(rule, budget, own.get(rule, "auto"), ud, budget if rule in own else total)

    for budget in protocol.budgets:
        for rule in (*own, "shipped", *forms, "4 epochs"):
            try:
                yield choose(rule, budget)
            except InvalidInput as error:
                print(f"{rule} gives no plan at {scientific(budget)}: {error}", flush=True)


def _by_law(rule: str, form: str, known: Calibration, ud: int, budget: float) -> Choice:
    found = allocate(known.setting(DECAY).law(form), ud, budget)
    return Choice(rule, budget, budget, float(found.params), float(found.epochs), DECAY, float(found.loss))


def drawn(budget: float, protocol: Protocol, name: str) -> list[Choice]:
    """The random search: as many configurations at this compute as the total pays for."""
    total = budget + protocol.calibration
    generator = np.random.default_rng([*name.encode(), protocol.budgets.index(budget)])
    product = budget / (6 * protocol.ud)
    found = []
    for _ in range(int(total / budget)):
        size = math.exp(generator.uniform(math.log(protocol.smallest), math.log(product)))
        decay = float(f"{math.exp(generator.uniform(math.log(0.03), math.log(3.0))):.2g}")
        found.append(Choice("random", budget, budget, size, product / size, decay))
    return found


# -- what is trained -----------------------------------------------------------------------------------------


def runs_of(loop: Loop, choice: Choice, seeds: int) -> list[StudyRun]:
    ud = loop.question.ud
    return loop.at_compute(choice.params, choice.epochs, ud, choice.flops, choice.weight_decay, seeds)


def searched(loop: Loop, name: str, protocol: Protocol) -> list[Choice]:
    """The random search of each budget: the best of its draws by the development documents."""
    draws = [drawn(budget, protocol, name) for budget in protocol.budgets]
    trained(loop, _distinct(run for some in draws for choice in some for run in runs_of(loop, choice, 1)))

    def development(choice: Choice) -> float:
        result = loop.folder.result(runs_of(loop, choice, 1)[0].name)
        assert result is not None
        assert result.development_loss is not None
        return result.development_loss

    return [min(some, key=development) for some in draws]


def _distinct(runs: Iterator[StudyRun]) -> list[StudyRun]:
    return list({run.name: run for run in runs}.values())


def compare(name: str, text: Path, work: Path, protocol: Protocol, results: Path) -> None:
    """One corpus, from its text to its CSV files."""
    question = calibrate(text, work, protocol)
    grid = fitted_grid(question, work, protocol)
    loop = Loop(question, StudyDirectory(work / "compared"))
    found = [*searched(loop, name, protocol), *choices(question, grid, work, protocol)]
    trained(loop, _distinct(run for choice in found for run in runs_of(loop, choice, protocol.seeds)))
    outcomes(name, loop, found, protocol).to_csv(results / f"{name}.csv", index=False)
    own = [*(f"databound-{runs}" for runs in protocol.own_runs), "grid"]
    tables = [_runs_of(work / part).assign(part=part) for part in own]
    pd.concat(tables).to_csv(results / f"{name}-runs.csv", index=False)


def afterwards(name: str, work: Path, protocol: Protocol, results: Path) -> None:
    """What the protocol does not have: the plan of the shipped law for C alone, which tells apart how much of
    its lead over own runs is compute and how much is choice.
    """
    question = read_question(StudyDirectory(work / f"databound-{protocol.own_runs[-1]}"))
    assert question is not None
    loop = Loop(question, StudyDirectory(work / "compared"))
    found = [planned("shipped, C alone", c, "auto", protocol.ud, c) for c in protocol.budgets]
    trained(loop, _distinct(run for choice in found for run in runs_of(loop, choice, protocol.seeds)))
    outcomes(name, loop, found, protocol).to_csv(results / f"{name}-afterwards.csv", index=False)


def outcomes(name: str, loop: Loop, choices: Sequence[Choice], protocol: Protocol) -> pd.DataFrame:
    """A row for each choice and seed."""
    rows = []
    for choice in choices:
        for seed, run in enumerate(runs_of(loop, choice, protocol.seeds)):
            result = loop.folder.result(run.name)
            assert result is not None
            rows.append(
                {"corpus": name, **vars(replace(choice, params=run.params)), "seed": seed, **_outcome(result)}
            )
    return pd.DataFrame(rows)


def _outcome(result: object) -> dict[str, object]:
    columns = ("run", "unique_tokens", "tokens", "learning_rate", "loss", "development_loss", "seconds")
    return {column: getattr(result, column) for column in columns} | {"trained_epochs": result.epochs}  # type: ignore[attr-defined]


def _runs_of(folder: Path) -> pd.DataFrame:
    return pd.DataFrame([result.row() for result in StudyDirectory(folder).results()])


# -- the tables ----------------------------------------------------------------------------------------------


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Each rule at each budget of each corpus: mean loss, regret and its seed noise, and whether the interval
    held the mean. A rule that gave no plan has the worst regret of its cell, and nothing else.
    """
    keys = ["corpus", "budget", "rule"]
    first = {
        name: (name, "first")
        for name in ("params", "epochs", "weight_decay", "flops", "low", "high", "expected")
    }
    losses = {"loss": ("loss", "mean"), "deviation": ("loss", "std"), "seeds": ("loss", "size")}
    found = rows.groupby(keys, as_index=False, sort=False).agg(**losses, **first)  # type: ignore[call-overload]
    found["regret"] = found["loss"] - found.groupby(["corpus", "budget"])["loss"].transform("min")
    found["noise"] = found["deviation"] / np.sqrt(found["seeds"])
    known = found["low"].notna()
    found["held"] = np.where(
        known, (found["low"] <= found["loss"]) & (found["loss"] <= found["high"]), np.nan
    )
    cells = found[["corpus", "budget"]].drop_duplicates()
    every = cells.merge(found[["rule"]].drop_duplicates(), how="cross")
    found = every.merge(found, how="left", on=keys)
    worst = found.groupby(["corpus", "budget"])["regret"].transform("max")
    return found.assign(planned=found["loss"].notna(), regret=found["regret"].fillna(worst))


def results_of(folder: Path) -> pd.DataFrame:
    files = [path for name in (*SOURCES, "miniature") if (path := folder / f"{name}.csv").exists()]
    if not files:
        raise SystemExit(f"{folder} has no results yet; `make.py run` makes them.")
    return judged(pd.concat(map(pd.read_csv, files), ignore_index=True))


def tables(folder: Path) -> None:
    """Print the tables of the report from the CSV files of a folder."""
    found = results_of(folder)
    for corpus, here in found.groupby("corpus", sort=False):
        print(
            f"\n**{corpus}**\n\n| C | rule | chose | loss ± seeds | regret | expected (95%) |\n|"
            + " --- |" * 6
        )
        for row in here.sort_values(["budget", "regret"]).itertuples():
            if not row.planned:
                worst = f"{row.regret:.3f} (the worst)"
                print(f"| {scientific(row.budget)} | {row.rule} | no plan | | {worst} | |")
                continue
            chose = f"{short(row.params)} x {row.epochs:.3g} at {row.weight_decay:g}"
            within = "" if math.isnan(row.low) else f"{row.expected:.3f} ({row.low:.3f} to {row.high:.3f})"
            loss = f"{row.loss:.3f} ± {row.noise:.3f}"
            print(
                f"| {scientific(row.budget)} | {row.rule} | {chose} | {loss} | {row.regret:.3f} | {within} |"
            )
    first, opened = list(SOURCES)[:2], list(SOURCES)[2:]
    _summary("the first two", found[found["corpus"].isin(first)])
    _summary("the other two", found[found["corpus"].isin(opened)])
    _summary("all", found)
    _choices(found, folder)


def _summary(title: str, found: pd.DataFrame) -> None:
    """Each rule over these cells, the lowest median regret first."""
    if found.empty:
        return
    print(f"\n**{title}**\n\n| rule | cells | median regret | mean | worst | best in | interval held |")
    print("|" + " --- |" * 7)
    each = dict(iter(found.groupby("rule", sort=False)))
    for rule, here in sorted(each.items(), key=lambda item: item[1]["regret"].median()):
        held = here["held"].dropna()
        share = f"{held.mean():.0%} of {len(held)}" if len(held) else ""
        regret, best = here["regret"], int((here["regret"] == 0).sum())
        middle = f"{regret.median():.3f} | {regret.mean():.3f} | {regret.max():.3f}"
        print(f"| {rule} | {len(here)} | {middle} | {best} | {share} |")


def _choices(found: pd.DataFrame, folder: Path) -> None:
    """What the shipped law chose for C alone, next to own runs at the same C."""
    files = [path for name in SOURCES if (path := folder / f"{name}-afterwards.csv").exists()]
    if not files:
        return
    alone = judged(pd.concat(map(pd.read_csv, files), ignore_index=True))
    print("\n**Afterwards: what the shipped law chose for C alone**\n")
    print("| corpus | C | chose | loss ± seeds | databound-16 | shipped with C + K |\n|" + " --- |" * 6)
    for row in alone.itertuples():
        cell = found[(found["corpus"] == row.corpus) & (found["budget"] == row.budget)].set_index("rule")[
            "loss"
        ]
        chose = f"{short(row.params)} x {row.epochs:.3g} at {row.weight_decay:g}"
        losses = f"{row.loss:.3f} ± {row.noise:.3f} | {cell['databound-16']:.3f} | {cell['shipped']:.3f}"
        print(f"| {row.corpus} | {scientific(row.budget)} | {chose} | {losses} |")


def picture(found: pd.DataFrame) -> Figure:
    """The regret of every rule in every cell, and its median; the lowest median on top."""
    figure = Figure(figsize=(9.0, 4.6), dpi=130, layout="constrained")
    axis = figure.subplots()
    medians = found.groupby("rule")["regret"].median().sort_values(ascending=False)
    corpora, budgets = list(found["corpus"].unique()), sorted(found["budget"].unique())
    for place, (rule, median) in enumerate(medians.items()):
        axis.plot([median, median], [place - 0.34, place + 0.34], color=INK.light, linewidth=2.2, zorder=3)
        axis.annotate(f"{median:.3f}", (median, place + 0.36), ha="center", va="bottom", fontsize=8)
        here = found[found["rule"] == rule]
        for row in here.itertuples():
            i, k = corpora.index(row.corpus), budgets.index(row.budget)
            offset = 0.13 * (i - (len(corpora) - 1) / 2)
            axis.scatter(
                row.regret,
                place + offset,
                s=(14, 30, 54)[k],
                marker=MARKERS[i],
                color=SERIES[i].light,
                alpha=0.8,
            )
    axis.set_yticks(range(len(medians)), [re.sub(r"-(\d+)", r", \1 runs", rule) for rule in medians.index])
    axis.set_xscale("symlog", linthresh=0.02, linscale=0.6)
    ticks = [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axis.set_xticks([], minor=True)
    axis.set(
        xlim=(-0.002, 1.1 * found["regret"].max()),
        xlabel="regret: nats per token above the best that was trained",
    )
    handles = [
        Line2D([], [], linestyle="", marker=MARKERS[i], color=SERIES[i].light, label=corpus)
        for i, corpus in enumerate(corpora)
    ]
    handles += [
        Line2D(
            [],
            [],
            linestyle="",
            marker="o",
            color=NEUTRAL.light,
            markersize=size,
            label=f"C = {scientific(budget)}",
        )
        for size, budget in zip((3, 5, 7), budgets, strict=True)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=7, frameon=False, fontsize=8)
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "afterwards", "tables", "picture", "miniature"))
    parser.add_argument("work", type=Path, nargs="?")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.what == "tables":
        tables(given.work or HERE)
        return
    if given.what == "picture" and given.work is not None:
        picture(results_of(HERE)).savefig(given.work)
        return
    if given.work is None or set(given.names) - {*SOURCES}:
        parser.error(f"name a folder to work in, and corpora of {', '.join(SOURCES)}")
    if given.what == "miniature":
        given.work.mkdir(parents=True, exist_ok=True)
        text = given.work / "miniature.txt"
        pages = sorted((HERE.parents[1] / "docs").glob("*.md"))
        if not text.exists():  # the pages may have changed since
            text.write_text("\n\n".join(page.read_text(encoding="utf-8") for page in pages), encoding="utf-8")
        compare("miniature", text, given.work / "miniature", MINIATURE, given.work)
        tables(given.work)
        return
    for name in given.names or SOURCES:
        if given.what == "afterwards":
            afterwards(name, given.work / name, Protocol(), HERE)
            continue
        compare(name, prepare(name, given.work / "text"), given.work / name, Protocol(), HERE)
        print(f"{name} is done.", flush=True)


if __name__ == "__main__":
    main()
