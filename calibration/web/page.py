"""The page: its files, and what its script asks for.

The address is the state. The script sends it, as text, whenever an input changes, and gets the answer as HTML
and the picture as plotly takes it; where something is wrong, the sentence and its field. Files are sent as
they are, with the options of reading them in the query.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import cache, lru_cache
from html import escape
from importlib.resources import files
from mimetypes import guess_type
from pathlib import Path
from string import Template
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from calibration.reports.document import dark_rules
from calibration.web import answers, api, drawing, markup, pictures, state
from planner import inputs
from planner.calibration import Calibration, shipped_names
from planner.inputs import InvalidInput
from planner.laws import form_named
from planner.options import label
from planner.show.palette import law_label

router = APIRouter(include_in_schema=False)
_log = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"
_NO_PLAN = "no plan can be computed from this calibration and these inputs; others would do."


# -- files ----------------------------------------------------------------------------------------------


@router.get("/")
def index(request: Request) -> Response:
    return _sent(request, "index.html", "no-cache")


@router.get("/static/{name}")
def static(request: Request, name: str) -> Response:
    return _sent(request, name, "max-age=300")


def _sent(request: Request, name: str, keep: str) -> Response:
    """One of the page's files, packed where the browser takes that, or that it has not changed."""
    content, packed, mark = _file(name)
    headers = {"etag": mark, "cache-control": keep, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = packed, {**headers, "content-encoding": "gzip"}
    return Response(content, headers=headers, media_type=guess_type(name)[0])


@cache
def _file(name: str) -> tuple[bytes, bytes, str]:
    """Its content, the same packed, and a mark that changes with it."""
    if name == "plotly.js":  # as the installed package has it
        content = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    elif name in (path.name for path in _STATIC.iterdir()):
        content = (_STATIC / name).read_bytes()
    else:
        raise HTTPException(404, "the page has no such file.")
    if name == "index.html":
        content = Template(content.decode()).substitute(markup.parts()).encode()
    if name == "page.css":  # each colour of a picture has its pair on dark paper
        dark = [dark_rules(f".dark {holder}", drawing.spelled) for holder in (".js-plotly-plot", ".legend")]
        content += "".join([*dark, dark_rules(".dark figure")]).encode()
    return content, gzip.compress(content, 6), f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


# -- plans ----------------------------------------------------------------------------------------------


class Asked(BaseModel):
    """What the page asks for: the state, as the address holds it."""

    query: str = Field("", max_length=8000)
    arrive: bool = False  # by a link, or with another calibration: what does not fit gives way
    whole: bool = False  # with intervals, which may take longer


@router.post("/page/answer")
def answer(request: Request, asked: Asked) -> dict[str, Any]:
    """The answer to a state; without `whole` its intervals are left out where they take time."""
    get = request.app.state.store.get
    choices, notes = state.from_query(asked.query)
    if not asked.arrive:
        return _shown(choices, [], get, whole=asked.whole)
    try:
        known = get(choices.calibration)
    except InvalidInput as error:
        notes.append(error.said(label))
        choices = replace(choices, calibration=state.DEFAULTS.calibration)
        known = get(choices.calibration)
    choices, changed = state.fitting(choices, known)
    return {
        **_shown(choices, [*notes, *changed], get, whole=asked.whole, first=True),
        "fields": asdict(choices),
        "lists": {"law": _laws(known), "calibration": _calibrations(choices.calibration, known)},
    }


def _shown(
    choices: state.Choices, notes: list[str], get: Any, *, whole: bool, first: bool = False
) -> dict[str, Any]:
    """What the page shows for these choices. Where one of them is wrong, that is said with its field, and the
    last answer stays; a page that comes `first` has none yet and gets the answer without what is wrong.
    """
    problem, asked, drawn = None, choices, dict[str, Any]()
    for _ in state.NAMES:
        try:
            drawn = dict(_drawn(choices, get, whole))
            break
        except InvalidInput as error:
            problem = problem or {"field": error.field or "", "text": error.said(label)}
            if not first or error.field not in state.NAMES or getattr(choices, error.field) in ("", None):
                break
            choices = replace(choices, **{error.field: getattr(state.DEFAULTS, error.field)})
        except Exception:  # a calibration from outside may hold numbers nobody thought of: keep serving
            _log.exception("no answer for %s", choices)
            problem = {"field": "", "text": _NO_PLAN}
            break
    if drawn and (other := markup.shown_for(asked, choices)):
        notes = [*notes, f"shown for {other}."]
        drawn["headline"] = f"For {escape(other)}: {drawn['headline']}"
    said = "".join(map(markup.note, notes))
    return {**drawn, "problem": problem, "query": asked.query(), "notes": said}


def _drawn(choices: state.Choices, get: Any, whole: bool) -> dict[str, Any]:
    """The answer and its picture; those of many visitors are the same."""
    known = get(choices.calibration)
    if whole:
        found = replace(answers.answer(choices, known), pinned=_pinned(choices, get))
        return {"answer": markup.answer(found), "details": markup.details(found), "complete": True}
    if choices.pin or choices.calibration not in shipped_names():
        return _draw(choices, known, _pinned(choices, get))
    return _draw_shipped(choices)


def _draw(choices: state.Choices, known: Calibration, pinned: answers.Answer | None = None) -> dict[str, Any]:
    found = replace(answers.answer(choices, known, intervals=False), pinned=pinned)
    figure = pictures.PICTURES[choices.picture](found)
    return {
        "answer": markup.answer(found),
        "legend": drawing.legend(figure) + markup.in_words(found),
        "caption": markup.caption(found, figure.drew),
        "calls": markup.calls(found),
        "details": markup.details(found),
        "headline": markup.headline(found),
        "figure": figure.plain(),
        "complete": found.complete,
        "asked": answers.question(found),
        "decays": known.weight_decay_range,
        "numbers": _numbers(found),
    }


@lru_cache(maxsize=128)
def _draw_shipped(choices: state.Choices) -> dict[str, Any]:
    return _draw(choices, Calibration.load(choices.calibration))


def _numbers(found: answers.Answer) -> dict[str, float]:
    """What the sliders and the line that is dragged stand at, read as the plan reads it."""
    c, p = found.choices, found.plan
    numbers = {"ud": p.ud, "flops": p.flops}
    if c.compute == state.IN_HOURS:
        numbers["hours"] = inputs.hours(c.hours)
    if c.compute == state.IN_MONEY:
        numbers["budget_usd"] = inputs.number(c.budget_usd, "budget_usd")
    return {**numbers, "weight_decay": p.weight_decay if c.weight_decay else 0.0}


def _pinned(choices: state.Choices, get: Any) -> answers.Answer | None:
    """The plan to hold this one against; None where its address no longer leads to one."""
    if not choices.pin:
        return None
    other = replace(state.from_query(choices.pin)[0], pin="")
    try:
        return answers.answer(other, get(other.calibration), intervals=False)
    except InvalidInput:
        return None


def _laws(known: Calibration) -> list[list[str]]:
    """The laws to choose from: name, label, and what is meant in words."""
    own = known.form(None)
    offered = [(form, law_label(form)) for form in state.laws_of(known)]
    return [
        [form, shown, form_named(form or own).summary]
        for form, shown in [("", f"choose for me ({law_label(own)})"), *offered]
    ]


def _calibrations(key: str, known: Calibration) -> list[list[str]]:
    offered = [[name, name, Calibration.load(name).title] for name in shipped_names()]
    if key not in shipped_names():
        offered.append([key, f"{known.name[:40]} (yours)", known.title])
    return offered


# -- files of visitors ----------------------------------------------------------------------------------


@router.post("/page/check")
async def check(request: Request, options: Annotated[api.FitOptions, Query()]) -> dict[str, Any]:
    """What a run table holds, or what is wrong with it."""
    try:
        found = await api.result(request, "check", **options.model_dump())
    except InvalidInput as error:
        return _wrong(error)
    if "detail" in found:
        return {**_refused(**found), "names": found["columns"]}
    return {"html": markup.run_summary(found), "names": found["columns"], "problems": {}}


@router.post("/page/fit")
async def fit(request: Request, options: Annotated[api.FitOptions, Query()]) -> StreamingResponse:
    """Fit a run table: progress as it is made, then laws, picture, files and calibration, as JSON lines."""
    await request.body()  # before the reply begins, which waits for what comes next: the visitor leaves
    lines = (json.dumps(one) + "\n" async for one in _fitted(request, options))
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def _fitted(request: Request, options: api.FitOptions) -> AsyncIterator[dict[str, Any]]:
    try:
        async with aclosing(await api.told(request, "fit", **options.model_dump())) as messages:
            async for message in messages:
                found = message.get("result")
                yield message if found is None else await run_in_threadpool(_outcome, request, found)
    except InvalidInput as error:
        yield _wrong(error)
    except Exception:  # whatever a stranger's table led to: say so and let the next one be fitted
        _log.exception("no fit of %s", options.file)
        yield _wrong(InvalidInput("this table could not be fitted; other runs would do."))


def _outcome(request: Request, result: dict[str, Any]) -> dict[str, Any]:
    """What a fit led to, as the page shows it, with its files."""
    known = Calibration.model_validate_json(result["calibration"])
    stem = Path(answers.file_name(known)).stem
    return {
        "html": markup.fit_summary(known, result["sections"]),
        "calibration": request.app.state.store.add(known),
        "files": {
            "calibration": [f"{stem}.json", result["calibration"]],
            "report": [f"{stem}-report.html", result["report"]],
        },
    }


def _wrong(error: InvalidInput) -> dict[str, Any]:
    """Why a file is of no use."""
    return _refused(error.args[0], error.field, getattr(error, "problems", ()))


def _refused(detail: str, field: str | None, problems: Iterable[dict[str, Any]], **_: Any) -> dict[str, Any]:
    """What is wrong with a table: cells in a list, and everything else at the field that mends it, once."""
    said = markup.column_problems((one["column"], one["reason"]) for one in problems if not one["row"])
    html = markup.cell_problems(tuple(one.values()) for one in problems if one["row"])
    if not said and not html:
        said = markup.not_taken(detail) or {field or "": markup.as_page_words(detail)}
    return {"html": html, "problems": {field: _begun(text) for field, text in said.items()}}


def _begun(sentence: str) -> str:
    """With a capital letter, unless it begins with the name of a file."""
    first = sentence.partition(" ")[0]
    return sentence if "." in first else sentence[:1].upper() + sentence[1:]
