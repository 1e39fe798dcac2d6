"""`planner tokenise`: make the token files of a study before anything trains on them, on a machine without
GPUs, say; drivers that come later find them.
"""

from __future__ import annotations

from pathlib import Path

import click

from calibration.commands.common import Command, print_json
from calibration.commands.training import Training, interruptible
from calibration.studies import directory
from planner.cli import json_option, option
from planner.inputs import short
from trainer.data.tokens import open_set


@click.command(cls=Command)
@click.argument("study", metavar="STUDY")
@option("-o --out", "Study directory [default: the study's name, in the current directory].", "DIR")
@option("--store", "Where runs are kept while machines share no disk, such as s3://bucket/study.", "URL")
@option("--set changes", "Change a setting of the recipe; may be repeated.", "FIELD=VALUE", multiple=True)
@json_option
def tokenise(study: str, out: str | None, store: str | None, changes: tuple[str, ...], as_json: bool) -> None:
    """Make the token files of STUDY, which all its runs share, and train nothing.

    A sweep does it where nobody has. By itself it needs no GPU, so none waits for it.

    \b
    Example:
      planner tokenise study.toml -o study
      planner calibrate sweep study.toml -o study
    """
    training = Training(out=out, store=store, changes=changes)
    plan = training.study(study)
    folder = training.folder(plan)
    with interruptible():
        directory.begin(plan, folder.path)
        made = directory.prepare(plan.runs, folder)
    facts = open_set(Path(made)).facts
    if as_json:
        print_json({"study": plan.name, "folder": str(made), "streams": facts["streams"]})
    else:
        click.echo(f"{short(facts['streams']['train']['tokens'])} training tokens of {plan.name} in {made}.")
