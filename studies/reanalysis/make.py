"""Muennighoff et al. (2023) again: does repeated data call for smaller models, or was the base law at fault?

    python studies/reanalysis/make.py datablations_c4_runs.csv

prints the tables of studies/reanalysis/results.md and draws its picture.

Everything is computed from the public run table and from the parameters as published, which the planner ships
as the calibration `c4-muennighoff`. Two base laws are compared on the 182 runs: the published one, fitted to
points read off another study's figure, and one refitted to the single-epoch runs of the table itself; then
the effective-parameters law (D^, N^) on top of each.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from scipy.special import huber

from calibration.fitting.evaluate.summary import PAPER_DELTA, r_squared
from calibration.fitting.huber import (
    Free,
    base_theta,
    bootstrap,
    fit_forms,
    free_problem,
    parameters_of,
)
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.runs.tables import read_runs
from calibration.fitting.solver import best_of
from planner.calibration import Calibration
from planner.inputs import CONTINUOUS, InvalidInput, scientific, short
from planner.laws import BASE, BASE_FORM, BASE_PARAMETERS, At, Law, Terms, Values, form_named
from planner.solve import FLOPS_PER_PARAM_TOKEN, allocate

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared")) / "data" / "datablations_c4_runs.csv"
PICTURE = Path(__file__).resolve().with_name("reanalysis.png")

UNIQUE_TOKENS = 25e9
BUDGETS = (1e21, 1e22, 1e23)
REFITS = 1000

# Names of the base laws; each has its Chinchilla law and the effective-parameters law fitted on top of it.
PUBLISHED, REFIT, TIED = "published", "refit", "refit, α = β"
AS_PUBLISHED = "as published"  # the effective-parameters law with the published constants
ON_TOP_OF = {PUBLISHED: (AS_PUBLISHED, PUBLISHED), REFIT: (REFIT,), TIED: (TIED,)}
DESCRIBED = {
    AS_PUBLISHED: "published base, published constants",
    PUBLISHED: "published base, refit constants",
    REFIT: "refit base, refit constants",
    TIED: "refit base with α = β, refit constants",
}


def read(table: str | os.PathLike[str]) -> Runs:
    """The 182 runs that are left after the authors' own removal of outliers."""
    return Runs.of(read_runs(table, where="in_filtered182 == 1", weight_decay=0.1))


def tied_problem(runs: Runs, rows: np.ndarray | slice = slice(None)) -> Free:
    """Chinchilla on these rows with alpha = beta: E, A, alpha, B."""
    at = At(np.exp(runs.ln_params[rows]), np.exp(runs.ln_tokens[rows]), 1.0)
    unit = BASE[3].unit
    assert unit is not None
    data = replace(BASE[3], unit=lambda p, at: unit({**p, "beta": p["alpha"]}, at))

    def terms(p: Values, at: At) -> Terms:
        return form_named(BASE_FORM).terms({**p, "beta": p["alpha"]}, at)

    return free_problem(terms, (*BASE[:3], data), runs, at, ((1, 2), (3, 2)))


def laws(runs: Runs) -> tuple[dict[str, Law], dict[str, Law]]:
    """The Chinchilla law of each base, and the effective-parameters laws on top of them."""
    known = Calibration.load("c4-muennighoff").settings[0]
    published = known.law("chinchilla")
    single = runs.single
    free = tied_problem(runs, single)
    tied = best_of(
        free.problems(runs.ln_loss[single], np.ones(single.sum()), PAPER_DELTA),
        free.starts,
        free.bounds,
    )
    locked = {
        PUBLISHED: base_theta(dict(published.parameters), runs),
        REFIT: None,
        TIED: tied.theta[[0, 1, 2, 3, 2]],
    }
    fits = {name: fit_forms(runs, ["effective_parameters"], base=base).forms for name, base in locked.items()}
    for name, forms in fits.items():
        for form, fit in forms.items():
            if fit.problem:
                raise InvalidInput(
                    f"{form} on the {name} base law is not identified by this table: {fit.problem}."
                )
    base, repetition = (
        {name: Law(form, forms[form].parameters) for name, forms in fits.items()}
        for form in ("chinchilla", "effective_parameters")
    )
    return base, {AS_PUBLISHED: known.law("effective_parameters"), **repetition}


