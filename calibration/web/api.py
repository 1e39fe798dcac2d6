"""The routes of /v1: Python's calls over HTTP. Requests carry values and bytes, never paths; answers are the
models that Python returns, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import lru_cache
from typing import Annotated, Any, get_type_hints

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from calibration.web.calls import BODIES, CALLS, MOST_BUDGETS, MOST_SEARCHES, Asked
from calibration.web.store import Store
from planner import results
from planner.calibration import Calibration, shipped_names
from planner.inputs import InvalidInput, named
from planner.plans import AUTO

REMEMBERED = 500  # answers of a few kilobytes: most visitors ask what others have asked


def _plain(sentence: str) -> str:
    """A sentence that calls options by the names that they have here."""
    return named(sentence.rstrip(":"), str)


Sentence = Annotated[str, AfterValidator(_plain)]


class TableProblem(BaseModel):
    """A cell of a table that cannot be used; of a whole column the row is 0."""

    row: int
    column: str
    value: str = ""
    reason: Sentence


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
        self._remembered = lru_cache(REMEMBERED)(
            lambda call, given: self._worked_out(call, json.loads(given))
        )

    def of(self, call: str, asked: Asked) -> bytes:
        given = asked.model_dump(exclude_unset=True)
        if call in ("frontier", "predict") or isinstance(given.get("calibration"), dict):
            return self._worked_out(call, given)  # as long as they may be, or a visitor's own
        return self._remembered(call, json.dumps(given, sort_keys=True))

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
            said = f"holds {len(several):,} budgets; this service plans {most:,} at a time."
            raise InvalidInput(said, field=name)


def _add(name: str, call: Callable[..., Any]) -> None:
    def answer(request: Request, asked: Any) -> Response:
        return Response(request.app.state.answers.of(name, asked), media_type="application/json")

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


@router.get("/calibrations")
def calibrations() -> list[Known]:
    """The calibrations that ship with this release."""
    return [
        Known(
            name=one.name,
            title=one.title,
            corpus=one.corpus,
            weight_decays=[setting.weight_decay for setting in one.settings],
            laws=list(one.settings[0].laws),
            default_law=one.default_law,
        )
        for one in map(Calibration.load, shipped_names())
    ]


def _raw(kind: str) -> dict[str, Any]:
    """What the documentation says of a body that is taken as it comes."""
    body = {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}, "required": True}
    return {"openapi_extra": {"requestBody": body}}


@router.post("/calibrations", **_raw("application/json"))
async def upload(request: Request, file: Annotated[str, Query(max_length=200)] = "calibration.json") -> Kept:
    """Bring a calibration file, to ask by its id from then on; the oldest go when there is no room."""
    found = await result(request, "calibration", file)

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
    warnings: list[Sentence]  # what was noticed, guessed or left out when the table was read


class NotIdentified(BaseModel):
    """A law that the runs do not determine."""

    weight_decay: float
    law: str
    reason: str


class Checked(BaseModel):
    """What a table holds as it was read, or what is wrong with it."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    detail: Sentence | None = None  # why it cannot be fitted; null: it can
    problems: list[TableProblem] = []
    columns: list[str]  # by the table's own names
    runs: int | None = None
    preview: list[list[str]] = []  # run, params, unique_tokens, epochs, weight_decay, loss of the first runs
    by_weight_decay: list[list[str]] = []  # each: runs, one-epoch runs, params, unique tokens, epochs, loss
    not_identified: list[NotIdentified] = []
    warnings: list[Sentence] = []


async def told(
    request: Request, task: str, file: str, **options: Any
) -> AsyncGenerator[dict[str, Any], None]:
    """What a worker says of the body: {"progress": ...}, and last {"result": ...}."""
    visitor = request.client.host if request.client else ""
    said: AsyncGenerator[dict[str, Any], None] = request.app.state.jobs.run(
        task, await request.body(), file, visitor, **options
    )
    return said


async def result(request: Request, task: str, file: str, **options: Any) -> dict[str, Any]:
    """The result alone."""
    async with aclosing(await told(request, task, file, **options)) as messages:
        found: dict[str, Any] = [message async for message in messages][-1]["result"]
    return found


_TABLE = _raw("application/octet-stream")


@router.post("/check", **_TABLE)
async def check(request: Request, options: Annotated[TableOptions, Query()]) -> Checked:
    """How a table of runs (CSV, JSON or Parquet) is read: columns, first runs, and problems row by row."""
    return Checked.model_validate(await result(request, "check", **options.model_dump()))


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
        warnings=found["warnings"],
    )
