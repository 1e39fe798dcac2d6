"""How long `planner serve` takes to answer, with 1 and with 50 visitors at once, and what it occupies.

    python -m benchmarks.service_load                    # latency, two workers
    python -m benchmarks.service_load --visitors 10000   # memory, while so many come, some with uploads

Each visitor has an address and a connection of its own. The questions are those of a page in use:

    dragged   a corpus that is asked about again and again, each time with another budget
    new       a corpus and a budget that nobody asked about before
    repeated  one of twenty questions, as those behind links are
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np

from benchmarks.service_visitor import ask, occupied
from planner import Calibration

KINDS = ("dragged", "new", "repeated")


def questions(kind: str, visitor: int) -> Iterator[dict[str, str]]:
    """What a visitor asks, without end."""
    chance = random.Random(f"{kind} {visitor}")
    own = f"{100 + 10 * (visitor % 50)}M"
    while True:
        flops = f"{10 ** chance.uniform(18, 19.5):.4g}"
        if kind == "repeated":
            number = chance.randrange(20)
            yield {"ud": f"{100 + 10 * number}M", "flops": "5e18"}
        else:
            yield {"ud": own if kind == "dragged" else f"{chance.uniform(100, 1000):.2f}M", "flops": flops}


def visit(server: str, kind: str, visitor: int, until: float, waits: list[float]) -> None:
    place = urlsplit(server)
    address = f"127.1.{visitor // 250}.{1 + visitor % 250}"
    connection = HTTPConnection(place.hostname or "", place.port, source_address=(address, 0), timeout=60)
    for question in questions(kind, visitor):
        if time.monotonic() > until:
            break
        start = time.perf_counter()
        body = json.dumps(question)
        connection.request("POST", "/v1/plan", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read()
        if reply.status != 200:
            sys.exit(f"status {reply.status}: {answer[:200]!r}")
        waits.append(time.perf_counter() - start)
    connection.close()


def latency(server: str, kind: str, clients: int, seconds: float) -> None:
    waits: list[float] = []
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=visit, args=(server, kind, i, until, waits), daemon=True)
        for i in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    median, most = (1e3 * float(np.quantile(waits, share)) for share in (0.5, 0.95))
    print(f"{kind:9} {clients:3} {len(waits):6} {median:7.0f} {most:7.0f}", flush=True)


def memory(server: str, pid: int, visitors: int) -> None:
    """So many visitors, every tenth with a calibration of its own that it plans with."""
    known = json.loads(Calibration.load("micro").model_dump_json(exclude_none=True))

    def come(number: int) -> None:
        address = f"127.{2 + number // 62500}.{number // 250 % 250}.{1 + number % 250}"
        question: dict[str, object] = next(questions("new", number)) | {}
        if number % 10 == 0:
            mine = json.dumps(known | {"name": f"of visitor {number}"}).encode()
            reply = ask(server, "/v1/calibrations", mine, source=address)
            if reply.status == 200:
                question = {"ud": "65536", "flops": "3e12", "calibration": reply.json()["id"]}
        ask(server, "/v1/plan", question, source=address)

    step = max(visitors // 20, 1)
    print(f"{'visitors':>9} {'MB':>7}")
    with ThreadPoolExecutor(4) as pool:
        for done in range(0, visitors, step):
            list(pool.map(come, range(done, min(done + step, visitors))))
            print(f"{min(done + step, visitors):9,} {occupied(pid):7.0f}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--visitors", type=int, default=0)
    given = options.parse_args()
    words = ["serve", "--port", "0", "--workers", str(given.workers)]
    start = time.monotonic()
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "planner", *words], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split()[2]
        while True:
            try:
                ask(address, "/healthz")
                break
            except OSError:
                time.sleep(0.02)
        print(f"started within {time.monotonic() - start:.1f} s")
        for _ in range(4 * given.workers):
            ask(address, "/v1/plan", {"ud": "250M", "flops": "5e18"})
        if given.visitors:
            memory(address, server.pid, given.visitors)
            return
        print(f"{'questions':9} {'at once':>3} {'n':>6} {'median':>7} {'95% ms':>7}")
        for kind in KINDS:
            for clients in (1, 50):
                latency(address, kind, clients, given.seconds)
        print(f"{occupied(server.pid):.0f} MB in all")
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
