"""A visitor of the page without a browser: the same requests that the page makes."""

from __future__ import annotations

import functools
import http.client
import json
import secrets
import urllib.request
from pathlib import Path
from typing import Any

PATIENCE = 120


def config_of(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/config", timeout=PATIENCE) as reply:
        found: dict[str, Any] = json.load(reply)
    return found


def ask(address: str, config: dict[str, Any], changes: dict[str, str]) -> str:
    """The answer that a visitor with these inputs gets."""
    by_id = {component["id"]: component["props"] for component in config["components"]}
    update = next(
        d
        for d in config["dependencies"]
        if any(by_id.get(target, {}).get("elem_id") == "typed" for target, _ in d["targets"])
    )
    names = [(by_id[i].get("elem_id") or "").removeprefix("in-") for i in update["inputs"]]
    data = [changes.get(name, by_id[i].get("value")) for name, i in zip(names, update["inputs"], strict=True)]
    first, *_ = queued(address, update, data)
    return "".join(part for part in first if isinstance(part, str))


def queued(address: str, event: dict[str, Any], data: list[Any]) -> list[list[Any]]:
    """All that an event of the page returns, over its queue."""
    session = secrets.token_hex(6)
    body = {
        "data": data,
        "fn_index": event["id"],
        "session_hash": session,
        "trigger_id": event["targets"][0][0],
    }
    post(f"{address}/gradio_api/queue/join", body)
    stream = urllib.request.urlopen(
        f"{address}/gradio_api/queue/data?session_hash={session}", timeout=PATIENCE
    )
    found = []
    with stream:
        for line in stream:
            message = json.loads(line.decode().removeprefix("data:")) if line.startswith(b"data:") else {}
            if message.get("msg") in ("process_generating", "process_completed"):
                if not message["success"]:
                    raise ValueError(message)
                found.append(message["output"]["data"])
            if message.get("msg") == "process_completed":
                return found
    raise ValueError("the stream ended without an answer")


def post(address: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    content = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(address, json.dumps(body).encode(), content)
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.load(reply)


def upload(
    address: str, path: Path, headers: dict[str, str] | None = None, source: str = "127.0.0.1"
) -> dict[str, Any]:
    """An uploaded file as the page refers to it; `source` is the address that the visitor has."""
    boundary = secrets.token_hex(12)
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{path.name}"\r\n'
    body = f"{head}Content-Type: text/plain\r\n\r\n".encode() + path.read_bytes()
    body += f"\r\n--{boundary}--\r\n".encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}", **(headers or {})}
    request = urllib.request.Request(f"{address}/gradio_api/upload", body, kind)
    with urllib.request.build_opener(_From(source)).open(request, timeout=PATIENCE) as reply:
        (place,) = json.load(reply)
    return {"path": place, "orig_name": path.name, "meta": {"_type": "gradio.FileData"}}


class _From(urllib.request.HTTPHandler):
    """Connects from one of the many addresses of this machine."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def http_open(self, request: urllib.request.Request) -> Any:
        connect = functools.partial(http.client.HTTPConnection, source_address=(self.source, 0))
        return self.do_open(connect, request)  # type: ignore[arg-type]
