"""`planner ui`: serve the page on this machine."""

from __future__ import annotations

import click

from calibration.commands.serve import DEFAULT_PORT, free_port
from planner.cli import BadInput


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 lets other machines in.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port; 0 takes any free one.  [default: {DEFAULT_PORT} or the next free one]",
)
@click.option(
    "--trust-host",
    "trusted",
    multiple=True,
    metavar="NAME",
    help="A name by which visitors know this server, such as a proxy's in front of it; may be repeated.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
def ui(host: str, port: int | None, trusted: tuple[str, ...], no_browser: bool) -> None:
    """Explore plans on a web page, and fit your own runs there.

    \b
    Example:
      planner ui
      planner ui --port 8000 --no-browser
    """
    port = free_port(host, port)
    try:
        from calibration.ui.server import launch
    except ModuleNotFoundError as error:
        raise BadInput(
            f"`planner ui` needs {error.name}, which is not installed; `pip install '.[ui]'` has it."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"Serving on http://{shown}:{port} (Ctrl-C stops).")
    launch(host, port, browser=not no_browser, trusted=trusted)
