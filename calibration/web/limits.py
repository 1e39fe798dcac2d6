"""What a request must be before anything of it is parsed, how many are served at once, and what every reply
says to the browser.

host      one that this server is known by, so that no stranger's name can be pointed at it (DNS rebinding)
origin    the server itself: other sites cannot ask in a visitor's name
body      of a known length, within what its route takes; JSON of so many values; uploads within a quota
rate      so many requests of each address, answered at once and within a second (token bucket)
places    so many answers are worked out at once, two for each address; who waits too long is told to return

Each worker process counts for itself. An address is one of IPv4, or a network of 64 bits of IPv6.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calibration.web.metrics import observe
from planner.inputs import InvalidInput

LARGEST_UPLOAD, LARGEST_JSON, LARGEST_OTHER = 16 * 2**20, 2 * 2**20, 2**16  # bytes of a body
MOST_VALUES = 200_000  # of a JSON body, counted by what stands between them
_BETWEEN = b",[{:"
MOST_FORGOTTEN = 32 * 2**20  # bytes of a request that was refused, which are read all the same
LONGEST_TARGET = 8_192  # characters of path and query
UPLOADS = {"/v1/fit", "/v1/check", "/v1/calibrations", "/page/check", "/page/fit"}
ARRIVING = 48 * 2**20, 160 * 2**20  # bytes of bodies held at one time: of each address, and of all
QUOTA = 96 * 2**20, 512 * 2**20  # bytes uploaded within the last QUOTA_SECONDS
QUOTA_SECONDS = 1800.0
LEAST_CHARGED = 2**16  # bytes of an upload, however small it is
RATE, BURST = 25.0, 250.0  # requests of one address per second, and at once
ADDRESSES = 10_000  # that are remembered
EACH_AT_ONCE, ALL_AT_ONCE = 32, 4_000  # requests that are being answered
EACH_PLANNING, ALL_PLANNING = 2, 4
WAIT = 10.0  # seconds for a place
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_log = logging.getLogger(__name__)


class Refused(InvalidInput):
    """A request that goes no further: status and sentence, and after how many seconds it may be repeated."""

    def __init__(self, status: int, sentence: str, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry = status, retry

    def response(self) -> JSONResponse:
        later = {} if self.retry is None else {"retry-after": str(self.retry)}
        said = {"detail": str(self), "field": None}
        return JSONResponse(said, self.status, {"connection": "close", **later})

    async def reply(self, receive: Receive, send: Send) -> None:
        """The sentence; then the rest of the request is read, because many listen only once they have sent
        everything, and forgotten.
        """
        reply = self.response()
        await send({"type": "http.response.start", "status": self.status, "headers": reply.raw_headers})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        left, more = MOST_FORGOTTEN, True
        while more and left > 0:
            message = await receive()
            left -= len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": b""})


Refusal = tuple[int, str, int]  # what one is made of


class Shares:
    """What is held of something at a time: so much by each address, and so much by all. Who asks for more is
    refused, with a status and a sentence for either.
    """

    def __init__(self, most: tuple[int, int], one: Refusal, everyone: Refusal | None = None) -> None:
        self._of_one, self._of_all = most
        self._one, self._everyone = one, everyone or one
        self._held: Counter[str] = Counter()

    def check(self, visitor: str, amount: int = 1) -> None:
        if not self.has_room(visitor, amount):
            raise Refused(*self._one)
        if self._held.total() + amount > self._of_all:
            raise Refused(*self._everyone)

    def has_room(self, visitor: str, amount: int = 1) -> bool:
        return self._held[visitor] + amount <= self._of_one

    @contextlib.contextmanager
    def held(self, visitor: str, amount: int = 1) -> Iterator[None]:
        self.check(visitor, amount)
        self._held[visitor] += amount
        try:
            yield
        finally:
            self._held[visitor] -= amount
            self._held += Counter()  # forgets who holds nothing


class Limits:
    """Passes on what is in order, and answers the rest with one sentence."""

    def __init__(self, app: ASGIApp, trusted: Iterable[str] = (), framed_by: str = "'none'") -> None:
        self.app = app
        self.headers = {**HEADERS, "content-security-policy": f"{POLICY} {framed_by}"}
        if framed_by == "'none'":  # whoever may show it in a frame can be said in the policy only
            self.headers["x-frame-options"] = "DENY"
        self.trusted = {"localhost", *(name.lower() for name in trusted)}
        present = 429, f"{EACH_AT_ONCE} requests of your address are being answered already.", 1
        arriving = 503, "more is being uploaded than this server holds at a time; try again soon.", 5
        quota = 429, "too much was uploaded within half an hour; try again later.", 600
        self.present = Shares((EACH_AT_ONCE, ALL_AT_ONCE), present)
        self.bodies = Shares(ARRIVING, arriving)
        self.quota = Shares(QUOTA, quota)
        self.rate, self.places = Rate(), Places()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the start and the end; the server speaks plain HTTP only
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # as GET, of which the server below sends no body
            scope = {**scope, "method": "GET"}
        start, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._pass(scope, receive, sending)
        except Refused as refused:
            await refused.reply(receive, sending)
        except Exception:  # a stranger's calibration may hold numbers that nobody thought of: keep serving
            _log.exception("no answer")
            if not status:
                sorry = "no answer can be worked out from this; other values would do."
                await Refused(422, sorry).reply(receive, sending)
        finally:
            observe(scope, status, time.perf_counter() - start)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        visitor = visitor_of((scope.get("client") or ("",))[0])
        scope["client"] = (visitor, 0)
        self._check_host(headers)
        _check_origin(headers)
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            raise Refused(414, "the address is longer than any that this service gives out.")
        self.rate.charge(visitor)
        with self.present.held(visitor):
            path, length = scope["path"], _length(headers)
            if scope["method"] in ("GET", "OPTIONS"):
                await self.app(scope, receive, send)
                return
            self._check_size(visitor, path, length)
            with self.bodies.held(visitor, length):
                try:
                    body = await Request(scope, receive).body()
                except ClientDisconnect:
                    raise Refused(400, "the request ended early.") from None
                receive_again = _again(body, receive)
                if path in UPLOADS:
                    self._charge(visitor, len(body))
                    await _until_left(self.app(scope, receive_again, send), receive)
                    return
                if sum(body.count(mark) for mark in _BETWEEN) > MOST_VALUES:
                    raise Refused(413, f"a request of more than {MOST_VALUES:,} values is not read.")
                async with self.places.planning(visitor):
                    await self.app(scope, receive_again, send)

    def _charge(self, visitor: str, size: int) -> None:
        """For what really arrived, of which nothing may be kept."""
        charged = contextlib.ExitStack()
        charged.enter_context(self.quota.held(visitor, max(size, LEAST_CHARGED)))
        asyncio.get_running_loop().call_later(QUOTA_SECONDS, charged.close)

    def _check_host(self, headers: dict[str, str]) -> None:
        _, name = _parts(f"//{headers.get('host', '')}")
        if name not in self.trusted and _address(name) is None:
            known = "--trust-host adds one when it starts"
            raise Refused(421, f"this server does not go by the name {name[:80]!r}; {known}.")

    def _check_size(self, visitor: str, path: str, length: int) -> None:
        most = LARGEST_JSON if path.startswith("/v1/") else LARGEST_OTHER
        if path in UPLOADS:
            most = LARGEST_UPLOAD
        if length > most:
            said = f"a body of {length:,} bytes is too large: up to {most >> 10:,} kB are taken here."
            raise Refused(413, said)
        if path in UPLOADS:
            self.quota.check(visitor, length)


def visitor_of(address: str) -> str:
    """Whom an address counts for: whoever has one of IPv6 has a network of them."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        network = ipaddress.ip_network((found, 64), strict=False)
        return str(found.ipv4_mapped or network.network_address)
    return address[:64]


