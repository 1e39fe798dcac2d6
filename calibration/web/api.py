"""The routes of /v1: Python's calls over HTTP. Requests carry values and bytes, never paths; answers are the
models that Python returns, as JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache
from typing import Annotated, Any, get_type_hints

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from calibration.web.calls import BODIES, CALLS, MOST_BUDGETS, MOST_SEARCHES, Asked
from calibration.web.jobs import Cancellation, Jobs
from calibration.web.store import Store
from planner import results
from planner.calibration import Calibration, shipped_names
from planner.inputs import InvalidInput, named
from planner.plans import AUTO

REMEMBERED = 500  # answers of a few kilobytes: most visitors ask what others have asked
ANSWER = "application/json"


class TableProblem(BaseModel):
    """A cell of a table that cannot be used; of a whole column the row is 0."""

    row: int
    column: str
    value: str = ""
    reason: str


class Trouble(BaseModel):
    """Why there is no answer."""

    detail: str  # one sentence: what, where, and what would do
    field: str | None  # the argument at fault
    problems: list[TableProblem] = []  # of a table


def _columns_of(kind: type) -> type[BaseModel]:
    """The model of an answer that is arrays of one length; null: there is no plan."""
    columns: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        many: Any = list[bool] if name == "refused" else list[float | None]
        columns[name] = {np.ndarray: many, np.ndarray | None: many | None}.get(hint, hint)
    return create_model(kind.__name__, __doc__=kind.__doc__, **columns)


ANSWERS: dict[str, Any] = {
    "plan": results.Plan,
    "compare": results.Comparison,
    "frontier": _columns_of(results.Frontier),
    "crossover": results.Crossover,
    "predict": results.Prediction | _columns_of(results.Predictions),
}
_SAID = {
    403: "Asked by another site.",
    411: "The length was not given.",
    413: "Larger than is read.",
    414: "A longer address than is read.",
    421: "Another name than that of this server.",
    422: "What was asked cannot be answered; the sentence says what would do.",
    429: "Too many requests of this address.",
    503: "More is asked than can be answered now.",
}
TROUBLES: dict[int | str, dict[str, Any]] = {
    status: {"model": Trouble, "description": said} for status, said in _SAID.items()
}
router = APIRouter(prefix="/v1", responses=TROUBLES)


# -- questions


class Answers:
    """Works out answers as JSON, and remembers those to short questions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered = lru_cache(REMEMBERED)(self._answer)

    def of(self, call: str, asked: Asked) -> bytes:
        given = asked.given()
        if call in ("frontier", "predict") or isinstance(given.get("calibration"), dict):
            return self._worked_out(call, given)  # as long as they may be, or a visitor's own
        return self._remembered(call, json.dumps(given, sort_keys=True))

    def _answer(self, call: str, given: str) -> bytes:
        return self._worked_out(call, json.loads(given))

    def _worked_out(self, call: str, given: dict[str, Any]) -> bytes:
        named = given.get("calibration")
        if isinstance(named, dict):
            given["calibration"] = self._store.remember(named)
        elif named is not None and named != AUTO:
            given["calibration"] = self._store.get(named)
        if call == "frontier":
            _check_budgets(given)
        found = CALLS[call](**given)
        if isinstance(found, BaseModel):
            return found.model_dump_json().encode()
        return to_json(found.to_dict(), inf_nan_mode="null")


def _check_budgets(given: dict[str, Any]) -> None:
    most = MOST_BUDGETS if given.get("members") is None else MOST_SEARCHES
    for name in ("ud", "flops"):
        several = given.get(name)
        if isinstance(several, list) and len(several) > most:
            raise InvalidInput(
                f"holds {len(several):,} budgets; this service plans {most:,} at a time.", field=name
            )


def _add(name: str, call: Callable[..., Any]) -> None:
    def answer(request: Request, asked: Any) -> Response:
        return Response(request.app.state.answers.of(name, asked), media_type=ANSWER)

    answer.__annotations__["asked"] = BODIES[name]
    about = {"name": name, "summary": name.title(), "description": BODIES[name].__doc__}
    router.post(f"/{name}", response_model=ANSWERS[name], **about)(answer)  # type: ignore[arg-type]


for _name, _call in CALLS.items():
    _add(_name, _call)


# -- calibrations


class Known(BaseModel):
    """A calibration that can be asked by name."""

    name: str
    title: str
    corpus: str
    weight_decays: list[float]
    laws: list[str]
    default_law: str


class Kept(BaseModel):
    """A calibration that was uploaded, and the id by which this machine knows it."""

    id: str
    name: str


@lru_cache(1)
def _shipped() -> list[Known]:
    return [_known(Calibration.load(name)) for name in shipped_names()]


def _known(one: Calibration) -> Known:
    return Known(
        name=one.name,
        title=one.title,
        corpus=one.corpus,
        weight_decays=[setting.weight_decay for setting in one.settings],
        laws=list(one.settings[0].laws),
        default_law=one.default_law,
    )


@router.get("/calibrations")
def calibrations() -> list[Known]:
    """The calibrations that ship with this release."""
    return _shipped()


def _raw(kind: str) -> dict[str, Any]:
    """What the documentation says of a body that is taken as it comes."""
    body = {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}, "required": True}
    return {"openapi_extra": {"requestBody": body}}


def jobs_of(request: Request) -> Jobs:
    found: Jobs = request.app.state.jobs
    return found


def visitor_of(request: Request) -> str:
    return request.client.host if request.client else ""


@router.post("/calibrations", **_raw("application/json"))
async def upload(request: Request) -> Kept:
    """Bring a calibration file, to ask by its id from then on; the oldest go when there is no room."""
    found = await result(request, "calibration", "calibration.json")

    def keep() -> Kept:
        known = Calibration.model_validate_json(found["calibration"])
        return Kept(id=request.app.state.store.add(known), name=known.name)

    return await run_in_threadpool(keep)


