"""What every sub-command of `planner` shares: lazy loading, one-sentence errors, JSON output.

Other rooms add commands through the entry-point group `planner.commands`. They are looked up only when a
command is asked for that is not built in, or for the list in `--help`: planning must start in a blink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from planner.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_POINTS = "planner.commands"


class BadInput(click.ClickException):
    """Bad input on the command line: one sentence, exit code 2."""

    exit_code = 2


class Command(click.Command):
    """A command whose bad input is one sentence that names the options as they were typed, never a
    traceback.
    """

    extra: str | None = None  # the extra of the package that has what the command imports

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            raise BadInput(error.said(self.typed)) from None
        except ModuleNotFoundError as error:
            if self.extra is None:
                raise
            raise BadInput(
                f"{error.name} is not installed; pip install 'databound[{self.extra}]' would do."
            ) from None

    def typed(self, field: str) -> str:
        """What is typed in a shell for a field: `--max-params` for max_params, `--from` for start."""
        options = [option for option in self.params if isinstance(option, click.Option)]
        for option in options:
            if option.name == field:
                return max(option.opts, key=lambda name: name.startswith("--"))
        flag = f"--{field.replace('_', '-')}"
        return flag if any(flag in option.opts for option in options) else field


class PlannerGroup(click.Group):
    """Built-in commands, and those that other packages add."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *sorted(set(_added()) - set(self.commands))]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        built_in = super().get_command(ctx, name)
        if built_in is not None:
            return built_in
        entry = _added().get(name)
        if entry is None:
            return None
        from planner.shadows import shadow

        hidden_by = shadow(entry.module)  # asked first, so that a file of the user's is named and not run
        if hidden_by is not None:
            return _hidden(name, hidden_by)
        try:
            command: click.Command = entry.load()
        except ImportError as error:
            return _not_installed(name, error)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise BadInput(
                f"{error.message.rstrip('.')}; commands are {', '.join(self.list_commands(ctx))}."
            ) from None


def _added() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _hidden(name: str, by: Path) -> click.Command:
    sentence = (
        f"`planner {name}` is hidden by {by}, which Python finds before the package of that name; "
        f"rename that file, or work in another folder."
    )
    return _unavailable(name, f"{by} hides it", sentence)


def _not_installed(name: str, error: ImportError) -> click.Command:
    missing = getattr(error, "name", None) or str(error)
    extra = {"ui": "ui", "evaluate": "eval"}.get(name, "train")
    sentence = (
        f"`planner {name}` needs {missing}, which is not installed; "
        f"`pip install 'databound[{extra}]'` has it."
    )
    return _unavailable(name, f"{missing} is not installed", sentence)


def _unavailable(name: str, reason: str, sentence: str) -> click.Command:
    """A command that cannot be imported still shows up, and says why."""

    @click.command(name, help=f"Not available: {reason}.", context_settings={"ignore_unknown_options": True})
    @click.argument("ignored", nargs=-1, type=click.UNPROCESSED)
    def unavailable(ignored: tuple[str, ...]) -> None:
        raise BadInput(sentence)

    return unavailable


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)
