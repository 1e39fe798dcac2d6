"""`planner calibrate sweep`: train every run of a study that is not trained yet."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import option
from calibration.commands.output import factor, print_json
from calibration.commands.training import Training, fail_with, interruptible, print_totals, training_options
from planner.cli import Command, json_option
from planner.inputs import scientific, short
from planner.show.terminal import print_table

if TYPE_CHECKING:
    from calibration.fitting.design.expected_information import ExpectedInformation
    from calibration.studies.expense import Expense
    from calibration.studies.study import Study, StudyRun


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
    from calibration.studies import directory as directories

    plan = training.study(study)
    folder = training.folder(plan)
    if training.dry_run:
        directories.check_recipe(plan, folder.path)
        missing = directories.unfinished(folder, plan.runs)
        target = {"target_ud": target_ud, "target_flops": target_flops}
        _dry_run(plan, missing, training.expenses(missing, folder), target, as_json)
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


def _dry_run(
    plan: Study, missing: Sequence[StudyRun], takes: Sequence[Expense], target: dict[str, Any], as_json: bool
) -> None:
    import pandas as pd

    from calibration.fitting.design.expected_information import expected_information
    from calibration.studies.expense import rows

    listed = rows(plan.runs, {run.name for run in plan.runs} - {run.name for run in missing})
    foreseen = expected_information(pd.DataFrame(listed), **target)
    if as_json:
        facts: dict[str, Any] = {
            "study": plan.name,
            "runs": listed,
            "missing": len(missing),
            "flops": sum(run.flops for run in missing),
        }
        facts["engines"] = [expense.as_dict() for expense in takes]
        print_json(facts | {"expected_information": [one.as_dict() for one in foreseen]})
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
            for row in listed
        ],
    )
    print_totals(plan.runs, missing, takes)
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
