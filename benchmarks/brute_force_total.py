"""Is every plan that counts serving, members or bought data the best there is? Random questions, searched.

    python -m benchmarks.brute_force_total --cases 200 [--kind serving|members|data] [--seed 0] [--jobs 2]

Sums and laws are written here a second time, and of a calibration nothing is read but the loss of one model
and the numbers of its members' law. Every question is answered from a grid of at least 100,000 configurations
(epochs, sizes, weight decays, members, amounts of data), and finer grids around its best places. Counted are
losses that differ from the search's by more than 1e-6 or, where a loss was to be reached, totals that differ
by more than a millionth; plans that cost more than the ceiling; and limits that are broken.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from planner import Calibration, InvalidInput, plan
from planner.calibration import Averaging
from planner.hardware import ACCELERATORS

CLOSE = 1e-6
FINER, PLACES = 10, 8  # finer grids around so many of the best places
# A gain of averaging that nobody measured: the search is what is tested.
MADE_UP = Averaging.model_validate(
    {
        "reference": {"params": 2e5, "unique_tokens": 65536, "epochs": 8, "timescale_epochs": 2.6},
        "gain": 0.4,
        "exponents": {
            "params": 0.2,
            "unique_tokens": -0.3,
            "epochs": 0.5,
            "timescale_epochs": 0.25,
            "density": 0.1,
        },
        "error": 0.01,
        "most_members": 8,
        "fitted_on": {
            "params": [9e4, 3e5],
            "unique_tokens": [32768, 131072],
            "epochs": [4, 16],
            "timescale_epochs": [0.4, 8],
        },
        "source": "made up",
    }
)


@dataclass(frozen=True)
class Case:
    """One question as a user asks it."""

    ud: float
    calibration: str
    flops: float | None = None
    target: float | None = None
    serve_tokens: float = 0.0
    serve_rate: float = 1.0
    token_flops: float = 0.0  # what a bought token costs
    members: tuple[int, ...] = (1,)
    weight_decay: float | None = None
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def known(self) -> Calibration:
        loaded = Calibration.load(self.calibration)
        return loaded.model_copy(update={"members": MADE_UP}) if len(self.members) > 1 else loaded

    def total(self, count: Any, params: Any, tokens: Any, epochs: Any) -> Any:
        training, serving = 6 * params * tokens * epochs, 2 * params * self.serve_tokens
        return count * (training + self.serve_rate * serving) + self.token_flops * (tokens - self.ud)


class Grid(NamedTuple):
    """Configurations: every combination of these, sizes as shares of the largest that can be had."""

    counts: np.ndarray
    epochs: np.ndarray
    decays: np.ndarray
    tokens: np.ndarray
    ln_sizes: np.ndarray  # ln of the size over the largest


class Place(NamedTuple):
    """One configuration of a grid: its indices, what it costs and reaches."""

    index: tuple[int, ...]
    score: float


# -- the sums, a second time


def losses(
    case: Case, known: Calibration, count: Any, params: Any, tokens: Any, epochs: Any, decay: float
) -> Any:
    """The loss at one weight decay."""
    with np.errstate(all="ignore"):
        one = known.law(decay).loss(params, tokens, epochs)
        if len(case.members) == 1:
            return one
        recipe = known.recipe
        assert recipe is not None
        memory = recipe.batch_sequences * recipe.sequence_length / (recipe.learning_rate * decay)
        used, passes = tokens * np.minimum(epochs, 1.0), np.maximum(epochs, 1.0)
        gain = MADE_UP.gain
        for name, value in (
            ("params", params),
            ("unique_tokens", used),
            ("epochs", passes),
            ("timescale_epochs", memory / used),
        ):
            power, start = getattr(MADE_UP.exponents, name), getattr(MADE_UP.reference, name)
            if name == "timescale_epochs":
                size, data = np.clip(params, 9e4, 3e5) / 2e5, np.clip(used, 32768, 131072) / 65536
                power = power + MADE_UP.exponents.density * np.log(size / data)
            low, high = getattr(MADE_UP.fitted_on, name)
            inside = np.minimum(np.maximum(value, low), high)
            gain = gain * np.minimum((value / start) ** power, (inside / start) ** power)
        floor = known.law(decay).terms(1e6, 1e6, 1.0).irreducible
        return one - np.minimum(gain, one - floor) * (1 - 1 / count)


def scores(case: Case, known: Calibration, grid: Grid) -> np.ndarray:
    """What is minimised at every configuration of a grid: the loss, or the total; infinity where it is not
    allowed, cannot be paid, or does not reach the loss.
    """
    count, epochs, tokens, ln_size = np.meshgrid(
        grid.counts, grid.epochs, grid.tokens, grid.ln_sizes, indexing="ij", sparse=True
    )
    largest = case.limits.get("max_params", 1e15)
    if case.flops is not None:
        paid = case.flops - case.token_flops * (tokens - case.ud)
        each = count * (6 * tokens * epochs + case.serve_rate * 2 * case.serve_tokens)
        largest = np.minimum(np.maximum(paid / each, 1e-9), largest)
    params = largest * np.exp(ln_size) + 0 * count * epochs * tokens
    allowed = (epochs <= case.limits.get("max_epochs", np.inf)) & (case.total(count, 1e-9, tokens, 1e-9) >= 0)
    if case.flops is not None:
        allowed = allowed & (paid > 0)
    found = []
    for decay in grid.decays:
        loss = losses(case, known, count, params, tokens, epochs, float(decay))
        if case.target is not None:
            loss = _least_totals(case, known, params, loss, (count, epochs, tokens), float(decay))
        found.append(np.where(allowed & np.isfinite(loss), loss, np.inf))
    return np.stack(found, axis=2)  # counts, epochs, decays, tokens, sizes


def _least_totals(
    case: Case, known: Calibration, params: np.ndarray, loss: np.ndarray, at: tuple[Any, ...], decay: float
) -> np.ndarray:
    """The total of the smallest size that reaches the loss, which lies below the first of a table that does
    (or below its lowest), found by halving; the same for all sizes of a row.
    """
    assert case.target is not None
    count, epochs, tokens = at
    reaches = loss <= case.target
    place = np.where(reaches.any(axis=-1), reaches.argmax(axis=-1), loss.argmin(axis=-1))[..., None]
    high = np.take_along_axis(params, place, axis=-1)
    low = np.take_along_axis(params, np.maximum(place - 1, 0), axis=-1)
    for _ in range(50):
        middle = np.sqrt(low * high)
        enough = losses(case, known, count, middle, tokens, epochs, decay) <= case.target
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    reached = losses(case, known, count, high, tokens, epochs, decay) <= case.target
    total = np.where(reached, case.total(count, high, tokens, epochs), np.inf)
    return np.broadcast_to(total, loss.shape)


# -- the search


def searched(case: Case) -> tuple[float, int]:
    """The lowest score, and of how many configurations."""
    known = case.known
    first = first_grid(case, known)
    table = scores(case, known, first)
    least, tried = float(table.min()), table.size
    for place in _best_places(table):
        grid = _around(case, known, first, place.index)
        for _ in range(FINER):
            table = scores(case, known, grid)
            tried += table.size
            index = np.unravel_index(int(table.argmin()), table.shape)
            least = min(least, float(table[index]))
            grid = _around(case, known, grid, tuple(int(i) for i in index))
    return least, tried


def _best_places(table: np.ndarray) -> list[Place]:
    """The best configurations, one for each number of members and epochs."""
    flat = table.reshape(*table.shape[:2], -1)
    pick, least = flat.argmin(axis=2), flat.min(axis=2)
    order = np.argsort(least, axis=None)[:PLACES]
    found = []
    for place in order:
        count, epochs = np.unravel_index(place, least.shape)
        if np.isfinite(least[count, epochs]):
            rest = np.unravel_index(int(pick[count, epochs]), table.shape[2:])
            index = (int(count), int(epochs), *(int(i) for i in rest))
            found.append(Place(index, float(least[count, epochs])))
    return found


def first_grid(case: Case, known: Calibration) -> Grid:
    """At least 100,000 configurations."""
    many, buys = len(case.members) > 1, case.token_flops > 0
    fractions = np.geomspace(1e-4, 0.97, 12 if many or buys else 60)
    whole = np.arange(1.0, 25.0 if many or buys else 65.0)
    beyond = np.unique(np.round(np.geomspace(whole[-1] + 1, 2e4, 40)))
    decays = _decays(known, case)
    tokens = np.array([case.ud])
    if buys:
        most = case.ud + case.flops / case.token_flops if case.flops is not None else 1e5 * case.ud
        tokens = np.geomspace(case.ud, most, 24)
    epochs = np.concatenate([fractions, whole, beyond])
    epochs = np.unique(np.append(epochs, np.floor(case.limits.get("max_epochs", 1.0))))
    others = len(case.members) * len(epochs) * len(decays) * len(tokens)
    number = max(-(-100_000 // others), 24)
    sizes = np.linspace(-16.0, 0.0, number) if case.flops is not None else np.linspace(-28.0, 0.0, 2 * number)
    return Grid(np.array(case.members, dtype=float), epochs, decays, tokens, sizes)


def _decays(known: Calibration, case: Case) -> np.ndarray:
    """The weight decays of the first grid: those calibrated, or every third of a weight-decay law."""
    if case.weight_decay is not None:
        return np.array([case.weight_decay])
    return _typed(known)[::5] if known.weight_decay_law is not None else np.array(known.weight_decays)


def _typed(known: Calibration) -> np.ndarray:
    """All weight decays of two digits that a weight-decay law has."""
    low, high = known.weight_decay_range
    every = [digits * 10.0**power for power in range(-4, 3) for digits in range(10, 100)]
    typed = np.unique([float(f"{decay:.2g}") for decay in every])
    return np.array([decay for decay in typed if low <= decay <= high])


def _around(case: Case, known: Calibration, grid: Grid, index: tuple[int, ...]) -> Grid:
    """A finer grid around one configuration, which may leave the grid that it was found in."""
    count, epochs, decay, tokens, size = index
    few = _near(grid.epochs, epochs)
    few = np.unique(np.where(few > 1, np.round(few), few))
    few = few[few <= case.limits.get("max_epochs", np.inf)]
    first = case.members.index(int(grid.counts[count]))
    counts = np.array(case.members[max(first - 1, 0) : first + 2], dtype=float)
    decays = grid.decays
    if known.weight_decay_law is not None and case.weight_decay is None:
        typed, wide = _typed(known), _near(grid.decays, decay)
        near = typed[(typed >= wide[0] * (1 - 1e-9)) & (typed <= wide[-1] * (1 + 1e-9))]
        decays = np.unique(np.append(near[:: max(len(near) // 7, 1)], grid.decays[decay]))
    corpora = grid.tokens
    if case.token_flops:
        corpora = np.unique(np.maximum(_near(grid.tokens, tokens), case.ud))
    sizes = grid.ln_sizes
    if case.target is None:  # otherwise they are found by halving
        sizes = np.unique(np.minimum(np.log(_near(np.exp(sizes), size)), 0.0))
    return Grid(counts, few, decays, corpora, sizes)


def _near(values: np.ndarray, place: int) -> np.ndarray:
    """Nine values around one, itself included, as far as its neighbours were or, at an end, as far on."""
    here = values[place]
    steps = [here / values[place - 1] if place else 1.0, values[min(place + 1, len(values) - 1)] / here]
    step = max(steps)
    return here * step ** np.linspace(-1.0, 1.0, 9)


# -- random questions


def random_case(kind: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    if kind == "members":
        return _members_case(rng)
    calibration = str(rng.choice(["fineweb-llama2", "c4-gpt2"], p=[0.8, 0.2]))
    ud = 10 ** rng.uniform(7.0, 10.0)
    served = 10 ** rng.uniform(8.0, 13.0)
    rate = 1.0 if rng.random() < 0.5 else 10 ** rng.uniform(-0.5, 1.0)
    limits: dict[str, float] = {}
    if rng.random() < 0.2:
        limits["max_params"] = 10 ** rng.uniform(7.5, 10.0)
    if rng.random() < 0.2:
        limits["max_epochs"] = float(rng.integers(1, 24))
    question: dict[str, Any] = {"calibration": calibration, "serve_rate": rate, "limits": limits}
    if kind == "data":
        question |= {"token_flops": 10 ** rng.uniform(8.0, 13.0)}
        served *= float(rng.random() < 0.5)
    if rng.random() < 0.3:
        return Case(ud, target=rng.uniform(2.7, 4.2), serve_tokens=served, **question)
    return Case(ud, flops=(ud + served) * 10 ** rng.uniform(7.5, 11.0), serve_tokens=served, **question)


def _members_case(rng: np.random.Generator) -> Case:
    ud = 10 ** rng.uniform(4.3, 6.0)
    decay = float(rng.choice([0.1, 0.3, 1.0, 3.0])) if rng.random() < 0.5 else None
    served = 10 ** rng.uniform(5.0, 8.0) if rng.random() < 0.3 else 0.0
    question: dict[str, Any] = {
        "calibration": "micro-weight-decay",
        "members": tuple(range(1, 17)),
        "weight_decay": decay,
        "serve_tokens": served,
        "limits": {"max_params": 10 ** rng.uniform(5.0, 6.5)} if rng.random() < 0.3 else {},
    }
    if rng.random() < 0.2:
        return Case(ud, target=rng.uniform(4.0, 5.0), **question)
    return Case(ud, flops=(ud + served) * 10 ** rng.uniform(5.5, 8.5), **question)


class Outcome(NamedTuple):
    """How one case went."""

    seed: int
    worse: float  # than the search: of the loss, or of ln(total)
    above: bool  # the ceiling
    broken: bool  # a limit
    seconds: float
    tried: int
    none: bool  # no plan, and none found


def run(kind: str, seed: int) -> Outcome:
    """One case, by both."""
    case = random_case(kind, seed)
    wanted, tried = searched(case)
    began = time.process_time()
    try:
        p = plan(case.ud, case.flops, extrapolate=True, **_asked(case))
    except InvalidInput:
        lost = bool(np.isfinite(wanted))
        return Outcome(seed, np.inf if lost else 0.0, False, False, time.process_time() - began, tried, True)
    seconds = time.process_time() - began
    count = 1 if p.members is None else p.members.count
    if count == 1 and len(case.members) > 1 and not case.serve_tokens and p.members and p.members.single:
        best = p.members.single  # where one model is better, the plan is the usual one, which may spend less
        params, tokens, epochs, decay = best.params, case.ud, best.epochs, best.weight_decay
    else:
        params, tokens, epochs, decay = p.params, p.ud, p.epochs, p.weight_decay
    loss = float(losses(case, case.known, count, params, tokens, epochs, decay))
    total = float(case.total(count, params, tokens, epochs))
    slack, limits = 1 + 1e-9, case.limits
    broken = params > limits.get("max_params", np.inf) * slack
    broken |= epochs > limits.get("max_epochs", np.inf) or (epochs > 1 and epochs != round(epochs))
    if case.target is not None:
        broken |= loss > case.target + CLOSE
        return Outcome(seed, float(np.log(total / wanted)), False, broken, seconds, tried, False)
    above = total > (case.flops or 0.0) * slack
    return Outcome(seed, loss - wanted, above, broken, seconds, tried, False)


def _asked(case: Case) -> dict[str, Any]:
    """The question in the words of `plan`."""
    asked: dict[str, Any] = {"calibration": case.known, "weight_decay": case.weight_decay, **case.limits}
    if case.target is not None:
        asked["target_loss"] = case.target
    if len(case.members) > 1:
        asked["members"] = "auto"
    if case.serve_tokens:
        asked["serve_tokens"] = case.serve_tokens
    card = ACCELERATORS["H100"]
    if case.token_flops or case.serve_rate != 1:
        asked["gpu"] = "H100"
    if case.token_flops:
        asked["data_price"] = case.token_flops * card.price_per_hour / (3600 * card.peak_flops * 0.4)
    if case.serve_rate != 1 and case.serve_tokens:
        asked["serve_price"] = case.serve_rate * card.price_per_hour
    return asked


def report(outcomes: list[Outcome], kind: str) -> Iterator[str]:
    worse = np.array([outcome.worse for outcome in outcomes])
    seconds = sorted(outcome.seconds for outcome in outcomes)
    yield f"{kind}: {len(outcomes)} questions, {sum(o.none for o in outcomes)} without an answer"
    for word, by in (("worse", worse), ("better", -worse)):
        number = int((by > CLOSE).sum())
        yield f"  {word} than the search by more than {CLOSE:g}: {number}, most {by.max():.1e}"
    above, broken = sum(o.above for o in outcomes), sum(o.broken for o in outcomes)
    yield f"  above the ceiling: {above}; limits broken: {broken}"
    yield f"  at least {min(o.tried for o in outcomes):,} configurations each"
    yield f"  processor time of a plan: median {seconds[len(seconds) // 2]:.3f} s, most {seconds[-1]:.3f} s"
    for outcome in outcomes:
        if abs(outcome.worse) > CLOSE or outcome.above or outcome.broken:
            yield f"  {outcome}: {random_case(kind, outcome.seed)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--kind", choices=("serving", "members", "data"), default="serving")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.cases)
    with ProcessPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(run, itertools.repeat(options.kind), seeds))
    print("\n".join(report(outcomes, options.kind)))


if __name__ == "__main__":
    main()
