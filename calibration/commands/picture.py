"""`planner calibrate picture`: one picture of the evidence for a law, to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import Rows, row_options
from calibration.commands.output import check_output
from planner.errors import InvalidInput
from planner.shell import Command

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from planner.calibration_files import Calibration

_OF_RUNS = ("grid", "residuals", "fit")
_ENDINGS = (".png", ".svg", ".pdf")


@click.command(cls=Command)
@click.argument("kind", type=click.Choice([*_OF_RUNS, "quality"]))
@click.argument("subjects", nargs=-1, required=True, metavar="RUNS.csv | CALIBRATION...")
@click.option(
    "--calibration", metavar="LAW.json", help="The laws that are drawn [default: fitted to the runs]."
)
@row_options(weight_decay="Which of the runs' weight decays [default: the smallest].")
@click.option("--ud", metavar="TOKENS", help="grid: the unique tokens [default: those of most runs].")
@click.option(
    "--flops", metavar="FLOPS", help="grid: the compute of the allocation [default: the largest run's]."
)
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to (.png, .svg or .pdf).")
def picture(
    kind: str, subjects: tuple[str, ...], calibration: str | None, rows: Rows, output: str, **at: Any
) -> None:
    """Draw the evidence for a law: from a table of runs its grid, the residuals of its base law, or predicted
    against observed loss (fit); from one or more calibrations how well every form fits (quality).

    \b
    Example:
      planner calibrate picture grid runs.csv --calibration my.json -o grid.png
      planner calibrate picture residuals runs.csv -o residuals.png
      planner calibrate picture quality fineweb-llama2 c4-gpt2 -o quality.png
    """
    if Path(output).suffix.lower() not in _ENDINGS:
        raise InvalidInput(f"must name a .png, .svg or .pdf file; got {output!r}.", field="output")
    check_output(output, *subjects)
    if kind == "quality":
        figure = _of_calibrations(subjects)
    else:
        if len(subjects) != 1:
            raise InvalidInput(f"one table of runs makes the picture {kind}; got {len(subjects)}.")
        figure = _of_runs(kind, subjects[0], calibration, rows, at)
    try:
        figure.savefig(output, dpi=150)
    except OSError as error:
        raise InvalidInput(f"cannot write {output}: {error.strerror or error}.") from None
    click.echo(f"Picture written to {output}.")


def _of_calibrations(names: tuple[str, ...]) -> Figure:
    from calibration.reports.evidence_plots import quality
    from planner.calibration_files import Calibration

    known = [Calibration.load(name) for name in names]
    return quality([(f"{one.name}, λ = {s.weight_decay:g}", s) for one in known for s in one.settings])


def _of_runs(kind: str, path: str, calibration: str | None, rows: Rows, at: dict[str, Any]) -> Figure:
    from calibration.reports import evidence_plots, fit_plots
    from planner.units import compute, count

    table = rows.of(path, weight_decay_is_choice=True)
    decay = float(table["weight_decay"].min())
    table = table[table["weight_decay"] == decay]
    setting = _laws(calibration, table).setting(decay)
    if kind == "grid":
        ud = None if at["ud"] is None else count(at["ud"], "ud")
        flops = None if at["flops"] is None else compute(at["flops"], "flops")
        return evidence_plots.grid(setting, table, ud, flops)
    if kind == "residuals":
        return evidence_plots.residuals(setting, table)
    return fit_plots.predicted_observed(setting, table)


def _laws(calibration: str | None, table: pd.DataFrame) -> Calibration:
    from calibration.fitting.fit import fit
    from calibration.fitting.method import Method
    from planner.calibration_files import Calibration

    return fit(table, Method(bootstrap=0)) if calibration is None else Calibration.load(calibration)
