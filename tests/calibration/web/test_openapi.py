"""Whatever the description of the service allows, and much that it does not, is answered as it says: no
failure of the server, no answer that the description does not know.
"""

from __future__ import annotations

import pytest

from calibration.web.calls import CALLS
from tests.calibration.web.conftest import serving

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")
pytestmark = pytest.mark.slow


def test_the_description_holds() -> None:
    """A few of the cases that `python -m benchmarks.service_cases` tries by the thousand."""
    from benchmarks.service_cases import PROXY, run

    with serving(*PROXY) as address:
        told = run(address, 120)
    assert told.total() >= 100
    assert {status for _, status in told} >= {200, 422}
    assert {f"POST /v1/{call}" for call in CALLS} <= {route for route, status in told if status == 200}
