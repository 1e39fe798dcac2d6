"""Serves the page until the process is told to stop."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import gradio as gr

from calibration.reports.document import dark_rules
from calibration.ui.legend import spelled
from calibration.ui.page import LARGEST_UPLOAD, Page

_HERE = Path(__file__).parent


def launch(host: str = "127.0.0.1", port: int | None = None, *, browser: bool = False) -> None:
    """Serve the page until the process is told to stop. Nothing is loaded from, or sent to, anywhere else."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that uploads are deleted then, too
    page = Page()
    try:
        page.jobs.warm_up()
        page.blocks.launch(
            server_name=host,
            server_port=port,
            inbrowser=browser,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            ssr_mode=False,
            max_file_size=LARGEST_UPLOAD,
            footer_links=[],
            show_error=True,
            theme=theme(),
            css=style(),
            head=f"<script>{(_HERE / 'page.js').read_text()}</script>",
            max_threads=40,
            enable_monitoring=False,
            pwa=False,
        )
        page.blocks.block_thread()
    finally:
        page.close()


def style() -> str:
    """The style sheet, with the colours of pictures on dark paper."""
    dark = (dark_rules(f".dark {holder}", spelled) for holder in (".js-plotly-plot", ".db-legend"))
    return (_HERE / "page.css").read_text() + "".join(dark)


def theme() -> gr.themes.Base:
    """Gradio's plain theme with the system's own fonts, so that none has to be fetched."""
    sans = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
    return gr.themes.Default(
        primary_hue="blue", neutral_hue="slate", font=sans, font_mono=mono, text_size="md"
    )
