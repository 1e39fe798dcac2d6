"""What several commands share: options, each declared once and handed to commands as one value; files, which
are checked before any work; a bar while it goes on; JSON, tables and pictures.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pandas as pd

from calibration.fitting.runs.tables import warnings_of
from calibration.studies.fit import Source, open_source
from planner import cli
from planner.calibration import Calibration
from planner.cli import option
from planner.inputs import InvalidInput
from planner.laws import FORMS, STANDARD
from planner.show.terminal import print_table

_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]
_TOGETHER = "options_as"  # an attribute of a command's function

# -- options


def output_option(metavar: str, text: str) -> _Decorator:
    """`-o`, as `output`."""
    return option("-o --output --out", text, metavar)


def law_options(what: str, default: str = "") -> _Decorator:
    """`--law`, which may be repeated, as `laws`; "all" is known unless the command has its own default."""
    usual = default or ", ".join(STANDARD)
    every = "" if default else "; all: every one"
    text = f"{what}; may be repeated [default: {usual}]: {', '.join(FORMS)}{every}."

    def chosen(context: click.Context, option: click.Parameter, laws: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(FORMS) if "all" in laws and not default else laws

    return option("--law laws", text, "FORM", multiple=True, callback=chosen)


def options_as(kind: type[Any], name: str, *options: _Decorator) -> _Decorator:
    """A decorator that adds these options to a `Command`, which gets them as one `kind` called `name`.

    `kind` is a dataclass whose fields are the options' names.
    """

    def decorate(command: _Command) -> _Command:
        for add in reversed(options):
            command = add(command)
        command.__dict__.setdefault(_TOGETHER, {})[name] = kind
        return command

    return decorate


class Command(cli.Command):
    """A command that gets options that belong together as one value, see `options_as`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for name, kind in vars(self.callback).get(_TOGETHER, {}).items():
            fields = [field.name for field in dataclasses.fields(kind)]
            ctx.params[name] = kind(**{field: ctx.params.pop(field) for field in fields})
        return rest


@dataclass(frozen=True)
class Rows:
    """Which rows of a run table are used, and the weight decay of those that do not say theirs."""

    max_epochs: str | None = None
    where: str | None = None
    weight_decay: str | None = None
    columns: str | None = None
    pattern: str | None = None
    drop_missing: bool = False

    def of(self, path: str, *, weight_decay_is_choice: bool = False) -> Source:
        """These rows of a table or of a study's directory. How it was read and what looks wrong in it goes to
        stderr, a line each.
        """
        source = open_source(path, weight_decay_is_choice=weight_decay_is_choice, **vars(self))
        for warning in warnings_of(source.table, as_typed):
            text = f"{warning.text[0].upper()}{warning.text[1:]}"
            print_note(f"{'Warning: ' if warning.warns else ''}{text}.")
        return source


def as_typed(field: str) -> str:
    """What is typed in a shell for a field."""
    return f"--{field.replace('_', '-')}"


def row_options(
    runs: str = "runs", weight_decay: str = "Weight decay of runs whose table does not say it."
) -> _Decorator:
    """The options of `Rows`, as `rows`."""
    condition = f'Use the {runs} for which this holds: "kind == base and epochs <= 64".'
    return options_as(
        Rows,
        "rows",
        option("--max-epochs", f"Leave out {runs} beyond so many epochs.", "N"),
        option("--where", condition, "CONDITION"),
        option("--weight-decay", weight_decay, "λ"),
        option(
            "--columns",
            "Which column is which, where that is not obvious: "
            "params=config.n_params,loss=summary/val_loss; other units: params=size*1e6,loss=ln(ppl).",
            "OURS=THEIRS,...",
        ),
        option(
            "--pattern",
            "Settings inside run names: '{params}_{tokens}_{epochs}ep' reads 1b5_30b_4ep.",
            "PATTERN",
        ),
        option(
            "--drop-missing",
            "Leave out runs that crashed, diverged or lack a setting, and say how many.",
            is_flag=True,
        ),
    )


