"""What the page consists of: fields, buttons and places for what is shown. What they do is in `page`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from calibration.ui import markup, state
from planner.calibration import Calibration, shipped_names
from planner.hardware import ACCELERATORS
from planner.inputs import CONTINUOUS_EPOCHS, WHOLE
from planner.options import label
from planner.show.palette import law_label


@dataclass(frozen=True)
class Inputs:
    """Every field by the name of its choice, in the order of `state.NAMES`, and what stands around them."""

    fields: dict[str, Any]
    steps: list[tuple[gr.Button, str, float]]  # button, what it multiplies, and by how much
    upload: gr.UploadButton
    folds: list[gr.Accordion]  # in the order of `state.FOLDED`


@dataclass(frozen=True)
class Outputs:
    problem: gr.HTML  # lies over the answer, which stays, dimmed
    answer: gr.HTML
    legend: gr.HTML
    plot: gr.Plot
    calls: gr.HTML
    details: gr.HTML
    choices: dict[str, Any]  # those that stand among the answers: which picture, whether all is spent, a pin

    @property
    def shown(self) -> list[Any]:
        """What an answer fills in."""
        return [self.problem, self.answer, self.legend, self.plot, self.calls, self.details]


@dataclass(frozen=True)
class Runs:
    """The tab for one's own runs."""

    table: gr.File
    name: gr.Textbox
    decay: gr.Textbox
    epochs: gr.Textbox
    columns: list[gr.Dropdown]  # which of the table's is ours, in the order of OURS
    refits: gr.Radio
    start: gr.Button
    stop: gr.Button
    checked: gr.HTML
    result: gr.HTML
    use: gr.Button
    plot: gr.Plot
    key: gr.Textbox

    @property
    def outcome(self) -> list[Any]:
        """What a fit fills in."""
        return [self.result, self.plot, self.use, self.key, self.start, self.stop]


# -- planning -----------------------------------------------------------------------------------------------


def inputs(default: Calibration) -> Inputs:
    chosen, fields, steps = state.DEFAULTS, dict[str, Any](), list[tuple[gr.Button, str, float]]()
    with gr.Group():
        with gr.Row(elem_classes="db-budget"):
            fields["ud"] = text("ud", "250M, 0.25B, 250e6", scale=4)
            steps += _steps("ud")
        _slider("ud", "Unique tokens")
    with gr.Group():
        fields |= _compute(steps)
    with gr.Group():
        fields["weight_decay"] = text("weight_decay", "choose for me, or 0.3")
        _slider("weight_decay", "Weight decay")
    with gr.Accordion("Law and calibration", open=False) as laws_fold:
        fields["law"] = _list("law", laws(default))
        offered = calibrations(chosen.calibration, default)
        fields["calibration"] = _list("calibration", offered)
        upload = gr.UploadButton(
            "Upload a calibration (.json)", file_types=[".json"], size="sm", elem_id="upload-calibration"
        )
    with gr.Accordion("Size and limits, ensembles, serving", open=False) as limits_fold:
        fields |= _limits()
    with gr.Accordion("Price, or your own accelerator", open=False) as card_fold:
        fields["price"] = text("price", "list price")
        with gr.Row():
            fields["tflops"] = text("tflops", "400")
            fields["memory"] = text("memory", "64")
    return Inputs(fields, steps, upload, [laws_fold, limits_fold, card_fold])


