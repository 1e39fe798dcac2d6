"""`planner calibrate ...`: one file per sub-command, imported when it is used or listed."""

from __future__ import annotations

import importlib

import click

from planner.cli import BadInput

_COMMANDS = ("backtest", "compare", "design", "ensemble", "fit", "report", "sweep", "tune", "validate")
_MOVED = {  # what earlier releases called a command, and what does the same now
    "dial": "`planner calibrate fit TABLE --weight-decay-law auto` fits the law for every weight decay now, "
    "and the name of a form instead of auto has plans use it.",
    "picture": "`planner calibrate report CALIBRATION --runs RUNS --plot KIND=FILE` draws it now, and "
    "`planner calibrate fit RUNS --plot KIND=FILE` where the laws are to be fitted first.",
    "tournament": "the tournament is a study now: `python studies/tournament/make.py TABLE...` plays it.",
}


class CalibrateGroup(click.Group):
    """A group that imports its sub-commands only when they are used or listed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in _MOVED:
            return _moved(name)
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"calibration.commands.{name}"), name)
        return command


def _moved(name: str) -> click.Command:
    """A former command, which answers with what to type instead, whatever it is given."""

    @click.command(
        name, hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True}
    )
    @click.argument("ignored", nargs=-1, type=click.UNPROCESSED)
    def former(ignored: tuple[str, ...]) -> None:
        raise BadInput(_MOVED[name])

    return former


@click.group(cls=CalibrateGroup, context_settings={"help_option_names": ["-h", "--help"]})
def calibrate() -> None:
    """Turn your own runs into a calibration that `planner plan --calibration` uses.

    \b
    Example:
      planner calibrate fit runs.csv -o my.json
      planner plan --calibration my.json --ud 250M --flops 5e18
    """
