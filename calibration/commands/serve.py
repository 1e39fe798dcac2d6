"""`planner serve`: planning and fitting over HTTP, and the page on top of it."""

from __future__ import annotations

import click

from planner.cli import BadInput, Command

DEFAULT_PORT = 7860


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
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
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that answer, at most one for each core.",
)
@click.option(
    "--trust-host",
    "trusted",
    multiple=True,
    metavar="NAME",
    help="A name by which visitors know this server, such as a proxy's in front of it, which then says who "
    "they are; may be repeated.",
)
@click.option("--access-log", is_flag=True, help="Say on stderr what was answered: route, status and time.")
@click.option("--open/--no-open", "browser", default=False, help="Open a browser.  [default: --no-open]")
def serve(
    host: str, port: int | None, workers: int, trusted: tuple[str, ...], access_log: bool, browser: bool
) -> None:
    """Plan and fit over HTTP: an API with the names of Python's calls, and a web page.

    \b
    Example:
      planner serve
      planner serve --host 0.0.0.0 --port 8000 --workers 2 --trust-host planner.example
    """
    port = free_port(host, port)
    try:
        from calibration.web.server import serve as start
    except ModuleNotFoundError as error:
        raise BadInput(
            f"`planner serve` needs {error.name}, which is not installed; `pip install '.[web]'` has it."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"Serving on http://{shown}:{port} (Ctrl-C stops).")
    start(host, port, workers=workers, trusted=trusted, browser=browser, access_log=access_log)


def free_port(host: str, wanted: int | None) -> int:
    """A port that can be had, or one sentence; looked for before the page is built."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    candidates = range(DEFAULT_PORT, DEFAULT_PORT + 100) if wanted is None else [wanted]
    reason = "none is free"
    for candidate in candidates:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                continue
            return int(probe.getsockname()[1])
    place = f"--port {wanted}" if wanted is not None else f"--host {host}"
    raise BadInput(f"{place} cannot be listened on: {reason}; another one would do.")
