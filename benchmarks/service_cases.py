"""Cases that schemathesis makes of the service's own description, allowed and not, against a real server.

    python -m benchmarks.service_cases --cases 10000

Every answer must be one that the description knows, of its shape, and no failure of the server; anything else
ends the run with the request that led there. Each case comes from an address of its own, so that limits of an
address do not answer in place of what is tried. What the description allows is mostly a text that is no
quantity; so a third of the cases of a call are questions that make sense, half of them with another argument.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections import Counter
from itertools import count
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from benchmarks.service_visitor import ask
from calibration.web.calls import CALLS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
HOW = settings(deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
TOKENS = st.sampled_from(["300k", "131072", "40M", "250M", 1e9, "8B", 500_000_000, "0.2T"])
BUDGETS = st.sampled_from(["3e13", "1e16", "5e18", "2.5e19", 1e20, "1e22", "5 EFLOP"])
SIZES = st.sampled_from(["10M", "556M", 1e9, "3B"])
NEEDED: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "plan": {"ud": TOKENS, "flops": BUDGETS},
    "compare": {"ud": TOKENS, "flops": BUDGETS},
    "frontier": {"ud": TOKENS, "flops": BUDGETS | st.lists(BUDGETS, min_size=1, max_size=3)},
    "crossover": {"ud": TOKENS},
    "predict": {
        "params": SIZES | st.lists(SIZES, min_size=1, max_size=3),
        "ud": TOKENS,
        "epochs": st.sampled_from([1, "4", 0.5, 30]),
    },
}
PROXY = ("--trust-host", "localhost")  # with which a server believes what a proxy says of addresses


def run(server: str, cases: int, seed: int = 0) -> Counter[tuple[str, int]]:
    """How often each route answered with which status, in so many cases."""
    schema = schemathesis.openapi.from_url(f"{server}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    told: Counter[tuple[str, int]] = Counter()
    numbers = count()
    # Files take a process each, and those without a body have little to try.
    shares = {one.label: 10 if one.path.rpartition("/")[2] in CALLS else 1 for one in operations}

    def try_out(operation: Any, mode: GenerationMode, needed: Any = None) -> None:
        kinds = 3 if operation.path.rpartition("/")[2] in NEEDED else 2
        each = max(cases * shares[operation.label] // (kinds * sum(shares.values())), 1)

        @seeded(seed)
        @settings(HOW, max_examples=each)
        @given(operation.as_strategy(generation_mode=mode), st.fixed_dictionaries(needed or {}))
        def tried(case: schemathesis.Case, question: dict[str, Any]) -> None:
            number = next(numbers)
            if question:
                others = list(case.body.items())[-1:] if number % 2 else []
                case.body = {**dict(others), **question}
            place = f"10.{number // 62500 % 250}.{number // 250 % 250}.{number % 250}"
            reply = case.call(headers={"X-Forwarded-For": place}, timeout=120)
            told[operation.label, reply.status_code] += 1
            case.validate_response(reply, checks=CHECKS)

        tried()

    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            with contextlib.suppress(Unsatisfiable):  # where nothing can be wrong
                try_out(operation, mode)
        if needed := NEEDED.get(operation.path.rpartition("/")[2]):
            try_out(operation, GenerationMode.POSITIVE, needed)
    return told


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--cases", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    given_options = options.parse_args()
    command = [sys.executable, "-u", "-m", "planner", "serve", "--port", "0", *PROXY]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split()[2]
        while True:
            try:
                ask(address, "/healthz")
                break
            except OSError:
                time.sleep(0.1)
        told = run(address, given_options.cases, given_options.seed)
    finally:
        server.terminate()
        server.wait(60)
    for (label, status), times in sorted(told.items()):
        print(f"{label:26} {status} {times:6}")
    print(f"{told.total():,} cases, no failure of the server and none of its description")


if __name__ == "__main__":
    main()
