"""`planner calibrate ensemble`: train the members of ensembles, and say what they reach together."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.commands.options import option
from calibration.commands.output import print_json, progress_bar
from calibration.commands.training import Training, fail_with, interruptible, print_totals, training_options
from planner.calibration import Calibration
from planner.cli import Command, json_option
from planner.inputs import InvalidInput, short
from planner.show.terminal import print_table

if TYPE_CHECKING:
    import pandas as pd

    from calibration.studies.study import StudyRun


@click.command(cls=Command)
@click.argument("study", metavar="STUDY")
@training_options
@option("--attach", "A calibration file that gets the law of what members gain.", "FILE")
@json_option
def ensemble(study: str, training: Training, attach: str | None, as_json: bool) -> None:
    """Train every run of STUDY not trained yet, and score ensembles of runs that differ in seed only.

    An ensemble is the mean of its members' probabilities. Its loss with 1, 2, ... members, averaged over
    which they are, is printed and written to ensembles.csv in the study's directory. Like a sweep it may be
    stopped at any time, and goes on where it stopped.

    \b
    Example:
      planner calibrate ensemble study.toml -o members --dry-run
      planner calibrate ensemble study.toml -o members
      planner calibrate ensemble study.toml -o members --attach my.json
    """
    from calibration.fitting.members import with_ensemble_law
    from calibration.studies import directory as directories
    from calibration.studies import ensembles
    from trainer.waiting import sleep_while_waiting

    sleep_while_waiting()  # scoring, too, may be done beside other processes
    plan = training.study(study)
    ensembles.check(plan.runs)
    own = None if attach is None else own_file(attach)
    folder = training.folder(plan)
    if training.dry_run:
        directories.check_recipe(plan, folder.path)
        missing = directories.unfinished(folder, plan.runs)
        takes = training.expenses(missing, folder)
        if as_json:
            facts = {"study": plan.name, "runs": len(plan.runs), "missing": len(missing)}
            print_json(facts | {"engines": [expense.as_dict() for expense in takes]})
        else:
            _print_cells(ensembles.cells(plan.runs).values())
            print_totals(plan.runs, missing, takes)
        return
    with interruptible():
        progress = training.grid(plan, folder)
        with progress_bar("scoring") as told:
            found = ensembles.table(folder, plan.runs, lambda name, done, of: told(name, done / of))
        path = ensembles.write_table(folder, found)
    if own is not None and attach is not None:
        with_ensemble_law(own, found, source=plan.title or plan.name).save(attach)
    if as_json:
        facts = {"study": plan.name, "directory": str(folder.path), "runs": len(plan.runs)}
        facts |= {"done": len(progress.done), "failed": progress.failed}
        print_json(facts | {"ensembles": found.astype(object).where(found.notna(), None).to_dict("records")})
    else:
        _print(found)
        click.echo(f"Wrote {path}.")
        if attach is not None:
            command = shlex.join(["planner", "plan", "--calibration", attach, "--members", "auto"])
            click.echo(f"{attach} knows what members gain: `{command}`.")
    fail_with(progress.failed)


def own_file(path: str) -> Calibration:
    """The calibration that is going to be written to, looked at before anything is trained."""
    if not Path(path).is_file():
        raise InvalidInput(f"must be a calibration file of your own; got {path!r}.", field="attach")
    return Calibration.load(path)


def _print_cells(cells: Iterable[Sequence[StudyRun]]) -> None:
    rows = [
        (
            short(members[0].params, 3),
            short(members[0].config.unique_tokens),
            f"{members[0].config.epochs:g}",
            f"{members[0].config.weight_decay:g}",
            str(len(members)),
        )
        for members in cells
    ]
    print_table(("params", "unique", "epochs", "λ", "members"), rows, left=())


def _print(found: pd.DataFrame) -> None:
    """A line for each cell, a column for each number of members."""
    from calibration.studies.ensembles import CELL

    most = int(found["members"].max())
    rows = []
    for _, cell in found.groupby(CELL, sort=False):
        params, unique, epochs, decay = (float(cell[name].iloc[0]) for name in CELL[:4])
        losses = dict(zip(cell["members"], cell["loss"], strict=True))
        reached = [f"{losses[size]:.4f}" if size in losses else "" for size in range(1, most + 1)]
        rows.append((short(params, 3), short(unique), f"{epochs:g}", f"{decay:g}", *reached))
    sizes = [f"K = {size}" for size in range(1, most + 1)]
    print_table(("params", "unique", "epochs", "λ", *sizes), rows, left=())
