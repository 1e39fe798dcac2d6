"""`planner calibrate sweep` and `ensemble`: train every run of a study that is not trained yet, and say what
runs that differ in their seed reach together.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd

from calibration.commands.common import Command, factor, print_json, progress_bar
from calibration.commands.training import DryRun, Training, fail_with, interruptible, training_options
from calibration.fitting.design.proposal import ExpectedInformation, expected_information
from calibration.fitting.members import with_ensemble_law
from calibration.studies import ensembles
from calibration.studies.directory import StudyDirectory
from calibration.studies.ensembles import CELL
from calibration.studies.study import Study, StudyRun
from planner.calibration import Calibration
from planner.cli import json_option, option
from planner.inputs import InvalidInput, scientific, short
from planner.show.terminal import print_table
from trainer.waiting import sleep_while_waiting


@click.command(cls=Command)
@click.argument("study", metavar="STUDY")
@training_options
@option(
    "--target-ud",
    "Unique tokens of the plan whose expected error a dry run gives [default: the most in the study].",
    "TOKENS",
)
@option("--target-flops", "Compute of that plan [default: ten times the dearest run].", "FLOPS")
@json_option
def sweep(
    study: str, training: Training, target_ud: str | None, target_flops: str | None, as_json: bool
) -> None:
    """Train every run of STUDY (a TOML file, or paper, micro or smoke) that is not trained yet.

    Stop it with Ctrl-C and start it again at will: finished runs count once and unfinished ones go on from
    their checkpoints.

    \b
    Example:
      planner calibrate sweep micro --dry-run
      planner calibrate sweep micro
      planner calibrate fit micro -o law.json
    """
    plan = training.study(study)
    folder = training.folder(plan)
    if training.dry_run:
        takes = training.reckoned(plan, plan.runs, folder)
        _dry_run(plan.name, takes, {"target_ud": target_ud, "target_flops": target_flops}, as_json)
        return
    with interruptible():
        progress = training.grid(plan, folder)
    done, trained = len(progress.done), len(progress.trained)
    if as_json:
        facts = {"study": plan.name, "directory": str(folder.path), "runs": len(plan.runs)}
        print_json({**facts, "done": done, "trained": trained, "failed": progress.failed})
    else:
        click.echo(f"{done} of {len(plan.runs)} runs are done, {trained} of them trained now.")
        if not progress.failed:
            click.echo(f"Next: planner calibrate fit {shlex.quote(str(folder.path))} -o law.json")
    fail_with(progress.failed)


def _dry_run(name: str, takes: DryRun, target: dict[str, Any], as_json: bool) -> None:
    facts = takes.facts()
    foreseen = expected_information(pd.DataFrame(facts["runs"]), **target)
    if as_json:
        print_json({"study": name, **facts, "expected_information": [one.as_dict() for one in foreseen]})
        return
    print_table(
        ("run", "params", "unique", "epochs", "λ", "seed", "steps", "FLOPs", ""),
        [
            (
                row["run"],
                short(row["params"], 3),
                short(row["unique_tokens"]),
                f"{row['epochs']:g}",
                f"{row['weight_decay']:g}",
                str(row["seed"]),
                f"{row['steps']:,}",
                scientific(row["flops"]),
                "done" if row["done"] else "",
            )
            for row in facts["runs"]
        ],
    )
    takes.print_totals()
    _print_expected_information(foreseen)


def _print_expected_information(foreseen: Sequence[ExpectedInformation]) -> None:
    first = foreseen[0]
    click.echo(
        f"\nHow well a plan for {short(first.target_ud)} unique tokens and {scientific(first.target_flops)} "
        f"FLOPs will be known (standard errors, with {first.calibration} as the prior):"
    )
    rows = [
        (
            f"{one.weight_decay:g}",
            str(one.runs),
            f"±{one.loss_error_before:.0%}",
            f"±{one.loss_error:.1%}",
            factor(one.params_error),
        )
        for one in foreseen
    ]
    print_table(("λ", "runs", "its loss now", "its loss then", "its size then"), rows)
    for lacks in dict.fromkeys(one.lacks for one in foreseen if one.lacks):
        decays = ", ".join(f"{one.weight_decay:g}" for one in foreseen if one.lacks == lacks)
        click.echo(f"At weight decay {decays}: {lacks}.")


@click.command(cls=Command)
@click.argument("study", metavar="STUDY")
@training_options
@option("--attach", "A calibration file that gets the law of what members gain.", "FILE")
@json_option
def ensemble(study: str, training: Training, attach: str | None, as_json: bool) -> None:
    """Train every run of STUDY not trained yet, and score ensembles of runs that differ in seed only.

    An ensemble is the mean of its members' probabilities. Its loss with 1, 2, ... members, averaged over
    which they are, is printed and written to ensembles.csv in the study's directory. Where the study has a
    table [distill], one model more learns from the members of each. Like a sweep it may be stopped at any
    time, and goes on where it stopped.

    \b
    Example:
      planner calibrate ensemble study.toml -o members --dry-run
      planner calibrate ensemble study.toml -o members
      planner calibrate ensemble study.toml -o members --attach my.json
    """
    sleep_while_waiting()  # scoring, too, may be done beside other processes
    plan = training.study(study)
    ensembles.check(plan.runs)
    own = None
    if attach is not None:  # looked at before anything is trained
        if not Path(attach).is_file():
            raise InvalidInput(f"must be a calibration file of your own; got {attach!r}.", field="attach")
        own = Calibration.load(attach)
    folder = training.folder(plan)
    if training.dry_run:
        takes = training.reckoned(plan, plan.runs, folder)
        if as_json:
            facts = takes.facts()
            known = {"study": plan.name, "runs": len(plan.runs)}
            print_json(known | {key: facts[key] for key in ("missing", "engines")})
        else:
            _print_cells(ensembles.cells(plan.runs).values())
            takes.print_totals()
            if plan.distill is not None:
                click.echo("Not counted is the model that is distilled from the members of each.")
        return
    with interruptible():
        progress = training.grid(plan, folder)
        with progress_bar("scoring") as told:
            found = ensembles.table(folder, plan.runs, lambda name, done, of: told(name, done / of))
        path = ensembles.write_table(folder, found)
        taught = {} if progress.failed else _distilled(plan, folder, quiet=training.quiet)
    if own is not None and attach is not None:
        with_ensemble_law(own, found, source=plan.title or plan.name).save(attach)
    if as_json:
        facts = {"study": plan.name, "directory": str(folder.path), "runs": len(plan.runs)}
        facts |= {"done": len(progress.done), "failed": progress.failed, "distilled": taught}
        print_json(facts | {"ensembles": found.astype(object).where(found.notna(), None).to_dict("records")})
    else:
        _print_ensembles(found)
        click.echo(f"Wrote {path}.")
        for name, loss in taught.items():
            click.echo(f"Distilled into {name}: loss {loss:.4f}.")
        if attach is not None:
            command = shlex.join(["planner", "plan", "--calibration", attach, "--members", "auto"])
            click.echo(f"{attach} knows what members gain: `{command}`.")
    fail_with(progress.failed)


def _distilled(study: Study, folder: StudyDirectory, *, quiet: bool) -> dict[str, float]:
    """The loss of one model for each ensemble of the study that learnt from its members, where it asks for
    them; trained now or before.
    """
    if study.distill is None:
        return {}
    from trainer.run.loop import train
    from trainer.run.teachers import student

    found = {}
    for name, members in ensembles.cells(study.runs).items():
        if len(members) > 1:
            folders = [str(folder.run_folder(run.name)) for run in members]
            out = folder.path / "distilled" / name
            run = student(folders, study.distill["weight"], study.distill["temperature"], {})
            found[str(out)] = train(run, out, progress=not quiet).loss
    return found


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


def _print_ensembles(found: pd.DataFrame) -> None:
    """A line for each cell, a column for each number of members."""
    most = int(found["members"].max())
    rows = []
    for _, cell in found.groupby(CELL, sort=False):
        params, unique, epochs, decay = (float(cell[name].iloc[0]) for name in CELL[:4])
        losses = dict(zip(cell["members"], cell["loss"], strict=True))
        reached = [f"{losses[size]:.4f}" if size in losses else "" for size in range(1, most + 1)]
        rows.append((short(params, 3), short(unique), f"{epochs:g}", f"{decay:g}", *reached))
    sizes = [f"K = {size}" for size in range(1, most + 1)]
    print_table(("params", "unique", "epochs", "λ", *sizes), rows, left=())
