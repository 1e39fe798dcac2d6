"""`planner calibrate report`: one self-contained HTML page about a calibration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.console import Command, check_output, load_runs, progress_bar, write_text

if TYPE_CHECKING:
    import pandas as pd

    from planner.calibration import Calibration


@click.command(cls=Command)
@click.argument("calibration", metavar="CALIBRATION")
@click.option("--runs", metavar="RUNS.csv", help="The runs it was fitted on: adds the pictures that show them.")
@click.option("--max-epochs", metavar="N", help="Leave out runs beyond so many epochs.")
@click.option("--where", metavar="CONDITION", help="Use the runs for which this holds.")
@click.option("--weight-decay", metavar="λ", help="Weight decay of runs whose table does not say it.")
@click.option("--ud", metavar="TOKENS", help="Unique tokens of the allocation [default: the middle of what was fitted on].")
@click.option("--law", metavar="FORM", help="Law of the allocation and the parameter clouds [default: the recommended one].")
@click.option(
    "-o",
    "--output",
    "--out",
    metavar="FILE.html",
    help="Where to write [default: the calibration's name, in the current directory].",
)
def report(
    calibration: str, runs: str | None, max_epochs: str | None, where: str | None, weight_decay: str | None, ud: str | None,
    law: str | None, output: str | None,
) -> None:  # fmt: skip
    """Write one HTML page about a calibration (a file, or a shipped name): allocation, fit quality, parameters, pictures.

    \b
    Example:
      planner calibrate report my.json --runs runs.csv -o report.html
    """
    from calibration.report import report as build
    from planner.calibration import Calibration

    target = output if output is not None else f"{Path(calibration).stem or 'report'}.html"
    check_output(target, calibration, runs)
    known = Calibration.load(calibration)
    table = None if runs is None else load_runs(runs, max_epochs, where, weight_decay)
    if table is not None:
        _warn_of_other_runs(known, table)
    with progress_bar("report") as progress:
        text = build(known, table, ud=ud, law=law, progress=progress)
    write_text(target, text)
    click.echo(f"Written to {target} ({len(text.encode()) / 1e6:.1f} MB).")


def _warn_of_other_runs(known: Calibration, table: pd.DataFrame) -> None:
    """One line on stderr for each weight decay at which these are not as many runs as the law was fitted to."""
    import numpy as np

    for setting in known.settings:
        given = int(np.isclose(table["weight_decay"], setting.weight_decay, rtol=1e-9, atol=1e-12).sum())
        fitted = setting.fitted_on.runs
        if fitted is not None and given not in (0, fitted):
            click.echo(
                f"Warning: {given} runs are given at weight decay {setting.weight_decay:g}, the law was fitted to {fitted}; "
                f"the same --max-epochs and --where as for the fit would do.",
                err=True,
            )
