"""Serves the page until the process is told to stop. Nothing is loaded from, or sent to, anywhere else."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastapi
import gradio as gr
import h11
import uvicorn
from fastapi.responses import FileResponse, PlainTextResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from calibration.reports.document import dark_rules
from calibration.ui.drawing import spelled
from calibration.ui.gate import Gate
from calibration.ui.page import LARGEST_UPLOAD, Page

CONNECTIONS = 400
SESSIONS = 300  # of which Gradio keeps a copy of the page in memory: whoever was away longest is forgotten
REQUEST_SECONDS = 20.0  # within which a whole request must have arrived, whatever its connection does
_HERE = Path(__file__).parent


def launch(
    host: str = "127.0.0.1", port: int = 7860, *, browser: bool = False, trusted: Iterable[str] = ()
) -> None:
    trusted = tuple(trusted)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that uploads are deleted then, too
    page = Page()
    try:
        os.chdir(page.folder)  # uploads go by paths from here: no reply tells where the server keeps them
        page.jobs.warm_up()
        config = uvicorn.Config(
            Gate(application(page), page.blocks, {host, socket.gethostname(), *trusted}, LARGEST_UPLOAD),
            host=host,
            port=port,
            http=Impatient,
            ws="none",
            log_level="warning",
            server_header=False,
            proxy_headers=bool(trusted),  # a visitor may call itself anything unless a proxy says who it is
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        Server(config, f"http://{host}:{port}" if browser else None).run()
    finally:
        page.close()


def application(page: Page) -> fastapi.FastAPI:
    """The page and the files that were fitted there, without documentation of the routes."""
    page.blocks.state_session_capacity = SESSIONS
    # Gradio checks the paths of files only in pages that its own `launch` started (see also `gate`).
    page.blocks.has_launched = True
    page.blocks._queue.pending_messages_per_session.max_size = SESSIONS
    bare: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    outer = fastapi.FastAPI(**bare)

    @outer.api_route("/fitted/{token}/{name}", methods=["GET", "HEAD"])
    def fitted(token: str, name: str) -> Response:
        """A calibration file or report, for whoever fitted it."""
        file = page.downloads.find(token, name)
        if file is None:
            return PlainTextResponse("This file is no longer here: fit the runs again.", 404)
        return FileResponse(file, media_type="application/octet-stream", filename=name)

    app: fastapi.FastAPI = gr.mount_gradio_app(
        outer,
        page.blocks,
        path="/",
        app_kwargs=bare,
        ssr_mode=False,
        max_file_size=LARGEST_UPLOAD,
        footer_links=[],
        run_history=False,
        show_error=True,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=theme(),
        css=style(),
        head=f"<script>{(_HERE / 'page.js').read_text()}</script>",
    )
    return app


class Server(uvicorn.Server):
    """Opens a browser once there is something to see."""

    def __init__(self, config: uvicorn.Config, address: str | None) -> None:
        super().__init__(config)
        self.address = address

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.address is not None and self.started:
            threading.Thread(target=webbrowser.open, args=[self.address], daemon=True).start()


class Impatient(H11Protocol):
    """HTTP that closes a connection on which a request does not arrive in time."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        self._expect()
        super().data_received(data)
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _arrived(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


def style() -> str:
    """The style sheet, with the colours of pictures on dark paper."""
    dark = (dark_rules(f".dark {holder}", spelled) for holder in (".js-plotly-plot", ".db-legend"))
    return (_HERE / "page.css").read_text() + "".join(dark)


def theme() -> gr.themes.Base:
    """Gradio's plain theme with the system's own fonts, so that none has to be fetched."""
    sans = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
    plain = gr.themes.Default(
        primary_hue="blue", neutral_hue="slate", font=sans, font_mono=mono, text_size="md"
    )
    # Borders that tell where to type or choose have a contrast of three, white on buttons one of five.
    edges = {"input_border_color": "#7c8aa0", "checkbox_border_color": "#7c8aa0"}
    dark = {f"{name}_dark": "#76859c" for name in edges}
    fills = dict.fromkeys(
        ("button_primary_background_fill", "button_primary_background_fill_dark"), "#2563eb"
    )
    return plain.set(**edges, **dark, **fills)
