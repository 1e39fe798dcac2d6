"""The tournament of law forms: every form beyond the runs that it was fitted on.

    python studies/tournament/make.py runs.csv                                   # on run tables of your own
    python studies/tournament/make.py "small=runs.csv::epochs <= 16" other.csv -o tournament
    python studies/tournament/make.py                             # writes calibration/fitting/skills.json

With tables it plays the tournament (`tournament.py`). Without, it writes what the rest of the tool reads of
the one in `leaderboard.csv` of this folder: for every direction and table (the three filters of C4 are one)
each form's error over the smallest of its match, at the cut that counts. Forms of the study that are not
shipped (`forms.py`) took part in the matches and are not kept.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pandas as pd
from leaderboard import choices, leaderboard, matches, picture, report
from tournament import CHOICE, DIRECTIONS, Tournament, tournament

from calibration.commands.common import (
    Command,
    Rows,
    law_options,
    print_json,
    progress_bar,
    row_options,
    write_text,
)
from planner.cli import json_option
from planner.inputs import InvalidInput
from planner.laws import FORMS
from planner.show.terminal import print_table

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "calibration" / "fitting" / "skills.json"
_CONDITION = "::"


@click.command(cls=Command)
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@row_options()
@law_options("A law form to try", "all")
@click.option(
    "--locked", is_flag=True, help="Fit the base law first and lock it, instead of everything at once."
)
@click.option(
    "-o", "--out", "output", metavar="DIR", help="Write leaderboard.html, .png, .csv and .json there."
)
@json_option
def main(
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
    Without tables, calibration/fitting/skills.json is written from the leaderboard of this folder.
    """
    if not tables:
        write_skills()
        return
    if output is not None and Path(output).exists() and not Path(output).is_dir():
        raise InvalidInput(f"cannot write to {output}: it is a file; the name of a folder would do.")
    read = _tables(tables, rows)
    with progress_bar("fitting") as progress:
        result = tournament(read, laws=laws or FORMS, joint=not locked, progress=progress)
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
        found[name] = replace(rows, where=where).of(path, weight_decay_is_choice=True).table
    return found


def _print(result: Tournament) -> None:
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
    ranked = [entrant for entrant, *_ in result.standing() if entrant != CHOICE]
    usual = [form for form in ("additive_4p",) if form in ranked]
    return tuple(dict.fromkeys([CHOICE, *usual, *ranked[:3]]))


def _write(result: Tournament, folder: Path) -> None:
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


def write_skills() -> None:
    """What the rest of the tool reads of the tournament."""
    facts = {
        "what": "each form's error beyond the runs that it was fitted on, over the smallest of its match",
        "source": "studies/tournament/leaderboard.csv",
        "over_best": over_best(pd.read_csv(HERE / "leaderboard.csv")),
    }
    TARGET.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def over_best(board: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """By direction and table, geometric mean over tables that share their runs."""
    counted = board[board["law"] != CHOICE]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for direction, share in DIRECTIONS.items():
        matches = counted[(counted["direction"] == direction) & np.isclose(counted["share"], share)].copy()
        matches["family"] = matches["table"].str.split().str[0]
        best = matches.groupby(["table", "weight_decay"])["error"].transform("min")
        matches["behind"] = np.log(matches["error"] / best)
        found[direction] = {}
        for (family, decay), rows in matches.groupby(["family", "weight_decay"]):
            mean = np.exp(rows.groupby("law", sort=False)["behind"].mean())
            name = f"{family}, weight decay {decay:g}"
            found[direction][name] = {
                str(law): float(f"{value:.4g}") for law, value in mean.items() if law in FORMS
            }
    return found


if __name__ == "__main__":
    main()
