"""`planner calibrate ...`: one file per sub-command, imported when it is used or listed."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "backtest": "calibration.commands.backtest:backtest",
    "compare": "calibration.commands.compare:compare",
    "design": "calibration.commands.design:design",
    "dial": "calibration.commands.dial:dial",
    "ensemble": "calibration.commands.ensemble:ensemble",
    "fit": "calibration.commands.fit:fit",
    "picture": "calibration.commands.picture:picture",
    "report": "calibration.commands.report:report",
    "sweep": "calibration.commands.sweep:sweep",
    "tournament": "calibration.commands.tournament:tournament",
    "tune": "calibration.commands.tune:tune",
    "validate": "calibration.commands.validate:validate",
}


class CalibrateGroup(click.Group):
    """A group that imports the sub-commands of other modules only when they are used or listed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(
            {*super().list_commands(context), *(name for name in _COMMANDS if _find(name) is not None)}
        )

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return super().get_command(context, name) or _find(name)


def _find(name: str) -> click.Command | None:
    if name not in _COMMANDS:
        return None
    module, _, attribute = _COMMANDS[name].partition(":")
    try:
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
    except ModuleNotFoundError as error:
        if error.name == module:
            return None  # not part of this installation
        raise


@click.group(cls=CalibrateGroup, context_settings={"help_option_names": ["-h", "--help"]})
def calibrate() -> None:
    """Turn your own runs into a calibration that `planner plan --calibration` uses.

    \b
    Example:
      planner calibrate fit runs.csv -o my.json
      planner plan --calibration my.json --ud 250M --flops 5e18
    """
