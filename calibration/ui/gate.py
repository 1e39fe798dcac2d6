"""What a request must be before the page sees it, and what every reply says to the browser.

host      one that this server is known by, so that no stranger's name can be pointed at it (DNS rebinding)
origin    the page itself: other sites cannot upload or ask in a visitor's name
body      of a known and small length; uploads within a quota, for each visitor and for all
files     by the name the server gave them: a body that names an address elsewhere is refused, because
          nothing is ever fetched
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 2**20
QUOTA_OF_ONE, QUOTA_OF_ALL = 96 * 2**20, 512 * 2**20  # bytes uploaded within the last QUOTA_SECONDS
QUOTA_SECONDS = 1800.0
UPLOAD = "/gradio_api/upload"
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Refused(Exception):
    """A status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Gate:
    """Passes on what is in order, and answers the rest with one sentence."""

    def __init__(self, app: App, trusted: Iterable[str] = (), largest_upload: int = 16 * 2**20) -> None:
        self.app = app
        self.trusted = {"localhost", *(name.lower() for name in trusted)}
        self.largest_upload = largest_upload
        self.uploads = Quota()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page speaks plain HTTP only
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            receive = await self._checked(scope, receive)
        except Refused as refused:
            await _say(_with_headers(send), refused.status, str(refused))
            return
        await self.app(scope, receive, _with_headers(send))

    async def _checked(self, scope: Scope, receive: Receive) -> Receive:
        """What the page may receive of this request; Refused where it may not have it at all."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._check_host(headers)
        check_origin(headers)
        if scope["method"] in ("GET", "HEAD"):
            return receive
        length = _length(headers)
        if scope["path"].rstrip("/").endswith(UPLOAD):
            if length > self.largest_upload + LARGEST_BODY:
                raise Refused(413, f"the page reads files of up to {self.largest_upload >> 20} MB.")
            try:
                self.uploads.spend(str((scope.get("client") or ("",))[0]), length)
            except Refused:
                await _whole(
                    receive, length, keep=False
                )  # a browser listens only once it has sent everything
                raise
            return receive
        if length > LARGEST_BODY:
            raise Refused(413, f"a request of {length:,} bytes is more than the page ever sends.")
        body = await _whole(receive, length)
        check_files(body)
        return _again(body, receive)

    def _check_host(self, headers: dict[str, str]) -> None:
        try:
            name = (urlsplit(f"//{headers.get('host', '')}").hostname or "").lower()
        except ValueError:
            name = ""
        if name not in self.trusted and not _is_address(name):
            raise Refused(
                421, f"this server does not go by the name {name[:80]!r}; `planner ui --trust-host` adds one."
            )


def check_origin(headers: dict[str, str]) -> None:
    """Requests that a browser makes for another page name that page, or say that they cross sites."""
    origin = headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    crossing = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if foreign or crossing:
        raise Refused(403, "only the page itself may ask this server; open its address in a browser.")


def check_files(body: bytes) -> None:
    """Files are named as the server named them: an address elsewhere would be fetched."""
    try:
        waiting: list[Any] = [json.loads(body)] if body else []
    except (ValueError, RecursionError):
        return  # the page says what is wrong with it
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            path = value.get("path")
            if isinstance(path, str) and "://" in path:
                raise Refused(400, "a file must be uploaded; this server fetches nothing from elsewhere.")
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


class Quota:
    """How much was uploaded lately, by each visitor and by all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: deque[tuple[float, str, int]] = deque()

    def spend(self, visitor: str, size: int) -> None:
        now = self._clock()
        while self._spent and self._spent[0][0] < now - QUOTA_SECONDS:
            self._spent.popleft()
        own = sum(amount for _, who, amount in self._spent if who == visitor)
        everybody = sum(amount for _, _, amount in self._spent)
        if own + size > QUOTA_OF_ONE or everybody + size > QUOTA_OF_ALL:
            raise Refused(429, "too much was uploaded within half an hour; try again later.")
        self._spent.append((now, visitor, size))


# -- pieces -------------------------------------------------------------------------------------------------


def _length(headers: dict[str, str]) -> int:
    given = headers.get("content-length", "" if "transfer-encoding" in headers else "0")
    if not given.isdigit():
        raise Refused(411, "the length of the request must be given.")
    return int(given)


async def _whole(receive: Receive, length: int, *, keep: bool = True) -> bytes:
    body, left, more = b"", length, True
    while more and left >= 0:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request ended early.")
        part = message.get("body", b"")
        body, left = body + part if keep else b"", left - len(part)
        more = message.get("more_body", False)
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read already, once more; then whatever comes, such as that the visitor left."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = {name for name, _ in HEADERS}
            kept = [pair for pair in message.get("headers", ()) if pair[0].lower() not in ours]
            message = {**message, "headers": [*kept, *HEADERS]}
        await send(message)

    return sending


async def _say(send: Send, status: int, sentence: str) -> None:
    body = (sentence[:1].upper() + sentence[1:]).encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    headers.append((b"connection", b"close"))  # the rest of the request is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
