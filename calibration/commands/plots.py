"""`--plot [KIND=]FILE` of `fit` and `report`: pictures of the evidence for a law.

From a table of runs its grid, the residuals of its base law, or predicted against observed loss (fit); from
calibrations how well every form fits (quality).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import option
from planner.cli import BadInput
from planner.inputs import InvalidInput

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from planner.calibration import Calibration

KINDS = ("fit", "grid", "residuals", "quality")
_ENDINGS = (".png", ".svg", ".pdf")
Plots = list[tuple[str, str]]  # kind and file of each


def _parsed(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> Plots:
    plots = []
    for text in given:
        kind, named, path = text.partition("=")
        kind, path = (kind, path) if named and kind in KINDS else ("fit", text)
        if Path(path).suffix.lower() not in _ENDINGS:
            raise BadInput(f"{option.opts[0]} must name a .png, .svg or .pdf file; got {path!r}.")
        plots.append((kind, path))
    return plots


plot_option = option(
    "--plot plots",
    f"Draw a picture (.png, .svg or .pdf): {', '.join(KINDS)} [default: fit]; may be repeated.",
    "[KIND=]FILE",
    multiple=True,
    callback=_parsed,
)


def draw(
    plots: Plots,
    calibrations: Sequence[Calibration],
    runs: pd.DataFrame | None,
    *,
    weight_decay: float | None = None,
    ud: float | None = None,
    flops: float | None = None,
) -> None:
    """Draw pictures of calibrations, and of the first one's runs at this weight decay or their smallest."""
    for kind, path in plots:
        if kind == "quality":
            figure = _of_calibrations(calibrations)
        elif runs is None or len(calibrations) > 1:
            raise InvalidInput(f"{kind} is of one calibration and its ‹runs›.", field="plot")
        else:
            decay = float(runs["weight_decay"].min()) if weight_decay is None else weight_decay
            here = runs[runs["weight_decay"] == decay]
            if not len(here):
                raise InvalidInput(f"{decay:g} is that of no run.", field="weight_decay")
            figure = _of_runs(kind, calibrations[0], here, decay, {"ud": ud, "flops": flops})
        try:
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise InvalidInput(f"cannot write {path}: {error.strerror or error}.") from None
        click.echo(f"Picture written to {path}.", err=True)


def _of_calibrations(known: Sequence[Calibration]) -> Figure:
    from calibration.reports.evidence_plots import quality

    return quality([(f"{one.name}, λ = {s.weight_decay:g}", s) for one in known for s in one.settings])


def _of_runs(kind: str, known: Calibration, runs: pd.DataFrame, decay: float, at: dict[str, Any]) -> Figure:
    from calibration.reports import evidence_plots, fit_plots

    setting = known.setting(decay)
    if kind == "grid":
        return evidence_plots.grid(setting, runs, **at)
    return (evidence_plots.residuals if kind == "residuals" else fit_plots.predicted_observed)(setting, runs)