def _compute(steps: list[tuple[gr.Button, str, float]]) -> dict[str, Any]:
    """The budget in FLOPs, in hours on some GPUs or in money, or the loss that it shall reach."""
    chosen, fields = state.DEFAULTS, dict[str, Any]()
    names = ("FLOPs", "GPU time", "Money", "A loss")
    kinds = list(zip(names, state.BUDGETS, strict=True))
    fields["compute"] = gr.Radio(kinds, value=chosen.compute, label="Compute, given as", elem_id="in-compute")
    with gr.Row(elem_classes="db-budget"):
        fields["flops"] = text("flops", "5e18, 5 EFLOP", scale=4)
        fields["hours"] = text("hours", "3", scale=4, visible=False)
        fields["budget_usd"] = text("budget_usd", "500", scale=4, visible=False)
        fields["target_loss"] = text("target_loss", "3.1", scale=4, visible=False)
        steps += _steps("compute")
    _slider("compute", "Compute")
    with gr.Row(elem_classes="db-hardware"):
        fields["gpus"] = text("gpus", "8", min_width=60)
        fields["gpu"] = _list("gpu", list(ACCELERATORS), min_width=110, scale=2)
        fields["mfu"] = text("mfu", "40%", min_width=60)
    return fields


def _limits() -> dict[str, Any]:
    fields: dict[str, Any] = {"params": text("params", "any, or 400M")}
    with gr.Row():
        fields["min_params"] = text("min_params", "no limit")
        fields["max_params"] = text("max_params", "no limit, or 3B")
    with gr.Row():
        fields["min_epochs"] = text("min_epochs", "no limit")
        fields["max_epochs"] = text("max_epochs", "no limit, or 16")
    with gr.Row():
        fields["members"] = text("members", "1, 8 or auto")
        fields["serve_tokens"] = text("serve_tokens", "none, or 1T")
    kinds = [("whole", WHOLE), ("any fraction", CONTINUOUS_EPOCHS)]
    fields["epochs"] = gr.Radio(
        kinds, value=state.DEFAULTS.epochs, label=label("epochs"), elem_id="in-epochs"
    )
    return fields


def outputs() -> Outputs:
    """Verdict and tiles, the picture directly below them, and everything else below that."""
    problem = gr.HTML(elem_id="problem", padding=False)
    answer = gr.HTML(elem_id="answer", padding=False)
    with gr.Row(elem_id="db-views"):
        picture = gr.Radio(
            [(title, key) for key, title in state.PICTURES.items()],
            value=state.DEFAULTS.picture,
            label="Picture",
            show_label=False,
            elem_id="in-picture",
            container=False,
            scale=4,
        )
        spend = gr.Checkbox(
            label="Use all compute anyway", elem_id="in-spend", container=False, min_width=190, scale=0
        )
    legend = gr.HTML(elem_id="legend", padding=False)
    plot = gr.Plot(show_label=False, elem_id="plot", container=False, buttons=[])
    calls = gr.HTML(elem_id="calls", padding=False)
    details = gr.HTML(elem_id="details", padding=False, render=False)  # below both columns
    pin = gr.Textbox(visible=False)
    return Outputs(
        problem, answer, legend, plot, calls, details, {"picture": picture, "spend": spend, "pin": pin}
    )


OURS = ("params", "unique_tokens", "epochs", "tokens", "weight_decay", "loss")
GUESSED = "found by its name"


def columns_offered(names: list[str], chosen: list[str]) -> list[Any]:
    """The lists to choose columns from, for a table with these; what was chosen stays if it is there."""
    offered = [(GUESSED, ""), *((name, name) for name in names)]
    return [gr.update(choices=offered, value=one if one in names else "") for one in chosen]


# -- own runs -----------------------------------------------------------------------------------------------


