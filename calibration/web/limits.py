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
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterable, Iterator
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calibration.web.metrics import Observed

LARGEST_UPLOAD, LARGEST_JSON, LARGEST_OTHER = 16 * 2**20, 2 * 2**20, 2**16  # bytes of a body
MOST_VALUES = 200_000  # of a JSON body, counted by what stands between them
_BETWEEN = b",[{:"
MOST_FORGOTTEN = 32 * 2**20  # bytes of a request that was refused, which are read all the same
LONGEST_TARGET = 8_192  # characters of path and query
UPLOADS = {f"/{part}" for part in ("v1/fit", "v1/check", "v1/calibrations")}
UPLOADS |= {f"/page/{part}" for part in ("calibration", "check", "fit")}
ARRIVING_OF_ONE, ARRIVING_OF_ALL = 48 * 2**20, 160 * 2**20  # bytes of bodies held at one time
QUOTA_OF_ONE, QUOTA_OF_ALL = 96 * 2**20, 512 * 2**20  # bytes uploaded within the last QUOTA_SECONDS
QUOTA_SECONDS = 1800.0
LEAST_CHARGED = 2**16  # bytes of an upload, however small it is
RATE, BURST = 25.0, 250.0  # requests of one address per second, and at once
ADDRESSES = 10_000  # that are remembered
EACH_AT_ONCE, EACH_PLANNING, ALL_PLANNING = 32, 2, 4
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


