"""`planner calibrate ...`: sub-commands are imported when they are used or listed."""

from __future__ import annotations

import importlib

import click

from planner.cli import BadInput, no_such_command

# The file of each sub-command.
_COMMANDS = {
    "backtest": "backtest",
    "compare": "compare",
    "design": "design",
    "ensemble": "sweep",
    "fit": "fit",
    "report": "report",
    "run": "run",
    "sweep": "sweep",
    "tune": "design",
    "validate": "validate",
}
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
        if name not in _COMMANDS:
            return None
        module = importlib.import_module(f"calibration.commands.{_COMMANDS[name]}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _MOVED:  # whatever it is given
            raise BadInput(_MOVED[args[0]])
        try:
            return super().resolve_command(context, args)
        except click.UsageError:
            raise no_such_command(args[0], self.list_commands(context)) from None


calibrate = CalibrateGroup(
    "calibrate",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Turn your own runs into a calibration that `planner plan --calibration` uses.

    \b
    Example:
      planner calibrate fit runs.csv -o my.json
      planner plan --calibration my.json --ud 250M --flops 5e18
    """,
)