# -- output


def check_output(path: str | None, *inputs: str | None) -> None:
    """Refuse, before any work, an output that is one of the inputs or that cannot be written."""
    if path is None:
        return
    target = Path(path)
    for given in filter(None, inputs):
        if target.exists() and os.path.exists(given) and os.path.samefile(given, target):
            raise InvalidInput(
                f"cannot write {path}: it is the input {given}, which is never changed; another name would "
                f"do."
            )
    folder = target.resolve().parent
    for wrong, reason in (
        (not path.strip() or target.is_dir(), "it is a folder; a file name would do"),
        (not folder.is_dir(), "its folder does not exist"),
        (not os.access(folder, os.W_OK | os.X_OK), "its folder may not be written to"),
        (target.exists() and not os.access(target, os.W_OK), "it exists and may not be written to"),
    ):
        if wrong:
            raise InvalidInput(f"cannot write {path}: {reason}.")


def print_note(text: str) -> None:
    """A sentence on stderr, within the terminal's width; an option stays with its value, to be pasted."""
    width, together = min(shutil.get_terminal_size().columns, 110), "\u00a0"
    text = re.sub(r"(--[a-z-]+) ", rf"\1{together}", text)
    filled = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    click.echo(filled.replace(together, " "), err=True)


def write_text(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from None


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar on stderr, only where somebody is looking; it vanishes when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, allow_nan=False))


def print_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """A table whose rows name their columns; nothing where there are none."""
    if rows:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])


def factor(error: float | None) -> str:
    """A standard error of a size's logarithm as people say it: a factor; flat where there is no best size."""
    return "flat" if error is None else f"x/÷ {math.exp(min(error, 20)):.3g}"


# -- `--plot [KIND=]FILE` of `fit` and `report`: pictures of the evidence for a law

_PLOTS = ("fit", "grid", "residuals", "quality")  # predicted against observed loss; runs; how well forms fit
Plots = list[tuple[str, str]]  # kind and file of each


def _plots(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> Plots:
    plots = []
    for text in given:
        kind, named, path = text.partition("=")
        kind, path = (kind, path) if named and kind in _PLOTS else ("fit", text)
        if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
            raise cli.BadInput(f"{option.opts[0]} must name a .png, .svg or .pdf file; got {path!r}.")
        plots.append((kind, path))
    return plots


plot_option = option(
    "--plot plots",
    f"Draw a picture (.png, .svg or .pdf): {', '.join(_PLOTS)} [default: fit]; may be repeated.",
    "[KIND=]FILE",
    multiple=True,
    callback=_plots,
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
    from calibration.reports import evidence_plots, fit_plots

    for kind, path in plots:
        if kind == "quality":
            settings = [(one.name, setting) for one in calibrations for setting in one.settings]
            studies = [(f"{name}, λ = {setting.weight_decay:g}", setting) for name, setting in settings]
            figure = fit_plots.fit_quality(studies, ("huber", "r2"))
        elif runs is None or len(calibrations) > 1:
            raise InvalidInput(f"{kind} is of one calibration and its ‹runs›.", field="plot")
        else:
            decay = float(runs["weight_decay"].min()) if weight_decay is None else weight_decay
            here = runs[runs["weight_decay"] == decay]
            if not len(here):
                raise InvalidInput(f"{decay:g} is that of no run.", field="weight_decay")
            setting = calibrations[0].setting(decay)
            if kind == "grid":
                figure = evidence_plots.grid(setting, here, ud=ud, flops=flops)
            elif kind == "residuals":
                figure = evidence_plots.residuals(setting, here)
            else:
                figure = fit_plots.predicted_observed(setting, here)
        try:
            figure.savefig(path, dpi=150, facecolor="white")
        except OSError as error:
            raise InvalidInput(f"cannot write {path}: {error.strerror or error}.") from None
        click.echo(f"Picture written to {path}.", err=True)
