"""`planner calibrate report`: one self-contained HTML page about a calibration, or about a whole study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import Rows, output_option, row_options
from calibration.commands.output import check_output, progress_bar, write_text
from planner.errors import InvalidInput
from planner.shell import Command

if TYPE_CHECKING:
    import pandas as pd

    from planner.calibration_files import Calibration


@click.command(cls=Command)
@click.argument("subject", metavar="CALIBRATION|STUDY/")
@click.option(
    "--calibration", metavar="LAW.json", help="The laws of a study's directory [default: fitted to it]."
)
@click.option(
    "--runs", metavar="RUNS.csv", help="The runs it was fitted on: adds the pictures that show them."
)
@row_options()
@click.option(
    "--ud",
    metavar="TOKENS",
    help="Unique tokens of the allocation [default: the middle of what was fitted on].",
)
@click.option(
    "--law",
    metavar="FORM",
    help="Law of the allocation and the parameter clouds [default: the recommended one].",
)
@click.option(
    "--suite", metavar="SUITE", help="Downstream results of a study that were evaluated with this --suite."
)
@click.option(
    "--limit",
    type=int,
    metavar="N",
    help="Downstream results of a study that were evaluated with this --limit.",
)
@output_option("FILE.html", "Where to write [default: the calibration's name, in the current directory].")
def report(subject: str, **given: Any) -> None:
    """Write one HTML page about a calibration (a file, or a shipped name), with pictures.

    The directory of a study adds what was trained, which law's prescriptions won, the weight-decay crossover,
    and downstream results where `planner evaluate` has some.

    \b
    Example:
      planner calibrate report my.json --runs runs.csv -o report.html
      planner calibrate report study/ --calibration law.json -o report.html
    """
    from calibration.studies.directory import is_study
    from planner.calibration_files import shipped_names

    asked = _Asked(**given)
    if is_study(subject) or (Path(subject).is_dir() and subject not in shipped_names()):
        _of_study(subject, asked)
    elif Path(subject).exists() or subject in shipped_names():
        _of_calibration(subject, asked)
    else:
        raise InvalidInput(
            f"there is neither a calibration nor a study's directory {subject!r}; "
            f"shipped calibrations are {', '.join(shipped_names())}."
        )


@dataclass(frozen=True)
class _Asked:
    """What the report shall be about and show."""

    calibration: str | None
    runs: str | None
    rows: Rows
    ud: str | None
    law: str | None
    suite: str | None
    limit: int | None
    output: str | None


def _of_calibration(subject: str, asked: _Asked) -> None:
    from calibration.reports.report import report as build
    from planner.calibration_files import Calibration

    for option in ("calibration", "suite", "limit"):
        if getattr(asked, option) is not None:
            raise InvalidInput(f"goes with the directory of a study, and {subject} is none.", field=option)
    target = asked.output if asked.output is not None else f"{Path(subject).stem or 'report'}.html"
    check_output(target, subject, asked.runs)
    known = Calibration.load(subject)
    table = None if asked.runs is None else asked.rows.of(asked.runs)
    if table is not None:
        _warn_of_other_runs(known, table)
    with progress_bar("report") as progress:
        text = build(known, table, ud=asked.ud, law=asked.law, progress=progress)
    _write(target, text)


def _of_study(folder: str, asked: _Asked) -> None:
    from calibration.fitting.fit import fit
    from calibration.reports.report import report as build
    from calibration.reports.study_report import opening, sections
    from calibration.studies.directory import open_directory
    from calibration.studies.provenance import origin_of
    from planner.calibration_files import Calibration

    if asked.runs is not None:
        raise InvalidInput(
            "are those of the study when its directory is given; leave the option out.", field="runs"
        )
    directory, name = open_directory(folder), Path(folder).resolve().name
    target = asked.output if asked.output is not None else f"{name}.html"
    check_output(target, asked.calibration)
    table = asked.rows.of(folder, weight_decay_is_choice=True)
    evaluated = {key: value for key in ("suite", "limit") if (value := getattr(asked, key)) is not None}
    makers, origin = sections(directory, **evaluated), origin_of(directory)
    with progress_bar("report") as progress:
        if asked.calibration is not None:
            known = Calibration.load(asked.calibration)
        else:
            known = fit(table, origin=origin, name=name, source=f"fitted to {name}", progress=progress)
        how: dict[str, Any] = {"ud": asked.ud, "law": asked.law, "sections": makers, "progress": progress}
        how |= {"opening": opening(directory, known, origin), "title": origin.title or name}
        text = build(known, table, **how)
    _warn_of_other_runs(known, table)
    _write(target, text)


def _write(target: str, text: str) -> None:
    write_text(target, text)
    click.echo(f"Written to {target} ({len(text.encode()) / 1e6:.1f} MB).")


def _warn_of_other_runs(known: Calibration, table: pd.DataFrame) -> None:
    """One line on stderr for each weight decay at which the law was fitted to another number of runs."""
    import numpy as np

    for setting in known.settings:
        given = int(np.isclose(table["weight_decay"], setting.weight_decay, rtol=1e-9, atol=1e-12).sum())
        fitted = setting.fitted_on.runs
        if fitted is not None and given not in (0, fitted):
            click.echo(
                f"Warning: {given} runs are given at weight decay {setting.weight_decay:g}, the law was "
                f"fitted to {fitted}; "
                f"the same --max-epochs and --where as for the fit would do.",
                err=True,
            )
