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
from collections import Counter
from collections.abc import AsyncIterator, Iterable
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
from calibration.web.jobs import Busy, Jobs
from calibration.web.limits import Limits, visitor_of
from calibration.web.metrics import access, exposition
from calibration.web.store import Store
from planner.inputs import InvalidInput
from planner.plans import plan

CONNECTIONS, CONNECTIONS_OF_ONE = 400, 64
REQUEST_SECONDS = 20.0  # within which a whole request must have arrived, and a reply be read on
STOP_SECONDS = 30  # for requests in flight
_ENVIRONMENT = "DATABOUND_SERVE"  # what workers are told: the folder that they share, and trusted names
_log = logging.getLogger(__name__)


def create_app(folder: Path, trusted: Iterable[str] = ()) -> fastapi.FastAPI:
    """The service; calibrations that visitors bring are kept in the folder, which workers may share. Which
    sites may show the page in a frame is said by the variable FRAME_ANCESTORS.
    """

    @contextlib.asynccontextmanager
    async def running(app: fastapi.FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=_warm_up, args=[app.state.jobs], daemon=True).start()
        yield
        app.state.jobs.close()

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


def _warm_up(jobs: Jobs) -> None:
    """What the first visitor would wait for otherwise: libraries, laws, and a process for files."""
    plan("250M", "5e18")
    jobs.warm_up()


def _answer_errors(app: fastapi.FastAPI) -> None:
    """Whatever goes wrong is one sentence."""

    def trouble(status: int, detail: str, field: str | None = None, **more: Any) -> JSONResponse:
        headers = {"retry-after": "5"} if status in (429, 503) else None
        return JSONResponse({"detail": detail, "field": field, **more}, status, headers)

    @app.exception_handler(InvalidInput)
    async def invalid(request: fastapi.Request, error: InvalidInput) -> Response:
        problems = api.problems_of(getattr(error, "problems", ()), getattr(error, "columns", ()))
        more = {"problems": [one.model_dump() for one in problems]} if problems else {}
        status, field = 429 if isinstance(error, Busy) else 422, error.field
        if problems and problems[0].row == 0:  # a column that is missing, or means something else
            field = field or ("weight_decay" if problems[0].column == "weight_decay" else "columns")
        return trouble(status, str(error).split("\n")[0].rstrip(":"), field, **more)

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

    open_now: ClassVar[Counter[str]] = Counter()
    _overdue: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _counted: str | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # uvicorn binds the socket of several workers so that asyncio leaves Nagle's algorithm on: the body of
        # every answer waits 40 ms for the other side to acknowledge the head.
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visitor = visitor_of(self.client[0] if self.client else "")
        behind_proxy = self.config.proxy_headers  # all connections are the proxy's, which counts for itself
        if not behind_proxy and self.open_now[visitor] >= CONNECTIONS_OF_ONE:
            self._refuse(429, f"{CONNECTIONS_OF_ONE} connections of your address are open already.")
        elif self.open_now.total() >= CONNECTIONS:
            self._refuse(503, "more visitors are here than can be answered; try again soon.")
        else:
            self._counted = visitor
            self.open_now[visitor] += 1
            self._expect()

    def data_received(self, data: bytes) -> None:
        if self._counted is None:
            return
        self._expect()
        super().data_received(data)
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._arrived()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # a request that came along with the last one, in part
            self._unset_keepalive_if_required()
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self.resume_writing()
        if self._counted is not None:
            self.open_now[self._counted] -= 1
            if not self.open_now[self._counted]:
                del self.open_now[self._counted]
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _expect(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _arrived(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self) -> None:
        self._refuse(408, f"the request did not arrive within {REQUEST_SECONDS:.0f} seconds.")

    def _refuse(self, status: int, sentence: str) -> None:
        """A whole reply, where none has begun, and the end of the connection."""
        if self.conn.our_state is h11.IDLE:
            body = json.dumps({"detail": sentence, "field": None})
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"
            self.transport.write((head + body).encode())
        self.transport.close()
