"""`planner calibrate report`: one self-contained HTML page about a calibration, or about a whole study."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pandas as pd

from calibration.commands.common import (
    Command,
    Plots,
    Rows,
    as_typed,
    check_output,
    draw,
    output_option,
    plot_option,
    progress_bar,
    row_options,
    write_text,
)
from calibration.fitting.runs.tables import Origin
from calibration.fitting.two_phase import Method
from calibration.studies.directory import is_study, open_directory
from calibration.studies.fit import fit_laws
from planner.calibration import Calibration, shipped_names
from planner.cli import option
from planner.inputs import InvalidInput, compute, count, number


@click.command(cls=Command)
@click.argument("subjects", metavar="CALIBRATION|STUDY/", nargs=-1, required=True)
@option("--calibration", "The laws of a study's directory [default: fitted to it].", "LAW.json")
@option("--runs", "The runs it was fitted on: adds the pictures that show them.", "RUNS.csv")
@row_options()
@option("--ud", "Unique tokens of the plan shown [default: the largest corpus that was repeated].", "TOKENS")
@option("--flops", "Compute of the plan shown [default: the largest budget of the runs].", "FLOPS")
@option("--law", "Law of the plan and the parameter clouds [default: what is recommended].", "FORM")
@option("--suite", "Downstream results of a study that were evaluated with this --suite.", "SUITE")
@option("--limit", "Downstream results of a study that were evaluated with this --limit.", "N", type=int)
@plot_option
@output_option(
    "FILE.html",
    "Where to write [default: the calibration's name, in the current directory; nowhere with --plot].",
)
def report(subjects: tuple[str, ...], **given: Any) -> None:
    """Write one HTML page about a calibration (a file, or a shipped name), with pictures.

    The directory of a study adds what was trained, which law's prescriptions won, the weight-decay crossover,
    and downstream results where `planner evaluate` has some. --runs are read as they were for the fit:
    --columns, --where and the like, which the calibration keeps, need not be said again. --plot draws single
    pictures instead; that of the quality of fits may be of several calibrations.

    \b
    Example:
      planner calibrate report my.json --runs runs.csv -o report.html
      planner calibrate report my.json --runs runs.csv --ud 250M --flops 5e18 -o report.html
      planner calibrate report study/ --calibration law.json -o report.html
      planner calibrate report my.json --runs runs.csv --plot grid=grid.png --ud 65536
      planner calibrate report fineweb-llama2 c4-gpt2 --plot quality=quality.png
    """
    asked, subject = _Asked(**given), subjects[0]
    # A study's directory may have the name of a shipped calibration, which runs that are given belong to.
    known = subject in shipped_names() and (asked.runs is not None or not is_study(subject))
    if asked.output is None and asked.plots:
        _draw(subjects, asked, of_study=is_study(subject) and not known)
    elif len(subjects) > 1:
        raise InvalidInput(f"a report is about one calibration; got {len(subjects)}.")
    elif Path(subject).is_dir() and not known:
        _of_study(subject, asked)
    elif Path(subject).exists() or known:
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
    flops: str | None
    plots: Plots
    output: str | None


def _draw(subjects: tuple[str, ...], asked: _Asked, of_study: bool) -> None:
    """Pictures alone, of calibrations and the runs of the first, or of a study."""
    table = None
    if not of_study:
        known = [Calibration.load(name) for name in subjects]
        if asked.runs is not None:
            rows = _as_fitted(asked.rows, known[0])
            table = rows.of(asked.runs, weight_decay_is_choice=True).table
    else:
        table = asked.rows.of(subjects[0], weight_decay_is_choice=True).table
        own = asked.calibration
        known = [fit_laws(table, Origin(), Method(bootstrap=0)) if own is None else Calibration.load(own)]
    _pictures(known, table, asked)


def _of_calibration(subject: str, asked: _Asked) -> None:
    for name in ("calibration", "suite", "limit"):
        if getattr(asked, name) is not None:
            raise InvalidInput(f"goes with the directory of a study, and {subject} is none.", field=name)
    target = asked.output if asked.output is not None else f"{Path(subject).stem or 'report'}.html"
    check_output(target, subject, asked.runs)
    known, table = Calibration.load(subject), None
    if asked.runs is not None:
        rows = _as_fitted(asked.rows, known)
        table = rows.of(asked.runs, weight_decay_is_choice=bool(asked.plots)).table
    _write(target, known, table, asked)


def _as_fitted(rows: Rows, known: Calibration) -> Rows:
    """What was said of the rows, and what was said of them for the fit and is not said now."""
    reading = getattr(known, "reading", None)
    kept = {
        name: value
        for name, value in (reading.items() if isinstance(reading, dict) else ())
        if name in vars(rows) and not getattr(rows, name)
    }
    if kept:
        said = [
            as_typed(name) + ("" if value is True else f" {_typed(value)}") for name, value in kept.items()
        ]
        click.echo(f"Read as for the fit: {' '.join(said)}", err=True)
    return replace(rows, **kept)


def _typed(value: Any) -> str:
    """What is typed in a shell for a value."""
    pairs = value.items() if isinstance(value, dict) else ()
    text = ",".join(f"{ours}={theirs}" for ours, theirs in pairs) if pairs else value
    return shlex.quote(f"{text:g}" if isinstance(text, float) else str(text))


def _of_study(folder: str, asked: _Asked) -> None:
    from calibration.reports.study_report import mismatch, opening, sections

    if asked.runs is not None:
        raise InvalidInput(
            "are those of the study when its directory is given; leave the option out.", field="runs"
        )
    directory, name = open_directory(folder), Path(folder).resolve().name
    target = asked.output if asked.output is not None else f"{name}.html"
    check_output(target, asked.calibration)
    table, origin, _ = asked.rows.of(folder, weight_decay_is_choice=True)
    evaluated = {key: value for key in ("suite", "limit") if (value := getattr(asked, key)) is not None}
    makers = sections(directory, **evaluated)
    if asked.calibration is not None:
        known = Calibration.load(asked.calibration)
    else:
        with progress_bar("fitting") as progress:
            known = fit_laws(
                table, origin, Method(), name=name, source=f"fitted to {name}", progress=progress
            )
    how = {"opening": opening(directory), "warnings": mismatch(directory, known, origin)}
    _write(target, known, table, asked, sections=makers, title=origin.title or name, **how)


def _write(target: str, known: Calibration, table: pd.DataFrame | None, asked: _Asked, **how: Any) -> None:
    """The page, and the pictures next to it."""
    from calibration.reports.report import other_runs
    from calibration.reports.report import report as build

    for text in other_runs(known, table):
        click.echo(f"Warning: {text}; the same --max-epochs and --where as for the fit would do.", err=True)
    with progress_bar("report") as progress:
        how |= {"ud": asked.ud, "flops": asked.flops, "law": asked.law}
        text = build(known, table, progress=progress, **how)
    write_text(target, text)
    click.echo(f"Written to {target} ({len(text.encode()) / 1e6:.1f} MB).")
    _pictures([known], table, asked)


def _pictures(known: Sequence[Calibration], runs: pd.DataFrame | None, asked: _Asked) -> None:
    if asked.plots:
        decay = asked.rows.weight_decay
        draw(
            asked.plots,
            known,
            runs,
            weight_decay=None if decay is None else number(decay, "weight_decay", positive=False),
            ud=None if asked.ud is None else count(asked.ud, "ud"),
            flops=None if asked.flops is None else compute(asked.flops, "flops"),
        )
