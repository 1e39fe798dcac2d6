"""The tables and pictures of studies/micro/results.md, from the files of this folder.

    python studies/micro/make.py          # judges the runs, prints the tables, draws the pictures

The files are those that the commands on that page wrote: `runs.csv` and `validation-runs.csv` (run tables),
`learning-rate.csv`, `large-models.csv`, `loss-minimising-compute.csv`, and the calibration `micro`, which
ships with the planner. `validation.json` follows from them: it is what `planner calibrate validate` says of
these runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from calibration.fitting.evaluate.compare import compare
from calibration.fitting.evaluate.summary import parameter_intervals
from calibration.reports import study_plots
from calibration.studies.judge import judge, standings_of
from calibration.studies.prescriptions import crossover_test, laws_to_try, prescriptions
from calibration.studies.study import load
from calibration.studies.verdict import FILE, Configuration, Trial, Verdict, configurations, pooled_deviation
from planner.calibration import Calibration
from planner.inputs import scientific, short
from planner.laws import FORMS, parameter_names

HERE = Path(__file__).resolve().parent
PICTURES = HERE
PUBLISHED = Calibration.load("fineweb-llama2")
MICRO = Calibration.load("micro")
STUDY = load("micro")


def table(header: str, rows: list[list[str]]) -> list[str]:
    names = [name.strip() for name in header.split("|")]
    return [" | ".join(["", *cells, ""]).strip() for cells in (names, ["---"] * len(names), *rows)]


def learning_rates() -> list[str]:
    runs = pd.read_csv(HERE / "learning-rate.csv")
    means = runs.pivot_table(
        index="learning_rate", columns=["params", "weight_decay"], values="development_loss"
    )
    columns = [f"{short(size)}, λ={decay:g}" for size, decay in means.columns.to_frame().to_numpy()]
    rows = [
        [f"{rate:g}", *(f"{value:.3f}" for value in row), f"{row.mean():.3f}"]
        for rate, row in zip(means.index.to_list(), means.to_numpy(), strict=True)
    ]
    return table(" | ".join(["learning rate", *columns, "mean"]), rows)


def repetition(unique: int = 65_536) -> list[str]:
    """Mean loss over seeds at one budget of unique tokens."""
    runs = pd.read_csv(HERE / "runs.csv")
    means = runs[runs["unique_tokens"] == unique].pivot_table(
        index=["weight_decay", "params"], columns="epochs", values="loss"
    )
    rows = [
        [f"{decay:g}", short(size), *("" if np.isnan(value) else f"{value:.2f}" for value in row)]
        for (decay, size), row in zip(means.index.to_list(), means.to_numpy(), strict=True)
    ]
    return table("λ | parameters | " + " | ".join(f"{epochs:g} epochs" for epochs in means.columns), rows)


def quality() -> list[str]:
    rows = []
    for setting in MICRO.settings:
        for law in (form for form in FORMS if form in setting.laws):
            metrics = setting.laws[law].metrics
            cells = [_number(metrics.get(name)) for name in ("r2", "r2_multi")]
            left_out = metrics.get("held_out_error_multi")
            rows.append(
                [f"{setting.weight_decay:g}", law, *cells, "" if left_out is None else f"{left_out:.1%}"]
            )
    return table("λ | law | R² | R² of repeated runs | error of repeated runs in cells left out", rows)


def parameters() -> list[str]:
    rows = []
    for setting in MICRO.settings:
        published = PUBLISHED.setting(setting.weight_decay).laws["additive_4p"].parameters
        found = parameter_intervals(setting, "additive_4p")
        for name in parameter_names("additive_4p"):
            value = setting.laws["additive_4p"].parameters[name]
            low, high = found[name].low, found[name].high
            rows.append(
                [
                    f"{setting.weight_decay:g}",
                    name,
                    f"{value:.4g}",
                    f"{low:.3g} to {high:.3g}",
                    f"{published[name]:.4g}",
                ]
            )
    return table("λ | parameter | micro | 95% interval | paper", rows)


def overfitting() -> list[str]:
    weak, strong = MICRO.settings
    return [
        found.sentence for law in ("additive_1p", "additive_4p") for found in compare(weak, strong, law=law)
    ]


def prescribed() -> list[str]:
    rows = []
    for trial in VERDICT.trials:
        for tried in trial.laws:
            trained = tried.configuration
            if trained is None:
                rows.append(
                    [short(trial.ud), scientific(trial.flops), tried.law, tried.reason, "", "", "", "", ""]
                )
                continue
            beyond = {None: "", True: "yes", False: "not shown"}[tried.beyond_noise]
            rows.append(
                [
                    short(trial.ud),
                    scientific(trial.flops),
                    tried.law,
                    short(trained.params),
                    f"{trained.epochs:.3g}",
                    _number(tried.predicted_loss),
                    f"{tried.loss:.3f} ± {tried.deviation:.3f}",
                    f"{tried.perplexity:.1f}",
                    f"{tried.regret:+.3f}",
                    beyond,
                ]
            )
    return table(
        "U_D | C | law | parameters | epochs | predicted | loss | perplexity | regret | behind the best law "
        "beyond noise",
        rows,
    )


FIXED = 3  # the first budgets were fixed before anything was fitted


def standings_fixed() -> list[str]:
    return _standings(VERDICT.trials[:FIXED])


def standings_added() -> list[str]:
    return _standings(VERDICT.trials[FIXED:])


def standings_all() -> list[str]:
    return _standings(VERDICT.trials)


def _standings(trials: Sequence[Trial]) -> list[str]:
    rows = []
    for s in sorted(standings_of(trials), key=lambda s: np.inf if s.regret is None else s.regret):
        regret = "" if s.regret is None else f"{s.regret:.3f}"
        errors = (
            ""
            if s.error is None or s.seed_error is None
            else f"± {s.error:.3f} (budgets), ± {s.seed_error:.3f} (seeds)"
        )
        beyond = {None: "", True: "yes", False: "not shown"}[s.beyond_noise]
        rows.append([s.law, regret, errors, f"{s.wins} of {s.of_pairs}", beyond])
    return table("law | mean regret | standard errors | wins | behind the first beyond noise", rows)


def tuned() -> list[Trial]:
    """The budgets fixed beforehand, each prescription at the learning rate of its lowest development loss."""
    runs = pd.concat([pd.read_csv(HERE / name) for name in ("validation-runs.csv", "large-models.csv")])
    shape = ["params", "unique_tokens", "tokens", "weight_decay"]
    rates = runs.groupby([*shape, "learning_rate"])["development_loss"].mean().reset_index()
    chosen = rates.sort_values("development_loss").drop_duplicates(shape)
    trained = {
        (c.params, c.unique_tokens, c.tokens): c
        for c in configurations(runs.merge(chosen[[*shape, "learning_rate"]]))
    }
    return [_again(trial, trained) for trial in VERDICT.trials[:FIXED]]


def _again(trial: Trial, trained: dict[tuple[int, int, int], Configuration]) -> Trial:
    now = {tried.law: trained[_shape(tried.configuration)] for tried in trial.laws}
    noise, _ = pooled_deviation({c.runs: c for c in now.values()}.values())
    winner = min(now.values(), key=lambda c: c.loss)
    best = min((c for c in (winner, trial.best) if c is not None), key=lambda c: c.loss)
    laws = [
        replace(
            tried,
            configuration=now[tried.law],
            loss=now[tried.law].loss,
            deviation=now[tried.law].deviation,
            regret=now[tried.law].loss - best.loss,
            behind=now[tried.law].loss - winner.loss,
        )
        for tried in trial.laws
    ]
    return replace(trial, noise=noise, best=best, laws=tuple(laws))


def _shape(configuration: Configuration | None) -> tuple[int, int, int]:
    assert configuration is not None  # all that was prescribed here has been trained
    return configuration.params, configuration.unique_tokens, configuration.tokens


def tuned_rates() -> list[str]:
    """Every prescription at the study's learning rate and at its own best one."""
    rows = []
    for before, after in zip(VERDICT.trials, tuned(), strict=False):
        for was, now in zip(before.laws, after.laws, strict=True):
            tried = now.configuration
            assert tried is not None  # all that was prescribed here has been trained
            size = f"{short(tried.params)}, {tried.epochs:.3g}"
            at_rate = f"{tried.learning_rate:g}"
            cells = [
                short(before.ud),
                scientific(before.flops),
                now.law,
                size,
                _number(now.predicted_loss),
                _number(was.loss),
                at_rate,
            ]
            rows.append([*cells, f"{now.loss:.3f} ± {now.deviation:.3f}", f"{now.regret:+.3f}"])
    return table(
        "U_D | C | law | parameters, epochs | predicted | loss at 0.01 | best rate | loss there | regret",
        rows,
    )