# -- tables of runs


class TableOptions(BaseModel):
    """How a table is read."""

    model_config = ConfigDict(extra="forbid")
    file: Annotated[str, Field(max_length=200)] = "table"  # what sentences call it
    max_epochs: Annotated[str | None, Field(max_length=40)] = None
    weight_decay: Annotated[str | None, Field(max_length=40)] = None
    columns: Annotated[str | None, Field(max_length=2000)] = None  # params=config.n_params,loss=val_loss
    where: Annotated[str | None, Field(max_length=500)] = None  # a condition on rows
    pattern: Annotated[str | None, Field(max_length=500)] = None  # of settings inside names of runs
    drop_missing: bool = False  # leave out runs that crashed or do not say what is needed, and say so


class FitOptions(TableOptions):
    """How a table is read and fitted."""

    name: Annotated[str, Field(min_length=1, max_length=60)] = "my-calibration"
    refits: Annotated[int, Field(ge=0, le=2000)] = 1000


class LawFit(BaseModel):
    """How a law did at one weight decay."""

    weight_decay: float
    law: str
    share: float | None  # of the average
    held_out_error: float | None  # relative, of runs that were left out
    r2: float | None


class Fitted(BaseModel):
    """A calibration, and what is to be said of the fit."""

    id: str  # by which this machine knows the calibration
    calibration: dict[str, Any]  # to be saved, or sent with requests to any machine
    runs: int
    summary: str
    laws: list[LawFit]
    warnings: list[str]  # what was noticed, guessed or left out when the table was read


class NotIdentified(BaseModel):
    """A law that the runs do not determine."""

    weight_decay: float
    law: str
    reason: str


class Checked(BaseModel):
    """What a table holds as it was read, or what is wrong with it."""

    detail: str | None  # why it cannot be fitted; null: it can
    problems: list[TableProblem]
    columns: list[str]  # by the table's own names
    runs: int | None
    preview: list[list[str]]  # run, params, unique_tokens, epochs, weight_decay, loss of the first runs
    by_weight_decay: list[list[str]]  # each: runs, single-epoch runs, params, unique tokens, epochs, loss
    not_identified: list[NotIdentified]
    warnings: list[str]


async def told(
    request: Request, task: str, file: str, **options: Any
) -> AsyncIterator[tuple[str, float] | dict[str, Any]]:
    """Progress of a worker on the body, and last what it makes of it; it ends when the visitor leaves."""
    content, cancellation = await request.body(), Cancellation()
    messages = jobs_of(request).run(
        task, content, file, visitor=visitor_of(request), cancellation=cancellation, **options
    )
    leaving = asyncio.create_task(_leaves(request))
    leaving.add_done_callback(lambda _: cancellation.cancel())
    message = None
    try:
        while not isinstance(message, dict):
            message = await run_in_threadpool(next, messages)
            yield message
    finally:
        leaving.cancel()
        messages.close()  # type: ignore[attr-defined]


async def _leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def result(request: Request, task: str, file: str, **options: Any) -> dict[str, Any]:
    """The result alone."""
    found: dict[str, Any] = {}
    async for message in told(request, task, file, **options):
        if isinstance(message, dict):
            found = message
    return found


def problems_of(cells: Iterable[Any], columns: Iterable[tuple[str, str]]) -> list[TableProblem]:
    """What is wrong with a table."""
    found = [TableProblem(row=0, column=column, reason=_plain(said)) for column, said in columns]
    return found + [TableProblem(row=r, column=c, value=v, reason=_plain(why)) for r, c, v, why in cells]


def _plain(sentence: str) -> str:
    """A sentence that calls options by the names that they have here."""
    return named(sentence.rstrip(":"), str)


_TABLE = _raw("application/octet-stream")


@router.post("/check", **_TABLE)
async def check(request: Request, options: Annotated[TableOptions, Query()]) -> Checked:
    """How a table of runs (CSV, JSON or Parquet) is read: columns, first runs, and problems row by row."""
    found = await result(request, "check", **options.model_dump())
    return Checked(
        detail=_plain(found["error"]) if "error" in found else None,
        problems=problems_of(found.get("problems", ()), found.get("columns", ())),
        columns=found["names"],
        runs=found.get("runs"),
        preview=found.get("preview", []),
        by_weight_decay=found.get("rows", []),
        not_identified=[
            NotIdentified(weight_decay=decay, law=law, reason=reason)
            for decay, law, reason in found.get("not_identified", ())
        ],
        warnings=[*map(_plain, found.get("notes", ()))],
    )


@router.post("/fit", **_TABLE)
async def fit(request: Request, options: Annotated[FitOptions, Query()]) -> Fitted:
    """Fit the laws to a table of runs (CSV, JSON or Parquet): a calibration to plan with."""
    found = await result(request, "fit", **options.model_dump())
    return await run_in_threadpool(_fitted, request.app.state.store, found)


def _fitted(store: Store, found: dict[str, Any]) -> Fitted:
    from calibration.reports.report import reason

    known = Calibration.model_validate_json(found["calibration"])
    laws = [
        LawFit(
            weight_decay=setting.weight_decay,
            law=form,
            share=setting.law_weights.get(form),
            held_out_error=law.metrics.get("held_out_error"),
            r2=law.metrics.get("r2"),
        )
        for setting in known.settings
        for form, law in setting.laws.items()
    ]
    return Fitted(
        id=store.add(known),
        calibration=json.loads(found["calibration"]),
        runs=found["runs"],
        summary=reason(known) or f"{known.name} is fitted.",
        laws=laws,
        warnings=[*map(_plain, found["notes"])],
    )
