"""The service as an application, and its start: `planner serve`. Nothing is loaded from, or sent to, anywhere
else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import fastapi
import h11
import uvicorn
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from calibration.web import api, docs, page
from calibration.web.jobs import Jobs
from calibration.web.limits import Limits, Refused, Shares, visitor_of
from calibration.web.metrics import access, exposition
from calibration.web.store import Store
from planner.inputs import InvalidInput
from planner.plans import plan

CONNECTIONS = 64, 400  # of one address, and of all
REQUEST_SECONDS = 20.0  # within which a whole request must have arrived, and a reply be read on
STOP_SECONDS = 30  # for requests in flight
_ENVIRONMENT = "DATABOUND_SERVE"  # what workers are told: the folder that they share, and trusted names


def create_app(folder: Path, trusted: Iterable[str] = ()) -> fastapi.FastAPI:
    """The service; calibrations that visitors bring are kept in the folder, which workers may share. Which
    sites may show the page in a frame is said by the variable FRAME_ANCESTORS.
    """

    @contextlib.asynccontextmanager
    async def running(app: fastapi.FastAPI) -> AsyncIterator[None]:
        # What the first visitor would wait for otherwise: libraries, laws, and a process for files.
        threading.Thread(target=plan, args=["250M", "5e18"], daemon=True).start()
        app.state.jobs.warm_up()
        yield
        await app.state.jobs.close()

    about = "Model size, epochs and weight decay when data is the limit: the calls of `planner` over HTTP."
    app = fastapi.FastAPI(
        title="databound", description=about, docs_url=None, redoc_url=None, lifespan=running
    )
    app.state.store = Store(folder)
    app.state.jobs = Jobs(folder)
    app.state.answers = api.Answers(app.state.store)

    @app.get("/healthz", tags=["hosting"])
    def healthz() -> dict[str, str]:
        """Whether this worker answers."""
        return {"status": "ok"}

    @app.get("/metrics", tags=["hosting"], response_class=PlainTextResponse)
    def metrics() -> Response:
        """Requests and their times by route, in the text format of Prometheus."""
        return Response(exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.include_router(api.router)
    app.include_router(docs.router)
    app.include_router(page.router)
    _answer_errors(app)
    framed_by = " ".join(re.split(r"[\s;,]+", os.environ.get("FRAME_ANCESTORS", "").strip())) or "'none'"
    app.add_middleware(Limits, trusted=tuple(trusted), framed_by=framed_by)
    return app


def _answer_errors(app: fastapi.FastAPI) -> None:
    """Whatever goes wrong is one sentence."""

    def trouble(status: int, detail: str, field: str | None = None, **more: Any) -> JSONResponse:
        return JSONResponse({"detail": detail, "field": field, **more}, status)

    @app.exception_handler(InvalidInput)
    async def invalid(request: fastapi.Request, error: InvalidInput) -> Response:
        problems = [api.TableProblem.model_validate(one) for one in getattr(error, "problems", ())]
        more = {"problems": [one.model_dump() for one in problems]} if problems else {}
        field = error.field
        if problems and problems[0].row == 0:  # a column that is missing, or means something else
            field = field or ("weight_decay" if problems[0].column == "weight_decay" else "columns")
        return trouble(422, str(error).split("\n")[0].rstrip(":"), field, **more)

    @app.exception_handler(Refused)
    async def busy(request: fastapi.Request, error: Refused) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def misshapen(request: fastapi.Request, error: RequestValidationError) -> Response:
        return trouble(422, *_in_a_sentence(error))

    @app.exception_handler(HTTPException)
    async def refused(request: fastapi.Request, error: HTTPException) -> Response:
        status = 422 if error.status_code == 400 else error.status_code  # deeper or larger than is read
        reply = trouble(status, _SAID.get(status, f"{error.detail}."))
        reply.headers.update(error.headers or {})
        return reply


_SAID = {
    404: "there is nothing at this address; GET /docs says what there is.",
    405: "ask otherwise: GET /docs says how.",
    422: "the body must be valid JSON.",
}
_KINDS = {
    "int_type": "a number",
    "float_type": "a number",
    "string_type": "a text",
    "string_too_long": "a text of at most {max_length} characters",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a calibration as JSON",
}


def _in_a_sentence(error: RequestValidationError) -> tuple[str, str | None]:
    """What is wrong with the first argument that is, and which that is."""
    found = error.errors()
    place = [str(part) for part in found[0]["loc"] if part not in ("body", "query")]
    if found[0]["type"] == "json_invalid":
        return _SAID[422], None
    if not place:
        such = '{"ud": "250M", "flops": "5e18"}'
        return f"the body must be a JSON object such as {such}, sent as Content-Type: application/json.", None
    name = place[0][:60]
    here = [one for one in found if name in map(str, one["loc"])]
    if here[0]["type"] == "missing":
        return f"{name} is needed.", name
    if here[0]["type"] == "extra_forbidden":
        return f"there is no {name!r} here; GET /docs has all there is.", name
    kinds = [_KINDS.get(one["type"], "").format(**one.get("ctx", {})) for one in here]
    if all(kinds):
        return f"{name} must be {' or '.join(dict.fromkeys(kinds))}.", name
    said = here[-1]["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{name} cannot be used: {said[:1].lower()}{said[1:200]}.", name


# -- serving


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    *,
    workers: int = 1,
    trusted: Iterable[str] = (),
    browser: bool = False,
    access_log: bool = False,
) -> None:
    """Serve until the process is told to stop; requests in flight are answered first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the folder is deleted then, too
    folder = Path(tempfile.mkdtemp(prefix="databound-"))
    try:
        if workers > 1:
            counts = folder / "metrics"
            counts.mkdir()
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(counts)
        names = [host, socket.gethostname(), *trusted]
        told = {"folder": str(folder), "trusted": names, "access_log": access_log}
        os.environ[_ENVIRONMENT] = json.dumps(told)
        if browser:
            threading.Thread(target=_open, args=[host, port], daemon=True).start()
        uvicorn.run(
            "calibration.web.server:application",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            http="calibration.web.server:Impatient",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            # A visitor may call itself anything, unless a proxy says who it is.
            proxy_headers=bool(tuple(trusted)),
            h11_max_incomplete_event_size=2**14,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def application() -> fastapi.FastAPI:
    """The application of a worker, as `serve` described it."""
    told = json.loads(os.environ[_ENVIRONMENT])
    if told["access_log"]:
        access.setLevel(logging.INFO)
        access.addHandler(logging.StreamHandler())
    return create_app(Path(told["folder"]), told["trusted"])


def _open(host: str, port: int) -> None:
    """A browser, once there is something to see."""
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            webbrowser.open(f"http://{host}:{port}")
            return
        time.sleep(0.1)


class Impatient(H11Protocol):
    """HTTP that closes a connection on which a request does not arrive in time, or an answer is not read, and
    takes so many connections of one address.
    """

    open_now: ClassVar[Shares] = Shares(
        CONNECTIONS,
        (429, f"{CONNECTIONS[0]} connections of your address are open already.", 5),
        (503, "more visitors are here than can be answered; try again soon.", 5),
    )

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._place = contextlib.ExitStack()
        # uvicorn binds the socket of several workers so that asyncio leaves Nagle's algorithm on: the body of
        # every answer waits 40 ms for the other side to acknowledge the head.
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visitor = visitor_of(self.client[0] if self.client else "")
        if self.config.proxy_headers:  # all connections are the proxy's, which counts for itself
            visitor = str(id(self))
        try:
            self._place.enter_context(self.open_now.held(visitor))
        except Refused as refused:
            self._refuse(refused)
        else:
            self._set("request", self._give_up)

    def data_received(self, data: bytes) -> None:
        self._set("request", self._give_up)
        super().data_received(data)
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._unset("request")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # a request that came along with the last one, in part
            self._unset_keepalive_if_required()
            self._set("request", self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset("request")
        self.resume_writing()
        self._place.close()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set("reply", self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unset("reply")

    def _set(self, timer: str, overdue: Callable[[], None]) -> None:
        if timer not in self._timers:
            self._timers[timer] = self.loop.call_later(REQUEST_SECONDS, overdue)

    def _unset(self, timer: str) -> None:
        if timer in self._timers:
            self._timers.pop(timer).cancel()

    def _give_up(self) -> None:
        late = f"the request did not arrive within {REQUEST_SECONDS:.0f} seconds."
        self._refuse(Refused(408, late, 5))

    def _refuse(self, refused: Refused) -> None:
        """A whole reply, where none has begun, and the end of the connection."""
        if self.conn.our_state is h11.IDLE:
            reply = refused.response()
            head = [f"HTTP/1.1 {reply.status_code} {HTTPStatus(reply.status_code).phrase}".encode()]
            head += [name.title() + b": " + value for name, value in reply.raw_headers]
            self.transport.write(b"\r\n".join([*head, b"", bytes(reply.body)]))
        self.transport.close()