def runs() -> Runs:
    gr.HTML(_RUNS_HELP, padding=False)
    with gr.Row(elem_id="db-runs"):
        with gr.Column(min_width=280, scale=1):
            table = gr.File(
                label="Table of runs: W&B export, CSV, JSON or Parquet, up to 16 MB",
                file_types=[".csv", ".tsv", ".json", ".jsonl", ".parquet", ".pq"],
                type="filepath",
                elem_id="upload-runs",
                height=175,
            )
            name = text("name", "my-corpus", "my-calibration", label="Name of the calibration")
            with gr.Row():
                unsaid = "Weight decay, if the table does not say"
                decay = text("runs-decay", "0.1", label=unsaid, min_width=120)
                beyond = "Leave out runs beyond this many epochs"
                epochs = text("runs-epochs", "no limit", label=beyond, min_width=120)
            with gr.Accordion("Which column is which", open=False):
                columns = [
                    gr.Dropdown([(GUESSED, "")], value="", label=ours, elem_id=f"in-column-{ours}")
                    for ours in OURS
                ]
            refits = gr.Radio(
                [("none", 0), ("200", 200), ("1000", 1000)],
                value=200,
                label="Draws of the posterior for the intervals",
                elem_id="in-refits",
            )
            with gr.Row():
                start = gr.Button("Fit", variant="primary", elem_id="fit")
                stop = gr.Button("Stop", min_width=80, scale=0, elem_id="stop", interactive=False)
        with gr.Column(min_width=320, scale=3):
            checked = gr.HTML(markup.example_runs(), elem_id="runs-check", padding=False)
            result = gr.HTML(elem_id="runs-result", padding=False)
            use = gr.Button("Plan with this calibration", variant="primary", visible=False, elem_id="use")
            plot = gr.Plot(show_label=False, elem_id="runs-plot", container=False, buttons=[])
            key = gr.Textbox(visible=False)
    given = (table, name, decay, epochs, columns, refits, start, stop)
    return Runs(*given, checked, result, use, plot, key)


# -- pieces -------------------------------------------------------------------------------------------------


def text(name: str, example: str, value: str = "", **how: Any) -> gr.Textbox:
    how = {"label": label(name), "min_width": 90, "max_lines": 1, "max_length": state.LONGEST, **how}
    how |= {"elem_id": f"in-{name}", "elem_classes": "db-text"}
    return gr.Textbox(value or getattr(state.DEFAULTS, name, ""), placeholder=example, **how)


def _list(name: str, offered: list[Any], **how: Any) -> gr.Dropdown:
    return gr.Dropdown(
        offered, value=getattr(state.DEFAULTS, name), label=label(name), elem_id=f"in-{name}", **how
    )


def _steps(name: str) -> list[tuple[gr.Button, str, float]]:
    """The buttons that halve and double a budget."""
    how: dict[str, Any] = {"size": "sm", "min_width": 44, "scale": 0}
    halve = gr.Button("÷2", elem_id=f"halve-{name}", **how)
    double = gr.Button("×2", elem_id=f"double-{name}", **how)
    return [(halve, name, 0.5), (double, name, 2.0)]


def _slider(name: str, spoken: str) -> None:
    """A logarithmic slider below a field; page.js keeps the two together."""
    gr.HTML(
        f'<input type="range" class="db-slider" min="0" max="1000" step="1" data-for="{name}" '
        f'aria-label="{spoken}, as a slider">',
        padding=False,
    )


def laws(known: Calibration) -> list[tuple[str, str]]:
    own = f"choose for me ({law_label(known.form(None))})"
    return [(own, ""), *((law_label(form), form) for form in state.laws_of(known))]


def calibrations(key: str, known: Calibration) -> list[tuple[str, str]]:
    offered = [(name, name) for name in shipped_names()]
    return offered if key in shipped_names() else [*offered, (f"{known.name[:40]} (yours)", key)]


def header() -> str:
    """The name, what it is for, and examples."""
    links = "".join(
        f'<a class="db-chip" data-visit href="?{escape(chosen.query())}">{escape(title)}</a>'
        for title, chosen in state.PRESETS.items()
    )
    return (
        '<header class="db-header"><h1 class="db-home"><a href="./">databound</a></h1>'
        "<span>How large a model, how many epochs, which weight decay, when data and not compute is the "
        f'limit?</span><nav class="db-presets" aria-label="Examples">{links}</nav></header>'
    )


_RUNS_HELP = """<p class="db-caption">Fit the laws to your own runs and plan with the result; five runs are
enough to begin with. A Weights &amp; Biases export will do, or any table with one row per finished run and
its parameters, unique tokens, epochs (or tokens), weight decay and loss. The file stays on this server, is
read as data only, and is deleted after two hours.</p>"""
