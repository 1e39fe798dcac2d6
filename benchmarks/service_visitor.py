"""A visitor of `planner serve`, one request over a connection and from an address of its own, and what the
server occupies meanwhile.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 600.0
MEGABYTE = 1e6


@dataclass(frozen=True)
class Reply:
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    server: str,
    path: str,
    body: Any = None,
    *,
    method: str | None = None,
    headers: dict[str, str] | None = None,
    source: str = "127.0.0.1",
    patience: float = PATIENCE,
) -> Reply:
    """A GET or, with a body (bytes, or what is sent as JSON), a POST; `source` is the visitor's address."""
    place = urlsplit(server)
    connection = http.client.HTTPConnection(
        place.hostname or "", place.port, timeout=patience, source_address=(source, 0)
    )
    given = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        given.setdefault("Content-Type", "application/json")
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, given)
        reply = connection.getresponse()
        named = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(reply.status, named, reply.read())
    finally:
        connection.close()


def occupied(pid: int) -> float:
    """Megabytes of a process and of those that it started."""
    return sum(_resident(one) for one in family_of(pid))


def family_of(pid: int) -> set[int]:
    """A process, those that it started, and those that they did."""
    family, grown = {pid}, True
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        parents[int(name.split(" ", 1)[0])] = int(rest.split()[1])
    while grown:
        more = {child for child, parent in parents.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return family


def _resident(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")) / MEGABYTE
