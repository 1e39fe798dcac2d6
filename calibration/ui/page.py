"""What the page does: everything that is shown follows from `state.Choices`, so one function draws it all.

Typed values, a doubled budget, an uploaded calibration and a link from a colleague take the same way through
`Page.show`. Where a calibration carries draws, the answer comes at once and its intervals later.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr
import pandas as pd

from calibration.fitting.runs.checks import Problem
from calibration.reports import report
from calibration.studies.verdict import blank_or
from calibration.ui import answers, layout, markup, pictures, state
from calibration.ui.drawing import legend
from calibration.ui.file_jobs import FITS_AT_ONCE, READS_AT_ONCE, FileJobs
from calibration.ui.kept import Calibrations, Downloads
from planner import inputs
from planner.calibration import Calibration
from planner.inputs import ALL, InvalidInput
from planner.options import label
from planner.plans import clear_caches
from planner.show.palette import law_label

LARGEST_UPLOAD = 16 * 2**20  # bytes; `gate` and Gradio itself refuse more while it arrives
USERS_AT_ONCE = 20
SHOWN = 7  # problem, answer, legend, picture, calls, details and address
_log = logging.getLogger(__name__)


class Page:
    """One server's page: the layout, and the calibrations and workers behind it."""

    def __init__(self) -> None:
        self.calibrations, self.jobs = Calibrations(_forget), FileJobs()
        self.folder = Path(tempfile.mkdtemp(prefix="databound-ui-"))
        self.downloads = Downloads(self.folder / "fitted")
        os.environ["GRADIO_TEMP_DIR"] = "files"  # below the folder, which the server works in
        self.blocks = self._build()

    def close(self) -> None:
        self.jobs.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what is shown -------------------------------------------------------------------------------------

    def show(self, choices: state.Choices, notes: list[str] | None = None) -> Iterator[tuple[Any, ...]]:
        """Problem, answer, legend, picture, calls, details and address; twice where intervals take longer.

        Where something is wrong, that is said and the last answer stays.
        """
        notes, address = notes or [], choices.query()
        rest = (gr.skip(),) * (SHOWN - 2)
        try:
            known = self.calibrations.get(choices.calibration)
            drawn = _draw(choices, known, self._pinned(choices)) if choices.pin else _drawn(choices, known)
            found, signs, picture, calls = drawn
            yield "", markup.answer(found, notes), signs, picture, calls, markup.details(found), address
            if not found.complete:
                whole = replace(answers.answer(choices, known), pinned=found.pinned)
                skip = gr.skip()
                yield "", markup.answer(whole, notes), skip, skip, skip, markup.details(whole), address
        except InvalidInput as error:
            yield markup.problem(error.said(label), notes, error.field or ""), *rest, address
        except Exception:  # a calibration from outside may hold numbers nobody thought of: keep serving
            _log.exception("no answer for %s", choices)
            sentence = "no plan can be computed from this calibration and these inputs; others would do."
            yield markup.problem(sentence, notes), *rest, address

    def _pinned(self, choices: state.Choices) -> answers.Answer | None:
        """The plan to hold this one against; None where its address no longer leads to one."""
        other = replace(state.from_query(choices.pin)[0], pin="")
        try:
            return answers.answer(other, self.calibrations.get(other.calibration), intervals=False)
        except InvalidInput:
            return None

    def update(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        """What was typed or picked."""
        yield from self.show(_choices(values))

    def restore(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The page that an address describes, unfolded where something would be out of sight."""
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
            known = self.calibrations.get(choices.calibration)
        except InvalidInput as error:
            notes = [*notes, str(error)[:1].upper() + str(error)[1:]]
            choices = replace(choices, calibration=state.DEFAULTS.calibration)
            known = self.calibrations.get(choices.calibration)
        choices, changed = state.fitting(choices, known)
        shown = {
            **asdict(choices),
            "calibration": gr.update(
                choices=layout.calibrations(choices.calibration, known), value=choices.calibration
            ),
            "law": gr.update(choices=layout.laws(known), value=choices.law),
            "spend": choices.spend == ALL,
        }
        components = tuple(shown[name] for name in state.NAMES)
        for answer in self.show(choices, [*notes, *changed]):
            yield *components, *answer
            components = tuple(gr.skip() for _ in state.NAMES)

    def bring(self, path: str | None, *values: Any) -> Iterator[tuple[Any, ...]]:
        """An uploaded calibration takes the place of the one in use, if it can be used."""
        choices = _choices(values)
        if path is None:
            return
        try:
            text = self.jobs.result("calibration", path)["calibration"]
            choices = replace(
                choices, calibration=self.calibrations.add(Calibration.model_validate_json(text))
            )
            notes = []
        except InvalidInput as error:
            notes = [f"The upload was not used: {error}"]
        yield from self._adopt(choices, notes)

    def stepped(self, name: str, factor: float) -> Callable[..., Iterator[tuple[Any, ...]]]:
        """A handler that doubles or halves one of the budgets."""

        def step(*values: Any) -> Iterator[tuple[Any, ...]]:
            choices = _choices(values)
            yield from self._scaled(choices, name if name == "ud" else choices.compute, factor)

        return step

    def dragged(self, flops: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The budget was dragged in the picture to so many FLOPs: its field follows, in its own unit."""
        choices = _choices(values)
        try:
            now = answers.answer(choices, self.calibrations.get(choices.calibration), intervals=False)
            factor = inputs.compute(flops) / now.plan.flops
        except InvalidInput:
            factor = 1.0  # what is wrong is said in the place of the answer
        yield from self._scaled(choices, choices.compute, factor, digits=3)

    def _scaled(
        self, choices: state.Choices, field: str, factor: float, digits: int = 4
    ) -> Iterator[tuple[Any, ...]]:
        try:
            text = _multiplied(choices, field, factor, digits)
        except InvalidInput:
            text = getattr(choices, field)
        choices = replace(choices, **{field: text})
        for shown in self.show(choices):
            yield *(getattr(choices, name) for name in _BUDGETS), *shown

    # -- own runs ------------------------------------------------------------------------------------------

    def check(self, path: str | None, decay: str, epochs: str, *columns: str) -> tuple[Any, ...]:
        """What an uploaded table holds, or what is wrong with it row by row; then its columns, to choose."""
        chosen = [column or "" for column in columns]
        if path is None:
            return markup.example_runs(), *layout.columns_offered([], chosen)
        try:
            found = self.jobs.result("check", path, **_reading(decay, epochs, chosen))
        except InvalidInput as error:
            said = markup.table_problems(str(error), getattr(error, "problems", []))
            return said, *(gr.skip() for _ in chosen)
        offered = layout.columns_offered(found["columns"], chosen)
        if "error" in found:
            return markup.table_problems(found["error"], [Problem(*p) for p in found["problems"]]), *offered
        lacking: dict[str, list[str]] = {}
        for d, form, reason in found["not_identified"]:
            lacking.setdefault(f"weight decay {d:g}: {reason}", []).append(law_label(form))
        missing = [f"{reason} ({', '.join(forms)})" for reason, forms in lacking.items()]
        return markup.run_summary(found["rows"], found["preview"], found["notes"], missing), *offered

    def fit(
        self, path: str | None, name: str, decay: str, epochs: str, refits: int, *columns: str
    ) -> Iterator[tuple[Any, ...]]:
        """Fit an uploaded table: progress, then metrics, picture, files and the key of the calibration.

        Last come the buttons: Fit can be pressed while nothing is being fitted, and Stop while something is.
        """
        idle, busy = _nothing_fitted(), _nothing_fitted(busy=True)
        if path is None:
            yield markup.table_problems("upload a table of runs first.", []), *idle
            return
        options = _reading(decay, epochs, columns)
        options |= {"refits": int(refits or 0), "name": (name or "").strip()[:60] or "my-calibration"}
        try:
            yield markup.progress("starting", 0.0), *busy
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                for message in self.jobs.run("fit", path, folder=folder, **options):
                    if not isinstance(message, dict):
                        yield markup.progress(*message), *busy
                yield *self._fitted(Path(folder)), *idle[-2:]
        except InvalidInput as error:
            yield markup.table_problems(str(error), getattr(error, "problems", [])), *idle
        except Exception:  # whatever a stranger's table led to: say so and let the next one be fitted
            _log.exception("no fit of %s", options["name"])
            yield markup.table_problems("this table could not be fitted; other runs would do.", []), *idle

    def _fitted(self, folder: Path) -> tuple[Any, ...]:
        """What a fit left in its folder, as the page shows it."""
        known = Calibration.load(folder / "calibration.json")
        stem = Path(answers.file_name(known)).stem
        names = {"calibration.json": f"{stem}.json", "report.html": f"{stem}-report.html"}
        links = self.downloads.add([(folder / old).rename(folder / new) for old, new in names.items()])
        runs = pd.read_json(folder / "runs.json", dtype=False, convert_dates=False, convert_axes=False)
        why = report.reason(known)
        said = f"{known.name} is fitted: {why}" if why else f"{known.name} is fitted."
        return (
            markup.fit_summary(said, _metrics(known), _left_out(known), links),
            pictures.predicted_observed(known, runs),
            gr.update(visible=True),
            self.calibrations.add(known),
        )

    def plan_with(self, key: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Plan with the calibration that was fitted. The tab comes first: a picture is measured as drawn."""
        shown = self._adopt(replace(_choices(values), calibration=key), [])
        yield gr.Tabs(selected="plan"), *(gr.skip() for _ in range(len(state.NAMES) + SHOWN))
        for one in shown:
            yield gr.skip(), *one

    # -- what happens when ----------------------------------------------------------------------------------

    def _build(self) -> gr.Blocks:
        title = "databound: plan training when data is the limit"
        with gr.Blocks(title=title, analytics_enabled=False, delete_cache=(600, 7200)) as blocks:
            gr.HTML(layout.header(), padding=False)
            address = gr.Textbox(visible=False)
            with gr.Tabs() as tabs:
                with gr.Tab("Plan", id="plan"):
                    with gr.Row(elem_id="db-columns"):
                        with gr.Column(elem_id="db-inputs", min_width=280, scale=1):
                            given = layout.inputs(Calibration.load())
                        with gr.Column(elem_id="db-output", min_width=320, scale=3):
                            found = layout.outputs()
                    found.details.render()  # type: ignore[no-untyped-call]
                with gr.Tab("Your own runs", id="runs"):
                    runs = layout.runs()
            gr.HTML(markup.footer(), padding=False)
            fields = {**given.fields, **found.choices}
            components = [fields[name] for name in state.NAMES]
            shown = [*found.shown, address]
            self._plan_events(given, fields, components, shown)
            self._fit_events(runs)
            address.change(None, address, None, js=_WRITE_ADDRESS, api_visibility="private")
            everything = [*components, *shown]
            runs.use.click(self.plan_with, [runs.key, *components], [tabs, *everything], **_QUICKLY)
            # At first, and whenever page.js finds itself at another address: back, forward, or an example.
            visited = gr.Button(visible="hidden", elem_id="visited")
            read = "() => window.location.search"
            for arrive in (blocks.load, visited.click):
                arrive(self.restore, address, [*everything, *given.folds], js=read, **_QUICKLY)
        return blocks.queue(default_concurrency_limit=USERS_AT_ONCE, max_size=400)  # type: ignore[no-any-return]

    def _plan_events(
        self, given: layout.Inputs, fields: dict[str, Any], components: list[Any], shown: list[Any]
    ) -> None:
        # Gradio's own events of a text box miss deletions or fire when it is unfolded: page.js presses this.
        typed = gr.Button(visible="hidden", elem_id="typed")
        calibration, compute = fields["calibration"], fields["compute"]
        picked = [c.input for c in components if c is not calibration and not isinstance(c, gr.Textbox)]
        gr.on([typed.click, *picked], self.update, components, shown, **_QUICKLY)
        calibration.input(self.switch, components, [*components, *shown], **_QUICKLY)
        reading = {**_QUICKLY, "concurrency_limit": READS_AT_ONCE, "concurrency_id": "files"}
        given.upload.upload(self.bring, [given.upload, *components], [*components, *shown], **reading)
        budgets = [fields[name] for name in _BUDGETS]
        dragged, place = gr.Button(visible="hidden", elem_id="dragged"), gr.Textbox(visible=False)
        read = "(_, ...rest) => [window.databound.dragged, ...rest]"
        dragged.click(self.dragged, [place, *components], [*budgets, *shown], js=read, **_QUICKLY)
        for button, name, factor in given.steps:
            button.click(self.stepped(name, factor), components, [*budgets, *shown], **_QUICKLY)
        compute.change(_only, compute, [fields[name] for name in state.BUDGETS], **_CALM)

    def _fit_events(self, runs: layout.Runs) -> None:
        table, decay, epochs = runs.table, runs.decay, runs.epochs
        reading: dict[str, Any] = {"concurrency_limit": READS_AT_ONCE, "concurrency_id": "files", **_CALM}
        changed = [table.upload, decay.change, epochs.change, *(one.input for one in runs.columns)]
        asked, told = [table, decay, epochs, *runs.columns], [runs.checked, *runs.columns]
        gr.on(changed, self.check, asked, told, trigger_mode="always_last", **reading)
        emptied = [runs.checked, *runs.outcome]
        table.clear(lambda: (markup.example_runs(), "", *_nothing_fitted()), None, emptied, **_CALM)
        given = [table, runs.name, decay, epochs, runs.refits, *runs.columns]
        many: dict[str, Any] = {"concurrency_limit": FITS_AT_ONCE, "concurrency_id": "fit", **_CALM}
        fitting = runs.start.click(self.fit, given, runs.outcome, trigger_mode="multiple", **many)
        # First the fit ends, then that is said: whatever it said last must not come after.
        stopping = runs.stop.click(None, cancels=[fitting], **_CALM)
        stopping.then(lambda: (markup.note("Stopped."), *_nothing_fitted()), None, runs.outcome, **_CALM)


# -- pieces --------------------------------------------------------------------------------------------


def _draw(
    choices: state.Choices, known: Calibration, pinned: answers.Answer | None = None
) -> tuple[answers.Answer, str, Any, str]:
    """The answer without intervals, its legend, picture and calls."""
    found = replace(answers.answer(choices, known, intervals=False), pinned=pinned)
    picture = pictures.PICTURES[choices.picture](found)
    signs = legend(picture) + markup.in_words(found, choices.picture)
    return found, signs, picture, markup.calls(found) + markup.headline(found)


@lru_cache(maxsize=128)  # most visitors look at what others have looked at
def _drawn(choices: state.Choices, known: Calibration) -> tuple[answers.Answer, str, Any, str]:
    return _draw(choices, known)


def _forget() -> None:
    """Let go of answers: each holds the calibration that it is from."""
    _drawn.cache_clear()
    clear_caches()


def _choices(values: tuple[Any, ...]) -> state.Choices:
    return state.of(dict(zip(state.NAMES, values, strict=True)))


def _only(compute: str) -> list[Any]:
    return [gr.update(visible=compute == name) for name in state.BUDGETS]


def _nothing_fitted(busy: bool = False) -> tuple[Any, ...]:
    """No picture, no calibration, and the buttons that start and stop a fit."""
    hidden = gr.update(visible=False)
    return None, hidden, "", gr.update(interactive=not busy), gr.update(interactive=busy)


def _multiplied(choices: state.Choices, field: str, factor: float, digits: int) -> str:
    if field == "ud":
        return inputs.short(inputs.count(choices.ud, "ud") * factor, digits)
    if field == "flops":
        return inputs.scientific(inputs.compute(choices.flops) * factor, digits)
    if field == "target_loss":
        return choices.target_loss  # a loss is not doubled
    amount = (
        inputs.hours(choices.hours) if field == "hours" else inputs.number(choices.budget_usd, "budget_usd")
    )
    return f"{amount * factor:.{digits}g}"


def _reading(decay: str, epochs: str, columns: Sequence[str | None]) -> dict[str, Any]:
    """How a table is to be read."""
    named = ",".join(f"{ours}={theirs}" for ours, theirs in zip(layout.OURS, columns, strict=True) if theirs)
    typed = {"max_epochs": epochs, "weight_decay": decay, "columns": named}
    return {name: (text or "").strip() or None for name, text in typed.items()}


def _metrics(known: Calibration) -> list[list[str]]:
    """The laws at each weight decay, best first: by their share of the average, then by the error on runs
    that were left out.
    """
    styles = {"held_out_error": ".2%", "r2": ".4f", "r2_multi": ".4f", "huber": ".3g"}
    rows = []
    for setting in known.settings:
        shares, metrics = setting.law_weights, {form: law.metrics for form, law in setting.laws.items()}
        errors = {form: metrics[form].get("held_out_error") for form in metrics}
        for form in sorted(errors, key=lambda f: (-shares.get(f, 0.0), errors[f] is None, errors[f] or 0.0)):
            star = " ★" if form == known.default_law else ""
            figures = [blank_or(metrics[form].get(key), style) for key, style in styles.items()]
            share = blank_or(shares.get(form), ".0%")
            rows.append([str(setting.weight_decay), law_label(form) + star, share, *figures])
    return rows


def _left_out(known: Calibration) -> list[str]:
    return [
        f"weight decay {setting.weight_decay}: {law_label(form)}, {reason}"
        for setting in known.settings
        for form, reason in setting.method.get("not_identified", {}).items()
    ]


_CALM: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
_QUICKLY: dict[str, Any] = {**_CALM, "trigger_mode": "always_last", "concurrency_limit": USERS_AT_ONCE}
_BUDGETS = ("ud", *state.BUDGETS)
_WRITE_ADDRESS = "(query) => window.databound.remember(query)"
