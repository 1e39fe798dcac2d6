"""What every sub-command of `planner` shares: lazy loading, one-sentence errors, JSON output.

Other rooms add commands through the entry-point group `planner.commands`. They are looked up only when a command is
asked for that is not built in, or for the list in `--help`: planning must start in a blink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from planner.errors import InvalidInput

ENTRY_POINTS = "planner.commands"


class BadInput(click.ClickException):
    """Bad input on the command line: one sentence, exit code 2."""

    exit_code = 2


class OneSentenceErrors(click.Group):
    """A group whose commands turn InvalidInput into one sentence and exit code 2, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            raise BadInput(_as_typed(str(error), self, ctx)) from None


def _as_typed(message: str, group: click.Group, ctx: click.Context) -> str:
    """The sentence with the field as it is typed in a shell: `weight_decay must be` -> `--weight-decay must be`."""
    command = group.get_command(ctx, ctx.invoked_subcommand or "")
    for option in command.params if command is not None else ():
        if isinstance(option, click.Option) and message.startswith(f"{option.name} "):
            return option.opts[0] + message.removeprefix(option.name or "")
    return message


class PlannerGroup(OneSentenceErrors):
    """Built-in commands, and those that other packages add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *sorted(set(_added()) - set(self.commands))]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        built_in = super().get_command(ctx, name)
        if built_in is not None:
            return built_in
        entry = _added().get(name)
        if entry is None:
            return None
        try:
            return entry.load()
        except ImportError as error:
            return _unavailable(name, error)

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


def _unavailable(name: str, error: ImportError) -> click.Command:
    """A command whose dependencies are not installed still shows up, and says what is missing."""
    missing = getattr(error, "name", None) or str(error)
    extra = {"ui": "ui", "evaluate": "eval"}.get(name, "train")

    @click.command(
        name,
        help=f"Not available: {missing} is not installed.",
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("ignored", nargs=-1, type=click.UNPROCESSED)
    def unavailable(ignored: tuple[str, ...]) -> None:
        raise BadInput(
            f"`planner {name}` needs {missing}, which is not installed; `pip install 'databound[{extra}]'` has it."
        )

    return unavailable


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)