def _check_origin(headers: dict[str, str]) -> None:
    """Requests that a browser makes for another site name that site, or say that they cross sites."""
    origin = headers.get("origin")
    foreign = origin is not None and _parts(origin)[0] != headers.get("host", "").lower()
    crossing = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if foreign or crossing:
        raise Refused(403, "another site may not ask this server in your name; open its own address.")


# -- how many, and how much


class Rate:
    """Requests of each address: a bucket of tokens that fills up again."""

    def __init__(self) -> None:
        self._full: dict[str, float] = {}  # when the bucket of an address is full again

    def charge(self, visitor: str) -> None:
        now = time.monotonic()
        full = max(self._full.pop(visitor, now), now) + 1 / RATE
        refused = full > now + BURST / RATE
        self._full[visitor] = full - refused / RATE
        if len(self._full) > ADDRESSES:
            del self._full[next(iter(self._full))]
        if refused:
            raise Refused(429, f"more than {RATE:.0f} requests per second come from your address.", 1)


class Places:
    """Where answers are worked out."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(ALL_PLANNING)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def planning(self, visitor: str) -> AsyncIterator[None]:
        """A place of the visitor's own, then one of all."""
        own = self._own.setdefault(visitor, asyncio.Semaphore(EACH_PLANNING))
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT):
                    for places in (own, self._all):
                        await held.enter_async_context(places)
            except TimeoutError:
                raise Refused(503, "more is being asked than can be answered; try again soon.", 5) from None
            yield


# -- pieces


def _length(headers: dict[str, str]) -> int:
    """Of a body in one piece. Where two lengths are told, a proxy might see another request here."""
    given = "" if "transfer-encoding" in headers else headers.get("content-length", "0")
    if not (given.isascii() and given.isdigit()):
        raise Refused(411, "the length of the request must be given.")
    return int(given)


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read already, once more; then whatever comes, such as that the visitor left."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


async def _until_left(answering: Awaitable[None], receive: Receive) -> None:
    """An answer that is given up, with the worker on its file, once its visitor is gone."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answer, leaving = asyncio.ensure_future(answering), asyncio.ensure_future(left())
    leaving.add_done_callback(lambda _: answer.cancel())
    try:
        await answer
    except asyncio.CancelledError:
        if not leaving.done():  # it is the server that ends
            raise
    finally:
        leaving.cancel()


def _parts(address: str) -> tuple[str, str]:
    """Host and port, and the host alone; nothing where it is no address."""
    try:
        found = urlsplit(address)
        return found.netloc.lower(), found.hostname or ""
    except ValueError:
        return "", ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
