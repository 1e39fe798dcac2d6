"""What is counted for Prometheus, and the access log: routes, statuses and times, never what was asked."""

from __future__ import annotations

import logging
import os

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from starlette.types import Scope

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # where several workers count together; read when this module is imported
KNOWN_METHODS = {"GET", "POST", "OPTIONS"}
access = logging.getLogger("databound.access")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_requests = Counter("databound_requests", "Requests answered.", ["route", "method", "status"])
_seconds = Histogram("databound_request_seconds", "From head to answer.", ["route"], buckets=_BUCKETS)


def observe(scope: Scope, status: int, took: float) -> None:
    """Count a request that was answered so after so many seconds."""
    # The route as it is declared: paths are whatever visitors write.
    route = getattr(scope.get("route"), "path", "none")
    method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
    _requests.labels(route, method, str(status)).inc()
    _seconds.labels(route).observe(took)
    access.info("%s %s %d %.0f ms", method, route, status, 1e3 * took)


def exposition() -> bytes:
    """All counts as text; of all workers, where they share a folder."""
    if SHARED not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
