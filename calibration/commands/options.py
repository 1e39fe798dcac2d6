"""Options that several commands have: declared once, and handed to each command as one value."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from planner.laws import FORMS, STANDARD

if TYPE_CHECKING:
    import pandas as pd

_Command = Callable[..., Any]


def option(names: str, text: str, metavar: str | None = None, **how: Any) -> Callable[[_Command], _Command]:
    """An option by its names, what it is and what its value is called; its default is shown."""
    how = {"show_default": "default" in how, **how}
    return click.option(*names.split(), metavar=metavar, help=text, **how)


def options_as(
    kind: type[Any], name: str, *options: Callable[[_Command], _Command]
) -> Callable[[_Command], _Command]:
    """A decorator that adds these options to a command, which gets them as one `kind` called `name`.

    `kind` is a dataclass whose fields are the options' names.
    """
    fields = [field.name for field in dataclasses.fields(kind)]

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def gathering(**values: Any) -> Any:
            value = kind(**{field: values.pop(field) for field in fields})
            return command(**values, **{name: value})

        made: _Command = gathering
        for add in reversed(options):
            made = add(made)
        return made

    return decorate


@dataclass(frozen=True)
class Rows:
    """Which rows of a run table are used, and the weight decay of those that do not say theirs."""

    max_epochs: str | None = None
    where: str | None = None
    weight_decay: str | None = None
    columns: str | None = None
    pattern: str | None = None
    drop_missing: bool = False

    def of(self, path: str, *, weight_decay_is_choice: bool = False) -> pd.DataFrame:
        """These rows of a table or of a study's directory; what was noticed on the way goes to stderr."""
        from calibration.studies.sources import read_runs

        table = read_runs(path, weight_decay_is_choice=weight_decay_is_choice, **vars(self))
        print_table_warnings(table)
        return table


def print_table_warnings(table: pd.DataFrame) -> None:
    """How a table was read and what looks wrong in it, a line each, on stderr; options as they are typed."""
    from calibration.fitting.runs.tables import warnings_of

    for note in warnings_of(table, as_typed):
        text = f"{note.text[0].upper()}{note.text[1:]}"
        click.echo(f"{'Warning: ' if note.warns else ''}{text}.", err=True)


def as_typed(field: str) -> str:
    """What is typed in a shell for a field."""
    return f"--{field.replace('_', '-')}"


def row_options(
    runs: str = "runs", weight_decay: str = "Weight decay of runs whose table does not say it."
) -> Callable[[_Command], _Command]:
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


def law_options(what: str, default: str = "") -> Callable[[_Command], _Command]:
    """`--law`, which may be repeated, as `laws`; "all" is known unless the command has its own default."""
    usual = default or ", ".join(STANDARD)
    every = "" if default else "; all: every one"
    text = f"{what}; may be repeated [default: {usual}]: {', '.join(FORMS)}{every}."
    return option("--law laws", text, "FORM", multiple=True, callback=None if default else _every)


def _every(context: click.Context, option: click.Parameter, laws: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(FORMS) if "all" in laws else laws


def output_option(metavar: str, text: str) -> Callable[[_Command], _Command]:
    """`-o`, as `output`."""
    return option("-o --output --out", text, metavar)
