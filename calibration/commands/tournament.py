"""`planner calibrate tournament`: every law form beyond the runs that it was fitted on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.commands.options import Rows, law_options, row_options
from calibration.commands.output import print_json, progress_bar, write_text
from planner.errors import InvalidInput
from planner.laws import FORMS
from planner.shell import Command, json_option
from planner.terminal import print_table

if TYPE_CHECKING:
    import pandas as pd

    from calibration.fitting.tournament import Tournament

_CONDITION = "::"


@click.command(cls=Command)
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@row_options()
@law_options("A law form to try", "all")
@click.option(
    "--locked", is_flag=True, help="Fit the base law first and lock it, instead of everything at once."
)
@click.option(
    "-o", "--out", "output", metavar="DIR", help="Write leaderboard.html, .png, .csv and .json there."
)
@json_option
def tournament(
    tables: tuple[str, ...],
    rows: Rows,
    laws: tuple[str, ...],
    locked: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Fit every law form to a part of each TABLE and try it beyond, by size, compute, epochs and data.

    TABLE is a run table, NAME=TABLE to call it something, and TABLE::CONDITION for some of its rows. The
    tool's own choice, an average of forms, is weighed from the part that is seen and from the other tables.

    \b
    Example:
      planner calibrate tournament runs.csv
      planner calibrate tournament "small=runs.csv::epochs <= 16" other.csv --weight-decay 0.1 -o tournament
    """
    from calibration.fitting.tournament import tournament as play

    if output is not None and Path(output).exists() and not Path(output).is_dir():
        raise InvalidInput(f"cannot write to {output}: it is a file; the name of a folder would do.")
    read = _tables(tables, rows)
    with progress_bar("fitting") as progress:
        result = play(read, laws=laws or FORMS, joint=not locked, progress=progress)
    if as_json:
        print_json(result.as_dict())
    else:
        _print(result)
    if output is not None:
        _write(result, Path(output))
        if not as_json:
            click.echo(
                f"Written to {output}: leaderboard.html, leaderboard.png, leaderboard.csv, leaderboard.json"
            )


def _tables(given: tuple[str, ...], rows: Rows) -> dict[str, pd.DataFrame]:
    """The tables by name, each with its own condition."""
    found: dict[str, pd.DataFrame] = {}
    for text in given:
        place, _, condition = text.partition(_CONDITION)
        name, named, path = place.partition("=")
        path, name = (path, name.strip()) if named else (place, Path(place).stem)
        if name in found:
            raise InvalidInput(f"two tables are called {name}; NAME={path} would tell them apart.")
        both = [part for part in (rows.where, condition.strip()) if part]
        where = " and ".join(f"({part})" for part in both) if len(both) > 1 else "".join(both) or None
        # A weight decay is that of the tables that do not say theirs; others may.
        found[name] = replace(rows, where=where).of(path, weight_decay_is_choice=True)
    return found


def _print(result: Tournament) -> None:
    from calibration.reports.tournament import choices, leaderboard, matches

    click.echo(
        "Beyond the runs that were fitted: error over the smallest of its match, geometric mean, and mean."
    )
    print_table(*leaderboard(result))
    click.echo()
    click.echo("Error of ln(loss) on the repeated runs beyond each cut, and its range over three cuts.")
    print_table(*matches(result, _best(result)))
    if any(match.cut.choices for match in result.matches):
        click.echo()
        click.echo(
            "Mean regret in nats of choices among runs of equal compute beyond the cut, and its range."
        )
        print_table(*choices(result, _best(result)))


def _best(result: Tournament) -> tuple[str, ...]:
    """The entrants that a terminal has room for: the tool's choice, the default law and the best forms."""
    from calibration.fitting.tournament import CHOICE

    ranked = [entrant for entrant, *_ in result.standing() if entrant != CHOICE]
    usual = [form for form in ("additive_4p",) if form in ranked]
    return tuple(dict.fromkeys([CHOICE, *usual, *ranked[:3]]))


def _write(result: Tournament, folder: Path) -> None:
    import json

    from calibration.reports.tournament import picture, report

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write to {folder}: {error.strerror}.") from None
    write_text(
        str(folder / "leaderboard.json"), json.dumps(result.as_dict(), indent=1, allow_nan=False) + "\n"
    )
    write_text(str(folder / "leaderboard.csv"), result.table().to_csv(index=False, float_format="%.6g"))
    write_text(str(folder / "leaderboard.html"), report(result))
    picture(result).savefig(folder / "leaderboard.png", dpi=120)
