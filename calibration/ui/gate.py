"""What a request must be before the page sees it, and what every reply says to the browser.

host      one that this server is known by, so that no stranger's name can be pointed at it (DNS rebinding)
origin    the page itself: other sites cannot upload or ask in a visitor's name
route     one that the page itself uses; Gradio has fifty more
body      of a known and small length; uploads within a quota, for each visitor and for all
inputs    plain values; a file only where the page asks for one, by a path that this server made for an upload
files     are sent only if they were uploaded here, or fitted here (`kept`)
"""

from __future__ import annotations

import ipaddress
import json
import re
import time
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import gradio as gr
from fastapi import HTTPException
from fastapi.responses import PlainTextResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 2**16
LONGEST_TEXT = 8000  # characters: an address with a pin in it
MOST_WAITING = 40  # messages for a visitor who does not read them; an answer is up to five
LEAST_CHARGED = 2**16  # bytes of an upload, however small it is
_SESSION = re.compile("[A-Za-z0-9_-]{1,64}")
QUOTA_OF_ONE, QUOTA_OF_ALL = 96 * 2**20, 512 * 2**20  # bytes uploaded within the last QUOTA_SECONDS
QUOTA_SECONDS = 1800.0
API = "/gradio_api"
UPLOAD, ASK = f"{API}/upload", f"{API}/queue/join"
# What the page's own scripts ask for. Everything else that Gradio offers (proxies, calls by name, streams,
# recordings, component servers) is refused: some of it reads files or fetches addresses.
_PAGES = ("/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", f"{API}/theme.css")
_READ = {*_PAGES, f"{API}/queue/data", f"{API}/upload_progress", f"{API}/startup-events"}
_BELOW = ("/assets/", "/static/", "/fitted/", f"{API}/heartbeat/")
_WRITE = {UPLOAD, ASK, f"{API}/cancel", f"{API}/reset"}
_FILE = f"{API}/file="
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Gate:
    """Passes on what is in order, and answers the rest with one sentence."""

    def __init__(
        self, app: ASGIApp, blocks: gr.Blocks, trusted: Iterable[str] = (), largest_upload: int = 16 * 2**20
    ) -> None:
        self.app, self.blocks = app, blocks
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
        except HTTPException as refused:
            sentence = refused.detail[:1].upper() + refused.detail[1:]
            close = {"connection": "close"}  # the rest of the request is not read
            reply = PlainTextResponse(sentence, refused.status_code, close)
            await reply(scope, receive, _with_headers(send))
            return
        await self.app(scope, receive, _with_headers(send))

    async def _checked(self, scope: Scope, receive: Receive) -> Receive:
        """What the page may receive of this request; HTTPException where it may not have it at all."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._check_host(headers)
        check_origin(headers)
        path = scope["path"]
        self._check_route(scope["method"], path)
        if scope["method"] in ("GET", "HEAD"):
            return receive
        length = _length(headers)
        if path == UPLOAD:
            return await self._checked_upload(str((scope.get("client") or ("",))[0]), length, receive)
        if length > LARGEST_BODY:
            raise HTTPException(413, f"a request of {length:,} bytes is more than the page ever sends.")
        body = await _whole(receive, length)
        return _again(self._checked_inputs(body) if path == ASK else body, receive)

    async def _checked_upload(self, visitor: str, length: int, receive: Receive) -> Receive:
        """An upload that is within the quotas, which are charged with what really arrives."""
        if length > self.largest_upload + LARGEST_BODY:
            raise HTTPException(413, f"the page reads files of up to {self.largest_upload >> 20} MB.")
        try:
            self.uploads.check(visitor, length)
        except HTTPException:
            await _whole(receive, length, keep=False)  # a browser listens only once it has sent everything
            raise
        arrived = 0

        async def charged() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if not message.get("more_body", False):
                self.uploads.charge(visitor, max(arrived, LEAST_CHARGED))
            return message

        return charged

    def _check_route(self, method: str, path: str) -> None:
        if method in ("GET", "HEAD"):
            used = path in _READ or (path.startswith(_BELOW) and len(path) < 300)
            used = used or (
                path.startswith(_FILE) and path.removeprefix(_FILE) in self.blocks.upload_file_set
            )
        else:
            used = method == "POST" and path in _WRITE
        if not used:
            raise HTTPException(403, "the page has nothing there.")

    def _checked_inputs(self, body: bytes) -> bytes:
        """Gradio copies whatever file an input names to where everybody can read it, however deep inside:
        what is passed on is put together here, from values that were checked.
        """
        strange = HTTPException(400, "the request is not one that the page makes.")
        try:
            asked = json.loads(body)
            event, values, session = asked["fn_index"], asked["data"], asked["session_hash"]
            trigger = asked.get("trigger_id")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise strange from None
        if type(event) is not int or type(values) is not list or type(trigger) not in (int, type(None)):
            raise strange
        if event not in self.blocks.fns or not isinstance(session, str) or not _SESSION.fullmatch(session):
            raise strange
        waiting = self.blocks._queue.pending_messages_per_session.get(session)
        if waiting is not None and waiting.qsize() > MOST_WAITING:
            raise HTTPException(429, "too many answers wait to be read; read them first.")
        takes = enumerate(self.blocks.fns[event].inputs)
        files = {place for place, one in takes if isinstance(one, gr.File | gr.UploadButton)}
        data = [self._file(one) if place in files else _plain(one) for place, one in enumerate(values)]
        kept = {"data": data, "fn_index": event, "session_hash": session, "trigger_id": trigger}
        return json.dumps(kept).encode()

    def _file(self, value: Any) -> dict[str, Any] | None:
        """A file that was uploaded here, as Gradio refers to it."""
        if value is None:
            return None
        path = value.get("path") if isinstance(value, dict) else None
        if not isinstance(path, str) or path not in self.blocks.upload_file_set:
            raise HTTPException(400, "a file must be uploaded here first; upload it again.")
        name = _plain(value.get("orig_name"))
        return {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}

    def _check_host(self, headers: dict[str, str]) -> None:
        try:
            name = (urlsplit(f"//{headers.get('host', '')}").hostname or "").lower()
        except ValueError:
            name = ""
        if name not in self.trusted and not _is_address(name):
            raise HTTPException(
                421, f"this server does not go by the name {name[:80]!r}; `planner ui --trust-host` adds one."
            )


def check_origin(headers: dict[str, str]) -> None:
    """Requests that a browser makes for another page name that page, or say that they cross sites."""
    origin = headers.get("origin")
    try:
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        foreign = True
    crossing = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
    if foreign or crossing:
        raise HTTPException(403, "only the page itself may ask this server; open its address in a browser.")


class Quota:
    """How much was uploaded lately, by each visitor and by all."""

    def __init__(self) -> None:
        self._uploaded: deque[tuple[float, str, int]] = deque()

    def check(self, visitor: str, size: int) -> None:
        """Raise where so much more is too much."""
        while self._uploaded and self._uploaded[0][0] < time.monotonic() - QUOTA_SECONDS:
            self._uploaded.popleft()
        own = sum(amount for _, who, amount in self._uploaded if who == visitor)
        everybody = sum(amount for _, _, amount in self._uploaded)
        if own + size > QUOTA_OF_ONE or everybody + size > QUOTA_OF_ALL:
            raise HTTPException(429, "too much was uploaded within half an hour; try again later.")

    def charge(self, visitor: str, size: int) -> None:
        self._uploaded.append((time.monotonic(), visitor, size))


# -- pieces -------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A text, a number, a choice or nothing."""
    if isinstance(value, dict | list):
        raise HTTPException(400, "a field holds a text, a number or a choice.")
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise HTTPException(413, f"a field holds up to {LONGEST_TEXT:,} characters.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise HTTPException(400, "a field holds characters that no text has.") from None
    return value


def _length(headers: dict[str, str]) -> int:
    given = headers.get("content-length", "" if "transfer-encoding" in headers else "0")
    if not given.isdigit():
        raise HTTPException(411, "the length of the request must be given.")
    return int(given)


async def _whole(receive: Receive, length: int, *, keep: bool = True) -> bytes:
    body, left, more = b"", length, True
    while more and left >= 0:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the request ended early.")
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
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sending


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
