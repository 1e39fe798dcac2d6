"""How much processor time the server takes for an answer with its picture, without a browser.

    python -m benchmarks.page_drawing [CALIBRATION ...]

For each picture: a corpus that nobody asked about before, and another budget of a corpus that is known. The
least of several, because other work on the machine only ever adds; clock times are those of `page_speed.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

from calibration.web import pictures, state
from calibration.web.answers import answer
from planner.calibration import DEFAULT_CALIBRATION, Calibration

ROUNDS = 7


def least(ask: Callable[[int], object]) -> float:
    """Milliseconds of processor time of the quickest of some rounds, after one that warms up."""
    times = []
    for turn in range(ROUNDS + 1):
        start = time.process_time()
        ask(turn)
        times.append(1e3 * (time.process_time() - start))
    return min(times[1:])


def row(name: str, key: str, first: float) -> str:
    """One picture of one calibration; corpora from `first` million tokens on are new to it."""
    known, draw = Calibration.load(name), pictures.PICTURES[key]

    def drawn(ud: float, flops: float) -> object:
        asked = {"ud": f"{ud:.1f}M", "flops": f"{flops:.3g}", "calibration": name, "picture": key}
        return draw(answer(replace(state.DEFAULTS, **asked), known, intervals=False))

    corpora = least(lambda turn: drawn(first + 3.3 * turn, 5e18))
    budgets = least(lambda turn: drawn(99, (1 + 0.1 * turn) * 5e18))
    return f"{name:16}{state.PICTURES[key]:16}{corpora:9.0f} ms{budgets:10.0f} ms"


def main() -> None:
    print(f"{'calibration':16}{'picture':16}{'new corpus':>12}{'new compute':>13}")
    for name in sys.argv[1:] or [DEFAULT_CALIBRATION]:
        for number, key in enumerate(pictures.PICTURES):
            print(row(name, key, 100 + 40 * number), flush=True)


if __name__ == "__main__":
    main()
