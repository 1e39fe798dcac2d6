"""The page: its layout, and what happens when something changes.

Everything that is shown follows from `state.Choices`, so that one function (`Page.show`) draws it all: typed values, a doubled
budget, an uploaded calibration and a link from a colleague take the same way. Where a calibration carries bootstrap refits the answer is shown
at once and its intervals a moment later.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gradio as gr
import pandas as pd

from calibration.reports.plots import LABELS
from calibration.ui import answers, markup, pictures, state
from calibration.ui.jobs import JobFailed, Jobs
from calibration.ui.uploaded import Shelf
from planner import units
from planner.calibration_files import Calibration, shipped_names
from planner.costs import ACCELERATORS
from planner.errors import InvalidInput

LARGEST_UPLOAD = 16 * 2**20
USERS_AT_ONCE = 20
SHOWN = 5  # answer, calls, picture, caption and address
FILES_AT_ONCE = 4  # each is read by a process of its own
_HERE = Path(__file__).parent
_log = logging.getLogger(__name__)


class Page:
    """One server's page: the layout, and the calibrations and workers behind it."""

    def __init__(self) -> None:
        self.shelf, self.jobs = Shelf(), Jobs()
        self.folder = Path(tempfile.mkdtemp(prefix="databound-ui-"))
        os.environ["GRADIO_TEMP_DIR"] = str(self.folder / "files")
        self.blocks = self._build()

    def close(self) -> None:
        self.jobs.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what is shown ----------------------------------------------------------------------------------------------------

    def show(self, choices: state.Choices, notes: list[str] | None = None) -> Iterator[tuple[Any, ...]]:
        """Answer, calls, picture, caption and address; twice where intervals take longer."""
        notes = notes or []
        try:
            known = self.shelf.get(choices.calibration)
            found = answers.answer(choices, known, intervals=False)
            picture = pictures.PICTURES[choices.picture](found)
            caption = f'<p class="db-caption">{pictures.CAPTIONS[choices.picture]}</p>'
            address = choices.query()
            yield (
                markup.answer(found, notes),
                markup.calls(found) + markup.headline(found),
                picture,
                caption,
                address,
            )
            if not found.complete:
                whole = answers.answer(choices, known)
                yield markup.answer(whole, notes), gr.skip(), gr.skip(), gr.skip(), address
        except InvalidInput as error:
            yield markup.problem(str(error), notes), "", None, "", choices.query()
        except (
            Exception
        ):  # a calibration from outside may hold numbers nobody thought of: say so and keep serving
            _log.exception("no answer for %s", choices)
            sentence = (
                "no plan can be computed from this calibration and these inputs; other values would do."
            )
            yield markup.problem(sentence, notes), "", None, "", choices.query()

    def update(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        """What was typed or picked."""
        yield from self.show(_choices(values))

    def restore(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The page that an address describes, unfolded where it holds something that would be out of sight."""
        choices, notes = state.from_query(query or "")
        folds = [
            any(getattr(choices, name) != getattr(state.DEFAULTS, name) for name in names)
            for names in state.FOLDED
        ]
        opened = tuple(gr.update(open=True) if changed else gr.skip() for changed in folds)
        for shown in self._adopt(choices, notes):
            yield *shown, *opened

    def switch(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Another calibration: its laws and weight decays are offered."""
        yield from self._adopt(_choices(values), [])

    def _adopt(self, choices: state.Choices, notes: list[str]) -> Iterator[tuple[Any, ...]]:
        try:
            known = self.shelf.get(choices.calibration)
        except InvalidInput as error:
            notes = [*notes, str(error)[:1].upper() + str(error)[1:]]
            choices = replace(choices, calibration=state.DEFAULTS.calibration)
            known = self.shelf.get(choices.calibration)
        choices, changed = state.fitting(choices, known)
        shown = {
            **asdict(choices),
            "calibration": gr.update(
                choices=self._calibrations(choices.calibration, known), value=choices.calibration
            ),
            "law": gr.update(choices=_laws(known), value=choices.law),
            "weight_decay": gr.update(choices=_decays(known), value=choices.weight_decay),
        }
        components = tuple(shown[name] for name in state.NAMES)
        for answer in self.show(choices, [*notes, *changed]):
            yield *components, *answer
            components = tuple(gr.skip() for _ in state.NAMES)

    def _calibrations(self, key: str, known: Calibration) -> list[tuple[str, str]]:
        offered = [(name, name) for name in shipped_names()]
        return offered if key in shipped_names() else [*offered, (f"{known.name[:40]} (yours)", key)]

    def bring(self, path: str | None, *values: Any) -> Iterator[tuple[Any, ...]]:
        """An uploaded calibration takes the place of the one in use, if it can be used."""
        choices = _choices(values)
        if path is None:
            return
        try:
            _check_size(path)
            text = self.jobs.result("calibration", path)["calibration"]
            choices = replace(choices, calibration=self.shelf.add(Calibration.model_validate_json(text)))
            notes = []
        except InvalidInput as error:
            notes = [f"The upload was not used: {error}"]
        yield from self._adopt(choices, notes)

    def stepped(self, name: str, factor: float) -> Callable[..., Iterator[tuple[Any, ...]]]:
        """A handler that doubles or halves one of the budgets."""

        def step(*values: Any) -> Iterator[tuple[Any, ...]]:
            choices = _choices(values)
            field = name if name == "ud" or choices.compute == state.IN_FLOPS else "hours"
            try:
                text = _multiplied(choices, field, factor)
            except InvalidInput:
                text = getattr(choices, field)  # what is wrong with it is said in the place of the answer
            choices = replace(choices, **{field: text})
            for shown in self.show(choices):
                yield choices.ud, choices.flops, choices.hours, *shown

        return step

    # -- own runs ---------------------------------------------------------------------------------------------------------

    def check(self, path: str | None, decay: str, epochs: str) -> str:
        """What an uploaded table holds, or what is wrong with it row by row."""
        if path is None:
            return ""
        try:
            _check_size(path)
            found = self.jobs.result("check", path, max_epochs=_given(epochs), weight_decay=_given(decay))
        except InvalidInput as error:
            return markup.table_problems(str(error), getattr(error, "problems", []))
        missing = [
            f"weight decay {d:g}: {LABELS[form]} cannot be fitted, {reason}"
            for d, form, reason in found["not_identified"]
        ]
        return markup.run_summary(found["rows"], missing)

    def fit(
        self, path: str | None, name: str, decay: str, epochs: str, refits: int
    ) -> Iterator[tuple[Any, ...]]:
        """Fit an uploaded table: progress, then the metrics, the picture, the files and the key of the calibration.

        Last come the buttons: Fit can be pressed while nothing is being fitted, and Stop while something is.
        """
        idle, busy = _nothing_fitted(), _nothing_fitted(busy=True)
        if path is None:
            yield markup.table_problems("upload a table of runs first.", []), *idle
            return
        name = (name or "").strip()[:60] or "my-calibration"
        try:
            _check_size(path)
            yield markup.progress("starting", 0.0), *busy
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                options: dict[str, Any] = {"max_epochs": _given(epochs), "weight_decay": _given(decay)}
                options |= {"refits": int(refits), "name": name, "folder": folder}
                for message in self.jobs.run("fit", path, **options):
                    if not isinstance(message, dict):
                        yield markup.progress(*message), *busy
                known = Calibration.load(Path(folder) / "calibration.json")
                stem = Path(answers.file_name(known)).stem
                file = (Path(folder) / "calibration.json").rename(Path(folder) / f"{stem}.json")
                report = (Path(folder) / "report.html").rename(Path(folder) / f"{stem}-report.html")
                runs = pd.read_json(
                    Path(folder) / "runs.json", dtype=False, convert_dates=False, convert_axes=False
                )
                yield (  # Gradio copies the two files before it asks for more
                    markup.fit_summary(_recommendation(known), _metrics(known), _left_out(known)),
                    pictures.predicted_observed(known, runs),
                    gr.update(visible=True, value=str(file)),
                    gr.update(visible=True, value=str(report)),
                    gr.update(visible=True),
                    self.shelf.add(known),
                    *idle[-2:],
                )
        except InvalidInput as error:
            yield markup.table_problems(str(error), getattr(error, "problems", [])), *idle
        except Exception:  # whatever a stranger's table led to: say so and let the next one be fitted
            _log.exception("no fit of %s", name)
            yield markup.table_problems("this table could not be fitted; other runs would do.", []), *idle

    def plan_with(self, key: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Plan with the calibration that was fitted here. The tab comes first: a picture is measured as it is drawn."""
        shown = self._adopt(replace(_choices(values), calibration=key), [])
        yield gr.Tabs(selected="plan"), *(gr.skip() for _ in range(len(state.NAMES) + SHOWN))
        for one in shown:
            yield gr.skip(), *one

    # -- layout -----------------------------------------------------------------------------------------------------------

    def _build(self) -> gr.Blocks:
        default = Calibration.load()
        chosen = state.DEFAULTS
        with gr.Blocks(
            title="databound: plan training when data is the limit",
            analytics_enabled=False,
            delete_cache=(600, 7200),
        ) as blocks:
            gr.HTML(_HEADER, padding=False)
            address = gr.Textbox(visible=False)
            with gr.Tabs() as tabs:
                with gr.Tab("Plan", id="plan"), gr.Row(elem_id="db-columns"):
                    with gr.Column(elem_id="db-inputs", min_width=280, scale=1):
                        ud, halve_ud, double_ud = _budget(
                            "Unique tokens", chosen.ud, "ud", "250M, 0.25B, 250e6"
                        )
                        with gr.Group():
                            compute = gr.Radio(
                                [("in FLOPs", state.IN_FLOPS), ("in GPU time", state.IN_HOURS)],
                                value=chosen.compute,
                                label="Compute",
                                elem_id="in-compute",
                            )
                            with gr.Row(elem_classes="db-budget"):
                                flops = _text("FLOPs", chosen.flops, "flops", "5e18, 5 EFLOP", scale=4)
                                hours = _text(
                                    "Hours on these GPUs", chosen.hours, "hours", "3", scale=4, visible=False
                                )
                                halve = gr.Button(
                                    "÷2", size="sm", min_width=44, scale=0, elem_id="halve-compute"
                                )
                                double = gr.Button(
                                    "×2", size="sm", min_width=44, scale=0, elem_id="double-compute"
                                )
                            with gr.Row(elem_classes="db-hardware"):
                                gpus = _text("GPUs", chosen.gpus, "gpus", "8", min_width=60)
                                gpu = gr.Dropdown(
                                    list(ACCELERATORS),
                                    value=chosen.gpu,
                                    label="Kind",
                                    elem_id="in-gpu",
                                    min_width=110,
                                    scale=2,
                                )
                                mfu = _text("MFU", chosen.mfu, "mfu", "40%", min_width=60)
                        weight_decay = gr.Dropdown(
                            _decays(default),
                            value=chosen.weight_decay,
                            label="Weight decay",
                            elem_id="in-weight_decay",
                        )
                        with gr.Accordion("Law and calibration", open=False) as laws:
                            law = gr.Dropdown(_laws(default), value=chosen.law, label="Law", elem_id="in-law")
                            calibration = gr.Dropdown(
                                self._calibrations(chosen.calibration, default),
                                value=chosen.calibration,
                                label="Calibration",
                                elem_id="in-calibration",
                            )
                            upload = gr.UploadButton(
                                "Upload a calibration (.json)",
                                file_types=[".json"],
                                size="sm",
                                elem_id="upload-calibration",
                            )
                        with gr.Accordion("Limits and price", open=False) as limits:
                            with gr.Row():
                                min_params = _text("Smallest model", "", "min_params", "no limit")
                                max_params = _text("Largest model", "", "max_params", "no limit, or 3B")
                            with gr.Row():
                                max_epochs = _text("Most epochs", "", "max_epochs", "no limit, or 16")
                                price = _text("$ per GPU-hour", "", "price", "list price")
                            epochs = gr.Radio(
                                [("whole", state.WHOLE), ("any fraction", state.CONTINUOUS)],
                                value=chosen.epochs,
                                label="Epochs are",
                                elem_id="in-epochs",
                            )
                    with gr.Column(elem_id="db-output", min_width=320, scale=3):
                        answer = gr.HTML(elem_id="answer", padding=False)
                        calls = gr.HTML(elem_id="calls", padding=False)
                        picture = gr.Radio(
                            [(title, key) for key, title in state.PICTURES.items()],
                            value=chosen.picture,
                            label="Picture",
                            show_label=False,
                            elem_id="in-picture",
                            container=False,
                        )
                        plot = gr.Plot(show_label=False, elem_id="plot", container=False, buttons=[])
                        caption = gr.HTML(padding=False)
                with gr.Tab("Your own runs", id="runs"):
                    fitted, use = self._runs_tab()

            given: dict[str, Any] = {
                "ud": ud,
                "compute": compute,
                "flops": flops,
                "hours": hours,
                "gpu": gpu,
                "gpus": gpus,
                "mfu": mfu,
                "price": price,
                "weight_decay": weight_decay,
                "law": law,
                "calibration": calibration,
                "epochs": epochs,
                "min_params": min_params,
                "max_params": max_params,
                "max_epochs": max_epochs,
                "picture": picture,
            }
            components = [given[name] for name in state.NAMES]
            shown = [answer, calls, plot, caption, address]
            quickly: dict[str, Any] = {
                "show_progress": "hidden",
                "trigger_mode": "always_last",
                "api_visibility": "private",
            }
            quickly["concurrency_limit"] = USERS_AT_ONCE
            # Gradio's own events of a text box miss deletions or fire when it is unfolded, so page.js presses this button instead.
            typed = gr.Button(visible="hidden", elem_id="typed")
            picked = [c.input for c in components if c is not calibration and not isinstance(c, gr.Textbox)]
            gr.on([typed.click, *picked], self.update, components, shown, **quickly)
            calibration.input(self.switch, components, [*components, *shown], **quickly)
            reading = {**quickly, "concurrency_limit": FILES_AT_ONCE, "concurrency_id": "files"}
            upload.upload(self.bring, [upload, *components], [*components, *shown], **reading)
            budgets = [ud, flops, hours]
            for button, name, factor in (
                (halve_ud, "ud", 0.5),
                (double_ud, "ud", 2.0),
                (halve, "flops", 0.5),
                (double, "flops", 2.0),
            ):
                button.click(self.stepped(name, factor), components, [*budgets, *shown], **quickly)
            compute.change(
                _only, compute, [flops, hours], queue=False, show_progress="hidden", api_visibility="private"
            )
            address.change(None, address, None, js=_WRITE_ADDRESS, api_visibility="private")
            use.click(self.plan_with, [fitted, *components], [tabs, *components, *shown], **quickly)
            blocks.load(
                self.restore,
                address,
                [*components, *shown, laws, limits],
                js="() => window.location.search",
                **quickly,
            )
        blocks.queue(default_concurrency_limit=USERS_AT_ONCE, max_size=400)
        return blocks

    def _runs_tab(self) -> tuple[gr.Textbox, gr.Button]:
        gr.HTML(_RUNS_HELP, padding=False)
        with gr.Row(elem_id="db-runs"):
            with gr.Column(min_width=280, scale=1):
                table = gr.File(
                    label="Table of runs (.csv or .parquet, up to 16 MB)",
                    file_types=[".csv", ".tsv", ".parquet", ".pq"],
                    type="filepath",
                    elem_id="upload-runs",
                    height=140,
                )
                name = _text("Name of the calibration", "my-calibration", "name", "my-corpus")
                with gr.Row():
                    decay = _text(
                        "Weight decay, if the table does not say", "", "runs-decay", "0.1", min_width=120
                    )
                    most = _text(
                        "Leave out runs beyond this many epochs", "", "runs-epochs", "no limit", min_width=120
                    )
                refits = gr.Radio(
                    [("none", 0), ("200", 200), ("1000", 1000)],
                    value=200,
                    label="Bootstrap refits for the intervals",
                    elem_id="in-refits",
                )
                with gr.Row():
                    start = gr.Button("Fit", variant="primary", elem_id="fit")
                    stop = gr.Button("Stop", min_width=80, scale=0, elem_id="stop", interactive=False)
            with gr.Column(min_width=320, scale=3):
                checked = gr.HTML(elem_id="runs-check", padding=False)
                result = gr.HTML(elem_id="runs-result", padding=False)
                with gr.Row():
                    use = gr.Button(
                        "Plan with this calibration", variant="primary", visible=False, elem_id="use"
                    )
                    file = gr.DownloadButton(
                        "Calibration file", visible=False, elem_id="download-calibration"
                    )
                    report = gr.DownloadButton("HTML report", visible=False, elem_id="download-report")
                picture = gr.Plot(show_label=False, elem_id="runs-plot", container=False, buttons=[])
                key = gr.Textbox(visible=False)
        calm: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        gr.on(
            [table.upload, decay.change, most.change],
            self.check,
            [table, decay, most],
            checked,
            trigger_mode="always_last",
            concurrency_limit=FILES_AT_ONCE,
            concurrency_id="files",
            **calm,
        )
        outcome = [result, picture, file, report, use, key, start, stop]
        table.clear(lambda: ("", "", *_nothing_fitted()), None, [checked, *outcome], **calm)
        fitting = start.click(
            self.fit,
            [table, name, decay, most, refits],
            outcome,
            concurrency_limit=2,
            concurrency_id="fit",
            trigger_mode="multiple",
            **calm,
        )
        # First the fit ends, then that is said: whatever it said last must not come after.
        stopping = stop.click(None, cancels=[fitting], **calm)
        stopping.then(lambda: (markup.note("Stopped."), *_nothing_fitted()), None, outcome, **calm)
        return key, use


def launch(host: str = "127.0.0.1", port: int | None = None, *, browser: bool = False) -> None:
    """Serve the page until the process is told to stop. Nothing is loaded from anywhere else, and nothing is sent anywhere."""
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
            css=(_HERE / "page.css").read_text(),
            head=f"<script>{(_HERE / 'page.js').read_text()}</script>",
            max_threads=40,
            enable_monitoring=False,
            pwa=False,
        )
        page.blocks.block_thread()
    finally:
        page.close()


def theme() -> gr.themes.Base:
    """Gradio's plain theme with the system's own fonts, so that none has to be fetched."""
    sans = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
    return gr.themes.Default(
        primary_hue="blue", neutral_hue="slate", font=sans, font_mono=mono, text_size="md"
    )


# -- pieces ---------------------------------------------------------------------------------------------------------------


def _choices(values: tuple[Any, ...]) -> state.Choices:
    return state.of(dict(zip(state.NAMES, values, strict=True)))


def _text(label: str, value: str, name: str, example: str, **how: Any) -> gr.Textbox:
    how = {"min_width": 90, **how}
    return gr.Textbox(
        value,
        label=label,
        placeholder=example,
        elem_id=f"in-{name}",
        elem_classes="db-text",
        max_lines=1,
        max_length=state.LONGEST,
        **how,
    )


def _budget(label: str, value: str, name: str, example: str) -> tuple[gr.Textbox, gr.Button, gr.Button]:
    with gr.Row(elem_classes="db-budget"):
        text = _text(label, value, name, example, scale=4)
        halve = gr.Button("÷2", size="sm", min_width=44, scale=0, elem_id=f"halve-{name}")
        double = gr.Button("×2", size="sm", min_width=44, scale=0, elem_id=f"double-{name}")
    return text, halve, double


def _laws(known: Calibration) -> list[tuple[str, str]]:
    return [
        (f"choose for me ({LABELS[known.default_law]})", ""),
        *((LABELS[form], form) for form in state.laws_of(known)),
    ]


def _decays(known: Calibration) -> list[tuple[str, str]]:
    return [("choose for me", ""), *((decay, decay) for decay in state.decays_of(known))]


def _only(compute: str) -> tuple[Any, Any]:
    return gr.update(visible=compute == state.IN_FLOPS), gr.update(visible=compute == state.IN_HOURS)


def _nothing_fitted(busy: bool = False) -> tuple[Any, ...]:
    """No picture, no files, no calibration, and the buttons that start and stop a fit."""
    hidden = gr.update(visible=False)
    return None, hidden, hidden, hidden, "", gr.update(interactive=not busy), gr.update(interactive=busy)


def _multiplied(choices: state.Choices, field: str, factor: float) -> str:
    if field == "ud":
        return units.short(units.count(choices.ud, "ud") * factor, 4)
    if field == "flops":
        return units.scientific(units.compute(choices.flops) * factor, 4)
    return f"{units.number(choices.hours, 'hours') * factor:.4g}"


def _given(text: str | None) -> str | None:
    return (text or "").strip() or None


def _check_size(path: str) -> None:
    size = os.path.getsize(path)
    if size > LARGEST_UPLOAD:
        raise JobFailed(
            f"the file has {size / 2**20:,.0f} MB; the page reads up to {LARGEST_UPLOAD >> 20} MB.", []
        )


def _recommendation(known: Calibration) -> str:
    advice = getattr(known, "recommendation", None)
    reason = advice.get("reason", "") if isinstance(advice, dict) else ""
    return f"{known.name} is fitted: {reason}" if reason else f"{known.name} is fitted."


def _metrics(known: Calibration) -> list[list[str]]:
    def figure(value: float | None, style: str) -> str:
        return "" if value is None else format(value, style)

    keys = (("r2", ".4f"), ("r2_multi", ".4f"), ("huber", ".3g"), ("held_out_error", ".2%"))
    return [
        [
            str(s.weight_decay),
            LABELS[form] + (" ★" if form == known.default_law else ""),
            *(figure(law.metrics.get(k), how) for k, how in keys),
        ]
        for s in known.settings
        for form, law in s.laws.items()
    ]


def _left_out(known: Calibration) -> list[str]:
    return [
        f"weight decay {setting.weight_decay}: {LABELS[form]}, {reason}"
        for setting in known.settings
        for form, reason in setting.method.get("not_identified", {}).items()
    ]


_HEADER = """<header class="db-header"><a class="db-home" href="./"><strong>databound</strong></a>
<span>How large a model, how many epochs, which weight decay, when data and not compute is the limit?</span></header>"""
_RUNS_HELP = """<p class="db-caption">Fit the laws to your own runs and plan with the result. The table has one row per finished run, with the columns
<code>run, params, unique_tokens, epochs, weight_decay, loss</code>; <code>tokens</code> may stand in for epochs. The file stays on this server, is read as data only, and is
deleted after two hours.</p>"""
_WRITE_ADDRESS = "(query) => window.databound.remember(query)"