def figures(law: Law, runs: Runs) -> dict[str, float]:
    """R² on the loss of all, single-epoch and multi-epoch runs, and the Huber sum on ln(loss)."""
    predicted = law.loss(np.exp(runs.ln_params), np.exp(runs.ln_unique), 1 + runs.repeats)
    rows = {"all": np.full(len(runs), True), "single": runs.single, "multi": ~runs.single}
    r2 = {name: r_squared(runs.loss[chosen], predicted[chosen]) or 0.0 for name, chosen in rows.items()}
    return {**r2, "huber": float(huber(PAPER_DELTA, np.log(predicted) - runs.ln_loss).sum())}


# -- what is printed -----------------------------------------------------------------------------------------


def report(base: dict[str, Law], repetition: dict[str, Law], runs: Runs) -> list[list[str]]:
    """All that studies/reanalysis/results.md takes from here, as lines of Markdown."""
    return [
        baseline_table(base, runs),
        repetition_table(base, repetition, runs),
        allocation_table(repetition),
        certainty_table(repetition, runs),
        findings(base, repetition, runs),
    ]


def baseline_table(base: dict[str, Law], runs: Runs) -> list[str]:
    """How well each base law describes the runs, and its parameters."""
    found = {name: figures(law, runs) for name, law in base.items()}
    every, once = len(runs), int(runs.single.sum())
    rows = {
        f"R² (all {every} runs)": [f"{found[name]['all']:.4f}" for name in base],
        f"R² ({once} single-epoch)": [f"{found[name]['single']:.4f}" for name in base],
        f"R² ({every - once} multi-epoch)": [f"{found[name]['multi']:.4f}" for name in base],
        "Huber loss": [f"{found[name]['huber']:.5f}" for name in base],
    }
    symbols = dict(zip(BASE_PARAMETERS, "EAαBβ", strict=True))
    rows |= {symbols[key]: [_plain(law.parameters[key]) for law in base.values()] for key in BASE_PARAMETERS}
    return _markdown(["Chinchilla base", *base], [[name, *cells] for name, cells in rows.items()])


def repetition_table(base: dict[str, Law], repetition: dict[str, Law], runs: Runs) -> list[str]:
    """What the effective-parameters mechanism adds to each base law."""
    rows = []
    for name, law in base.items():
        alone = figures(law, runs)
        rows.append([f"Chinchilla ({name})", *_quality(alone, None), "", ""])
        for label in ON_TOP_OF[name]:
            kind = "published constants" if label == AS_PUBLISHED else "refit constants"
            stars = [_plain(repetition[label].parameters[key]) for key in ("R_D_star", "R_N_star")]
            rows.append([f"+ D̂, N̂ ({kind})", *_quality(figures(repetition[label], runs), alone), *stars])
    return _markdown(["law", "R² (all)", "ΔR²", "R² (single)", "R² (multi)", "Huber", "R*_D", "R*_N"], rows)


def allocation_table(repetition: dict[str, Law]) -> list[str]:
    """What each law would train, and how much larger or smaller that is than its own base law says."""
    rows = []
    for flops in BUDGETS:
        for label, law in repetition.items():
            alone, best = (allocate(each, UNIQUE_TOKENS, flops, CONTINUOUS) for each in (law.base(), law))
            sizes = [f"{short(float(each.params))} x {float(each.epochs):.3g}" for each in (alone, best)]
            ratio = float(best.params / alone.params)
            rows.append(
                [
                    scientific(flops),
                    DESCRIBED[label],
                    *sizes,
                    f"{ratio:.2f}",
                    "larger" if ratio > 1 else "smaller",
                ]
            )
    return _markdown(
        ["FLOPs", "D̂, N̂ law", "Chinchilla: params x epochs", "D̂, N̂: params x epochs", "size ratio", "advice"],
        rows,
    )


def certainty_table(repetition: dict[str, Law], runs: Runs) -> list[str]:
    """How sure the reversal is: base law and constants refitted many times, and what each refit advises."""
    fits = fit_forms(runs, ["effective_parameters"])
    flops = BUDGETS[1]
    published = _size_ratio(repetition[AS_PUBLISHED], flops)
    rows = []
    for scheme, resampled in (("residuals", "noise (residuals)"), ("weights", "runs")):
        refits = bootstrap(fits, REFITS, scheme=scheme, seed=0)["effective_parameters"]
        draws = parameters_of("effective_parameters", refits.theta, runs)
        kept = refits.converged & np.all([np.isfinite(value) for value in draws.values()], axis=0)
        ratio = _size_ratio(
            Law("effective_parameters", {name: value[kept] for name, value in draws.items()}), flops
        )
        low, middle, high = np.quantile(ratio, [0.025, 0.5, 0.975])
        shares = [f"{np.mean(chosen):.0%}" for chosen in (ratio > 1.01, ratio < 0.99, ratio <= published)]
        rows.append([resampled, f"{kept.sum():,}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}", *shares])
    header = [
        "resampled",
        "refits",
        "median size ratio",
        "95% interval",
        "larger by over 1%",
        "smaller by over 1%",
    ]
    header.append(f"as small as published ({published:.2f})")
    return _markdown(header, rows)