class Refused(Exception):
    """A request that goes no further: status and sentence, and after how many seconds it may be repeated."""

    def __init__(self, status: int, sentence: str, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry = status, sentence, retry

    async def reply(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The sentence; then the rest of the request is read, because many listen only once they have sent
        everything, and forgotten.
        """
        headers = {"connection": "close"}
        if self.retry is not None:
            headers["retry-after"] = str(self.retry)

        async def sending(message: Message) -> None:
            await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

        await JSONResponse({"detail": self.sentence, "field": None}, self.status, headers)(
            scope, receive, sending
        )
        left, more = MOST_FORGOTTEN, True
        while more and left > 0:
            message = await receive()
            left -= len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": b""})


class Limits:
    """Passes on what is in order, and answers the rest with one sentence."""

    def __init__(self, app: ASGIApp, trusted: Iterable[str] = (), framed_by: str = "'none'") -> None:
        self.app = app
        self.headers = {**HEADERS, "content-security-policy": f"{POLICY} {framed_by}"}
        if framed_by == "'none'":  # whoever may show it in a frame can be said in the policy only
            self.headers["x-frame-options"] = "DENY"
        self.trusted = {"localhost", *(name.lower() for name in trusted)}
        self.bodies, self.quota, self.rate, self.places = Bodies(), Quota(), Rate(), Places()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the service speaks plain HTTP only
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["method"] == "HEAD":  # as GET, of which the server below sends no body
            scope = {**scope, "method": "GET"}
        observed = Observed(scope)
        send = self._with_headers(observed.sending(send))
        try:
            await self._pass(scope, receive, send)
        except Refused as refused:
            await refused.reply(scope, receive, send)
        except Exception:  # a stranger's calibration may hold numbers that nobody thought of: keep serving
            _log.exception("no answer")
            if not observed.status:
                sorry = "no answer can be worked out from this; other values would do."
                await Refused(422, sorry).reply(scope, receive, send)
        finally:
            observed.done()

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        visitor = visitor_of((scope.get("client") or ("",))[0])
        scope["client"] = (visitor, 0)
        self._check_host(headers)
        _check_origin(headers)
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            raise Refused(414, "the address is longer than any that this service gives out.")
        self.rate.charge(visitor)
        async with self.places.of(visitor):
            path, length = scope["path"], _length(headers)
            if scope["method"] in ("GET", "OPTIONS"):
                await self.app(scope, receive, send)
                return
            self._check_size(visitor, path, length)
            with self.bodies.held(visitor, length):
                body = await _whole(receive, length)
                if path in UPLOADS:
                    self.quota.charge(visitor, len(body))
                    await self.app(scope, _again(body, receive), send)
                    return
                _check_values(body)
                async with self.places.planning(visitor):
                    await self.app(scope, _again(body, receive), send)

    def _with_headers(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        return sending

    def _check_host(self, headers: dict[str, str]) -> None:
        try:
            name = (urlsplit(f"//{headers.get('host', '')}").hostname or "").lower()
        except ValueError:
            name = ""
        if name not in self.trusted and not _is_address(name):
            raise Refused(
                421,
                f"this server does not go by the name {name[:80]!r}; --trust-host adds one when it starts.",
            )

    def _check_size(self, visitor: str, path: str, length: int) -> None:
        if path in UPLOADS:
            most = LARGEST_UPLOAD
        else:
            most = LARGEST_JSON if path.startswith("/v1/") else LARGEST_OTHER
        if length > most:
            raise Refused(
                413, f"a body of {length:,} bytes is too large: up to {most >> 10:,} kB are taken here."
            )
        if path in UPLOADS:
            self.quota.check(visitor, length)


def visitor_of(address: str) -> str:
    """Whom an address counts for: whoever has one of IPv6 has a network of them."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address)
        if isinstance(found, ipaddress.IPv6Address):
            if found.ipv4_mapped is not None:
                return str(found.ipv4_mapped)
            return str(ipaddress.ip_network((found, 64), strict=False).network_address)
    return address[:64]


def _check_origin(headers: dict[str, str]) -> None:
    """Requests that a browser makes for another site name that site, or say that they cross sites."""
    origin = headers.get("origin")
    try:
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        foreign = True
    crossing = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if foreign or crossing:
        raise Refused(403, "another site may not ask this server in your name; open its own address.")


# -- how many, and how much


class Rate:
    """Requests of each address: a bucket of tokens that fills up again."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when that was

    def charge(self, visitor: str) -> None:
        now = time.monotonic()
        tokens, then = self._buckets.pop(visitor, (BURST, now))
        tokens = min(BURST, tokens + RATE * (now - then))
        self._buckets[visitor] = (max(tokens - 1.0, 0.0), now)
        while len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        if tokens < 1.0:
            raise Refused(429, f"more than {RATE:.0f} requests per second come from your address.", 1)


class Places:
    """Who is being answered, and who waits for it."""

    def __init__(self) -> None:
        self._present: Counter[str] = Counter()
        self._planning = asyncio.Semaphore(ALL_PLANNING)
        self._own: dict[str, asyncio.Semaphore] = {}

    @contextlib.asynccontextmanager
    async def of(self, visitor: str) -> AsyncIterator[None]:
        if self._present[visitor] >= EACH_AT_ONCE:
            raise Refused(429, f"{EACH_AT_ONCE} requests of your address are being answered already.", 1)
        self._present[visitor] += 1
        try:
            yield
        finally:
            self._present[visitor] -= 1
            if not self._present[visitor]:
                del self._present[visitor]
                self._own.pop(visitor, None)

    @contextlib.asynccontextmanager
    async def planning(self, visitor: str) -> AsyncIterator[None]:
        """A place of the visitor's own, then one of all."""
        own = self._own.setdefault(visitor, asyncio.Semaphore(EACH_PLANNING))
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT):
                    for places in (own, self._planning):
                        await held.enter_async_context(places)
            except TimeoutError:
                raise Refused(503, "more is being asked than can be answered; try again soon.", 5) from None
            yield


class Bodies:
    """Bytes of requests that are held at one time, as they were announced."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def held(self, visitor: str, length: int) -> Iterator[None]:
        if self._held[visitor] + length > ARRIVING_OF_ONE or self._held.total() + length > ARRIVING_OF_ALL:
            raise Refused(503, "more is being uploaded than this server holds at a time; try again soon.", 5)
        self._held[visitor] += length
        try:
            yield
        finally:
            self._held[visitor] -= length
            if not self._held[visitor]:
                del self._held[visitor]


class Quota:
    """How much was uploaded lately, by each address and by all; charged with what really arrived."""

    def __init__(self) -> None:
        self._uploaded: deque[tuple[float, str, int]] = deque()

    def check(self, visitor: str, size: int) -> None:
        """Raise where so much more is too much."""
        while self._uploaded and self._uploaded[0][0] < time.monotonic() - QUOTA_SECONDS:
            self._uploaded.popleft()
        own = sum(amount for _, who, amount in self._uploaded if who == visitor)
        everybody = sum(amount for _, _, amount in self._uploaded)
        if own + size > QUOTA_OF_ONE or everybody + size > QUOTA_OF_ALL:
            raise Refused(429, "too much was uploaded within half an hour; try again later.", 600)

    def charge(self, visitor: str, size: int) -> None:
        self._uploaded.append((time.monotonic(), visitor, max(size, LEAST_CHARGED)))


# -- pieces


def _check_values(body: bytes) -> None:
    if sum(body.count(mark) for mark in _BETWEEN) > MOST_VALUES:
        raise Refused(413, f"a request of more than {MOST_VALUES:,} values is not read.")


def _length(headers: dict[str, str]) -> int:
    """Of a body in one piece. Where two lengths are told, a proxy might see another request here."""
    given = "" if "transfer-encoding" in headers else headers.get("content-length", "0")
    if not (given.isascii() and given.isdigit()):
        raise Refused(411, "the length of the request must be given.")
    return int(given)


async def _whole(receive: Receive, length: int) -> bytes:
    parts, left, more = [], length, True
    while more and left >= 0:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request ended early.")
        parts.append(message.get("body", b""))
        left -= len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read already, once more; then whatever comes, such as that the visitor left."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