def standings_tuned() -> list[str]:
    return _standings(tuned())


def loss_minimising_compute() -> list[str]:
    """What the planner advises at the fixed budgets, next to the best reached with all of the compute."""
    runs, rows = pd.read_csv(HERE / "loss-minimising-compute.csv"), []
    for trial in VERDICT.trials[:FIXED]:
        here = runs[runs["unique_tokens"] == trial.ud]
        best = min(tried.loss for tried in trial.laws if tried.loss is not None)
        share = here["flops"].iloc[0] / trial.flops
        cells = [
            short(trial.ud),
            scientific(trial.flops),
            f"{short(here['params'].iloc[0])}, {here['epochs'].iloc[0]:g}",
            f"{share:.0%}",
        ]
        rows.append([*cells, f"{here['loss'].mean():.3f} ± {here['loss'].std():.3f}", f"{best:.3f}"])
    return table(
        "U_D | C | advised: parameters, epochs | of the compute | loss | best law's loss with all of it", rows
    )


def crossovers() -> list[str]:
    rows = []
    for found in VERDICT.crossovers:
        observed = found.note if found.observed is None else scientific(found.observed)
        ends = found.observed_interval or (None, None)
        between = (
            ""
            if ends == (None, None)
            else " to ".join("open" if end is None else scientific(end) for end in ends)
        )
        ratio = "" if found.ratio is None else f"{found.ratio:.2f}"
        predicted = "none" if found.predicted is None else scientific(found.predicted)
        span = (
            ""
            if found.predicted_interval is None
            else " to ".join(scientific(end) for end in found.predicted_interval)
        )
        rows.append([short(found.ud), predicted, span, observed, between, ratio])
    return table(
        "U_D | predicted C× | 95% interval | observed C× | 95% interval | observed / predicted", rows
    )