def _size_ratio(law: Law, flops: float) -> np.ndarray:
    """The law's optimal size over that of its own Chinchilla base."""
    alone, best = (allocate(each, UNIQUE_TOKENS, flops, CONTINUOUS).params for each in (law.base(), law))
    return np.asarray(best / alone)


def findings(base: dict[str, Law], repetition: dict[str, Law], runs: Runs) -> list[str]:
    """What the tables say, in sentences whose numbers are computed as well."""
    alone = {name: figures(law, runs) for name, law in base.items()}
    added = {label: figures(repetition[label], runs) for label in repetition}
    gain = {label: added[label]["all"] - alone[name]["all"] for name in base for label in ON_TOP_OF[name]}
    star = {label: _plain(law.parameters["R_N_star"]) for label, law in repetition.items()}
    refit = repetition[REFIT]
    without = Law(refit.form, {**refit.parameters, "R_N_star": 1000 * refit.parameters["R_N_star"]})
    flat = figures(without, runs)["huber"] / added[REFIT]["huber"] - 1
    flops = BUDGETS[1]
    size = {
        label: float(allocate(law, UNIQUE_TOKENS, flops, CONTINUOUS).params)
        for label, law in repetition.items()
    }
    plain = {
        name: float(allocate(law, UNIQUE_TOKENS, flops, CONTINUOUS).params) for name, law in base.items()
    }
    return [
        "- **The published base law is off before any token repeats.** It explains "
        f"{alone[PUBLISHED]['single']:.1%} of the variance "
        f"of the {runs.single.sum()} single-epoch runs; a law of the same form fitted to them explains "
        f"{alone[REFIT]['single']:.1%}, "
        f"and {alone[TIED]['single']:.1%} with α = β as in the published one. Over all runs the Huber loss "
        "falls by a factor of "
        f"{alone[PUBLISHED]['huber'] / alone[REFIT]['huber']:.1f}.",
        "- **Most of what D̂, N̂ seemed to explain was the error of the base law.** On the published base "
        "it adds "
        f"{gain[AS_PUBLISHED]:.3f} to R² ({gain[PUBLISHED]:.3f} with its constants refitted), on the refit "
        f"base {gain[REFIT]:.3f}.",
        "- **N̂ switches itself off.** R*_N says roughly how many times over a model may exceed its "
        "single-epoch optimum before the excess "
        f"stops counting. It goes from {star[AS_PUBLISHED]} as published ({star[PUBLISHED]} at the optimum "
        "on that base) to "
        f"{star[REFIT]}, that is to no limit: making it a thousand times larger still changes the Huber "
        f"loss by {flat:+.1%}.",
        f"- **The advice reverses.** With {short(UNIQUE_TOKENS)} unique tokens and {scientific(flops)} "
        "FLOPs, the published law trains "
        f"{short(size[AS_PUBLISHED])} parameters where its own Chinchilla base says "
        f"{short(plain[PUBLISHED])}: smaller, for more epochs. "
        f"The refit law trains {short(size[REFIT])} where its base says {short(plain[REFIT])}: larger, for "
        "fewer.",
        "- **How far it reverses depends on the exponents.** With α = β the refit describes the runs as "
        f"well, R*_N is {star[TIED]}, "
        f"and the size is {size[TIED] / plain[TIED]:.2f} times Chinchilla's instead of "
        f"{size[REFIT] / plain[REFIT]:.2f} times: the "
        f"direction holds, the distance is small, and N̂ is weakened rather than gone.",
    ]


def _quality(found: dict[str, float], alone: dict[str, float] | None) -> list[str]:
    gain = "" if alone is None else f"{found['all'] - alone['all']:+.4f}"
    return [
        f"{found['all']:.4f}",
        gain,
        f"{found['single']:.4f}",
        f"{found['multi']:.4f}",
        f"{found['huber']:.5f}",
    ]


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


# -- the picture ---------------------------------------------------------------------------------------------

