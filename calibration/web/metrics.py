"""What is counted for Prometheus, and the access log: routes, statuses and times, never what was asked."""

from __future__ import annotations

import logging
import os
import time

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from starlette.types import Message, Scope, Send

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # where several workers count together; read when this module is imported
KNOWN_METHODS = {"GET", "POST", "OPTIONS"}
access = logging.getLogger("databound.access")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_requests = Counter("databound_requests", "Requests answered.", ["route", "method", "status"])
_seconds = Histogram("databound_request_seconds", "From head to answer.", ["route"], buckets=_BUCKETS)


class Observed:
    """One request: how it was answered, and how long that took."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._start, self.status = scope, time.perf_counter(), 0

    def sending(self, send: Send) -> Send:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            await send(message)

        return noting

    def done(self) -> None:
        took = time.perf_counter() - self._start
        # The route as it is declared: paths are whatever visitors write.
        route = getattr(self._scope.get("route"), "path", "none")
        method = self._scope["method"] if self._scope["method"] in KNOWN_METHODS else "other"
        _requests.labels(route, method, str(self.status)).inc()
        _seconds.labels(route).observe(took)
        access.info("%s %s %d %.0f ms", method, route, self.status, 1e3 * took)


def exposition() -> bytes:
    """All counts as text; of all workers, where they share a folder."""
    if SHARED not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