def budgets() -> list[str]:
    rows = []
    for found in VERDICT.crossovers:
        for budget in found.budgets:
            cells = [short(found.ud), scientific(budget.flops)]
            for side in (budget.weaker, budget.stronger):
                cells.append(
                    "" if side is None else f"{short(side.params)}, {side.epochs:.3g}: {side.loss:.3f}"
                )
            rows.append([*cells, "" if budget.difference is None else f"{budget.difference:+.3f}"])
    return table("U_D | C | λ=0.1: parameters, epochs: loss | λ=1.0 | difference", rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def judged() -> Verdict:
    """What the study's prescriptions came to."""
    asked = STUDY.validation
    common: dict[str, Any] = {"seeds": asked.seeds, "max_params": asked.max_params}
    laws = laws_to_try(MICRO, asked.laws)
    planned = prescriptions(
        STUDY, MICRO, asked.pairs, laws=laws, weight_decays=asked.weight_decays or (), **common
    )
    tests = [
        crossover_test(STUDY, MICRO, ud, factors=asked.crossover_factors, **common)
        for ud in asked.crossover_uds
    ]
    runs = pd.concat([pd.read_csv(HERE / name) for name in ("runs.csv", "validation-runs.csv")])
    return judge(planned, tests, runs)


VERDICT = judged()

PARTS = (
    learning_rates,
    repetition,
    quality,
    parameters,
    overfitting,
    prescribed,
    standings_fixed,
    standings_added,
    standings_all,
    tuned_rates,
    standings_tuned,
    loss_minimising_compute,
    crossovers,
    budgets,
)


def pictures() -> None:
    for name, figure in (
        ("regret", study_plots.regret(VERDICT)),
        ("crossover", study_plots.crossover(VERDICT.crossovers)),
    ):
        figure.savefig(PICTURES / f"{name}.png", dpi=130)
        plt.close(figure)


def main() -> None:
    path = HERE / FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | asdict(VERDICT), indent=2) + "\n")
    for part in PARTS:
        print(f"\n{part.__name__}\n")
        print("\n".join(part()))
    pictures()


if __name__ == "__main__":
    main()