# Okabe and Ito's colours, one per base law; line styles tell the laws on the same base apart without colour.
_BLUE, _VERMILLION = "#0072B2", "#D55E00"
_LOOK = {
    AS_PUBLISHED: (_BLUE, "-"),
    PUBLISHED: (_BLUE, "--"),
    REFIT: (_VERMILLION, "-"),
    TIED: (_VERMILLION, "--"),
}


def picture(base: dict[str, Law], repetition: dict[str, Law], runs: Runs) -> Figure:
    """Left: optimal size and tokens as compute grows. Right: size relative to the law's Chinchilla base."""
    flops = np.geomspace(1e20, max(BUDGETS), 200)
    figure = Figure(figsize=(12.0, 5.2), dpi=120, layout="constrained")
    paths, ratios = figure.subplots(1, 2)
    for name, colour in ((PUBLISHED, _BLUE), (REFIT, _VERMILLION)):
        alone = allocate(base[name], UNIQUE_TOKENS, flops, CONTINUOUS)
        paths.plot(
            alone.tokens,
            alone.params,
            color=colour,
            linestyle=":",
            linewidth=2,
            label=f"Chinchilla, {name} base",
        )
    for label, law in repetition.items():
        colour, style = _LOOK[label]
        alone, best = (allocate(each, UNIQUE_TOKENS, flops, CONTINUOUS) for each in (law.base(), law))
        ratios.plot(
            flops,
            best.params / alone.params,
            color=colour,
            linestyle=style,
            linewidth=2,
            label=DESCRIBED[label],
        )
        if label != TIED:  # its Chinchilla line would be a third one; the ratio says what matters
            paths.plot(
                best.tokens,
                best.params,
                color=colour,
                linestyle=style,
                linewidth=2,
                label=f"D̂, N̂: {DESCRIBED[label]}",
            )
    _finish_paths(paths)
    _finish_ratios(ratios, runs)
    return figure


def _finish_paths(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(4e8, 4e11)
    low, high = axes.get_xlim()
    span = np.geomspace(low, high, 50)
    for budget in BUDGETS:  # all plans that cost the same lie on one line
        axes.plot(span, budget / (FLOPS_PER_PARAM_TOKEN * span), color="grey", linewidth=0.8, alpha=0.7)
        at = 2e11 * (budget / 1e21) ** 0.45  # between the curves
        label = (at, budget / (FLOPS_PER_PARAM_TOKEN * at))
        axes.annotate(
            f" {scientific(budget)} FLOPs", label, color="#555555", fontsize=8, ha="left", va="bottom"
        )
    axes.set_xlim(low, high)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    above = axes.secondary_xaxis(
        "top",
        functions=(
            lambda tokens: np.asarray(tokens) / UNIQUE_TOKENS,
            lambda epochs: np.asarray(epochs) * UNIQUE_TOKENS,
        ),
    )
    above.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    above.set_xlabel(f"epochs over {short(UNIQUE_TOKENS)} unique tokens")
    axes.set_xlabel("training tokens")
    axes.set_ylabel("parameters")
    axes.grid(alpha=0.25)
    axes.legend(framealpha=1, edgecolor="none", fontsize=8.5, loc="upper left")


def _finish_ratios(axes: Axes, runs: Runs) -> None:
    largest = FLOPS_PER_PARAM_TOKEN * float(np.exp(np.max(runs.ln_params + runs.ln_tokens)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=1)
    axes.axvline(largest, color="grey", linewidth=0.8)
    low, high = axes.get_ylim()
    axes.text(
        largest * 0.93,
        low * 1.03,
        "largest run of the table",
        rotation=90,
        fontsize=8,
        color="#555555",
        ha="right",
    )
    axes.set_ylim(low, high * 1.15)
    ticks = [0.2, 0.3, 0.5, 0.7, 1.0, 1.2]
    axes.yaxis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_ticks([], minor=True)
    axes.set_xlabel("compute (FLOPs)")
    axes.set_ylabel("parameters relative to Chinchilla on the same base")
    axes.set_title(
        "above 1: larger model, fewer epochs; below 1: smaller model, more epochs", loc="left", fontsize=10
    )
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8.5, loc="lower left", title="D̂, N̂ law", alignment="left")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Refit the 182 public C4 runs; print the tables and draw the picture."
    )
    parser.add_argument(
        "table", nargs="?", default=TABLE, help="the public run table, a CSV file (see results.md)"
    )
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw the picture")
    given = parser.parse_args(arguments)
    try:
        runs = read(given.table)
        base, repetition = laws(runs)
    except InvalidInput as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    for part in report(base, repetition, runs):
        print("\n".join(part), end="\n\n")
    picture(base, repetition, runs).savefig(given.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
