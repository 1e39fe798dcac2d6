"""Is every plan the one that the rule of the ceiling chooses? Random questions against a plain search.

    python -m benchmarks.brute_force --cases 10000 [--seed 0] [--jobs 2]

The rule is written here a second time and reads nothing of a law but its loss: 2,000 budgets up to the
ceiling, at each all numbers of epochs that could be best, the first valley of the loss along compute, and
which of its lowest point and the plan that spends all is chosen. Counted are losses that differ by more than
1e-6, plans above the ceiling and limits that are broken, and plans that are refused although the search's is
near what was trained; timed is `plan` next to spending all. Ten thousand
ceilings through `frontier` next to scipy are in `test_planner_speed.py`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from planner import Calibration, InvalidInput, plan
from planner.calibration import Setting
from planner.evidence import predictive_width
from planner.laws import Law

BUDGETS, LANDMARKS = 2000, 80
DECADES = 6.0
CLOSE = 1e-6
NEAR = 0.05  # of the compute
TIMED = 10  # one in so many is also timed for spending all
MARGIN = 0.1  # nats by which epochs may be worse at a landmark and still be tried up to the next
_SLACK = 1e-12

ErrorOf = Callable[[Any, Any, Any], Any]


# -- the rule, a second time


@dataclass(frozen=True)
class Question:
    """A law, a corpus and what a plan has to keep to."""

    law: Law
    ud: float
    min_params: float = 0.0
    max_params: float = np.inf
    max_epochs: float = np.inf
    whole: bool = True
    excess: ErrorOf = lambda *_: 0.0

    def loss(self, product: Any, epochs: Any) -> np.ndarray:
        """The loss where params * epochs is `product`, and infinity where a limit is broken."""
        params = product / epochs
        broken = (params < self.min_params * (1 - _SLACK)) | (params > self.max_params * (1 + _SLACK))
        broken |= epochs > self.max_epochs * (1 + _SLACK)
        if self.whole:
            broken |= (epochs > 1) & (epochs != np.round(epochs))
        with np.errstate(all="ignore"):
            found = np.asarray(self.law.loss(params, self.ud, epochs) + self.excess(params, self.ud, epochs))
        return np.where(broken | np.isnan(found), np.inf, found)


class Point(NamedTuple):
    """What is trained, and what it takes."""

    flops: float
    params: float
    epochs: float
    loss: float


def chosen(question: Question, ceiling: float, error: float) -> Point:
    """What the rule chooses within a ceiling."""
    everything = whole_budget(question, ceiling)
    first, *later = valleys(question, ceiling) or [None]
    if first is None:
        return everything
    for lower in later:
        cheap = lower.flops <= 2 * first.flops
        if first.loss - lower.loss > (0.0 if cheap else error):
            first = lower
    if first.flops >= everything.flops:
        return everything
    better = first.loss < everything.loss - error
    nearly = everything.flops > 2 * first.flops * (1 + 1e-9) and first.loss - everything.loss < error
    return first if better or nearly else everything


def whole_budget(question: Question, ceiling: float) -> Point:
    """The best for exactly the ceiling or, if that is better, the largest model allowed for what it pays."""
    product = ceiling / (6 * question.ud)
    epochs, loss = _best_epochs(question, product)
    exact = Point(ceiling, product / epochs, epochs, loss)
    if not np.isfinite(question.max_params):
        return exact
    most = float(_corner(question, np.array(product)))
    loss = float(question.loss(question.max_params * most, most))
    if not loss < exact.loss:
        return exact
    return Point(6 * question.ud * question.max_params * most, question.max_params, most, loss)


def _corner(question: Question, product: np.ndarray) -> np.ndarray:
    """The epochs that the largest model gets."""
    most = np.minimum(product / question.max_params, question.max_epochs)
    if not question.whole:
        return np.asarray(most)
    return np.asarray(np.where(most >= 1, np.floor(most * (1 + _SLACK)), most))


def _best_epochs(question: Question, product: float) -> tuple[float, float]:
    """The best number of epochs at one budget: a table, then ever finer ones around its lowest entries."""
    tried = _tried(question, product)
    losses = question.loss(product, tried)
    around = np.argsort(losses)[:4]
    best, least = float(tried[around[0]]), float(losses[around[0]])
    for place in around:
        low, high = tried[max(place - 1, 0)], tried[min(place + 1, len(tried) - 1)]
        for _ in range(5):
            fine = np.geomspace(low, high, 101)
            if question.whole:
                fine = np.where(fine > 1, np.round(fine), fine)
            found = question.loss(product, fine)
            pick = int(np.argmin(found))
            if found[pick] < least:
                best, least = float(fine[pick]), float(found[pick])
            low, high = fine[max(pick - 1, 0)], fine[min(pick + 1, 100)]
    return best, least


def _tried(question: Question, product: float) -> np.ndarray:
    """Numbers of epochs: fractions, whole ones, and those at which a limit binds."""
    grid = [np.geomspace(1e-6, 1.0, 241)]
    if question.whole:
        grid += [np.arange(2.0, 513.0), np.unique(np.round(np.geomspace(513.0, 1e5, 200)))]
    else:
        grid += [1.0 + np.geomspace(1e-6, 1e5, 900)]
    ends = [product / question.max_params, product / max(question.min_params, 1e-9), question.max_epochs]
    if question.whole:
        ends = [end if end <= 1 else end_whole for end in ends for end_whole in (np.floor(end), np.ceil(end))]
    grid.append(np.array([end for end in ends if 0 < end < 1e9]))
    return np.unique(np.concatenate(grid))


def valleys(question: Question, ceiling: float) -> list[Point]:
    """The lowest point of each valley of the loss along compute; none where it only falls.

    With whole epochs each number of them can leave a minimum: those of consecutive numbers are one valley, as
    long as none takes more than twice the compute of the one before.
    """
    budgets = np.geomspace(ceiling * 10**-DECADES, ceiling, BUDGETS)
    if (
        question.min_params < question.max_params < 1.01 * question.min_params
    ):  # a percent apart, they miss it
        sizes = np.linspace(question.min_params, question.max_params, 5)
        own = 6 * question.ud * np.outer(sizes, np.arange(1.0, 513.0)).ravel()
        budgets = np.unique(np.concatenate([budgets, own[own <= ceiling]]))
    epochs, loss, cornered = _along(question, budgets / (6 * question.ud))
    known = np.flatnonzero(np.isfinite(loss) & (np.diff(loss, prepend=np.inf) != 0))  # steps are one point
    inside, before, after = known[1:-1], known[:-2], known[2:]
    lowest = inside[(loss[inside] < loss[before]) & (loss[inside] < loss[after] - 1e-9)]
    groups: list[list[Point]] = []
    for place in lowest:
        if cornered[place]:
            params, passes = question.max_params, float(epochs[place])
            point = Point(6 * question.ud * params * passes, params, passes, float(loss[place]))
        else:
            around = budgets[place - 1], budgets[min(place + 1, len(budgets) - 1)]
            point = _polished(question, float(epochs[place]), *around)
        if groups and question.whole and _next_to(point, groups[-1][-1]):
            groups[-1].append(point)
        else:
            groups.append([point])
    for points in groups:
        if question.whole and points[-1].epochs > 2:  # budgets a percent apart may miss some numbers
            best = min(points, key=lambda point: point.loss)
            near = best.epochs + np.arange(-3.0, 4.0)
            points += [_polished(question, e, *_around(best, e)) for e in near[near > 1]]
    return [min(points, key=lambda point: point.loss) for points in groups]


def _around(best: Point, epochs: float) -> tuple[float, float]:
    """Between which budgets another number of epochs is best: it may be for the same size or, with many
    epochs, for about the same budget.
    """
    same_size = best.flops * epochs / best.epochs
    return 0.97 * min(best.flops, same_size), 1.03 * max(best.flops, same_size)


def _next_to(point: Point, last: Point) -> bool:
    """Whether numbers of epochs are consecutive, as far as budgets that are a percent apart can tell, and the
    second is not a matter of more than twice the compute.
    """
    consecutive = abs(point.epochs - last.epochs) <= max(1.0, 0.03 * point.epochs)
    return consecutive and point.flops <= 2 * last.flops


def _polished(question: Question, epochs: float, low: float, high: float) -> Point:
    """The lowest point between two budgets, whole epochs being kept; the budget at which a limit on the size
    binds is tried itself.
    """
    if question.whole and epochs >= 1:
        each = 6 * question.ud * epochs
        if low < each * question.max_params < high:
            high = each * question.max_params
        if low < each * question.min_params < high:
            low = each * question.min_params
    for _ in range(4):
        flops = np.linspace(low, high, 41)
        products = flops / (6 * question.ud)
        if question.whole and epochs >= 1:
            every = np.full(len(flops), epochs)
            losses = question.loss(products, every)
        else:
            found = [_best_epochs(question, float(product)) for product in products[::4]]
            flops, products = flops[::4], products[::4]
            every, losses = (np.array(column) for column in zip(*found, strict=True))
        pick = int(np.argmin(losses))
        low, high = flops[max(pick - 1, 0)], flops[min(pick + 1, len(flops) - 1)]
    return Point(float(flops[pick]), float(products[pick] / every[pick]), float(every[pick]), losses[pick])


def _along(question: Question, products: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Epochs and loss of the best plan at each budget, and whether it is the largest model for less than all.

    Tried are the epochs that are near the best at the two landmarks around a budget.
    """
    marks = np.linspace(0, len(products) - 1, LANDMARKS).astype(int)
    tried = _tried(Question(question.law, question.ud, whole=question.whole), float(products[-1]))
    table = question.loss(products[marks, None], tried)
    near = table <= table.min(axis=1, keepdims=True) + MARGIN
    epochs, loss = np.full(len(products), np.nan), np.full(len(products), np.inf)
    for k, (start, stop) in enumerate(itertools.pairwise(marks)):
        here = slice(start, stop + 1)
        product = products[here, None]
        some = tried[near[k] | near[k + 1]]
        columns = [np.broadcast_to(some, (len(product), len(some)))]
        candidates = np.concatenate([*columns, *_ends(question, product)], axis=1)
        losses = question.loss(product, candidates)
        pick = losses.argmin(axis=1)
        rows = np.arange(len(product))
        epochs[here], loss[here] = candidates[rows, pick], losses[rows, pick]
    cornered = np.zeros(len(products), dtype=bool)
    if np.isfinite(question.max_params):
        corner = _corner(question, products)
        spent = question.loss(question.max_params * corner, corner)
        cornered = spent < loss
        epochs, loss = np.where(cornered, corner, epochs), np.minimum(spent, loss)
    return epochs, loss, cornered


def _ends(question: Question, product: np.ndarray) -> Iterator[np.ndarray]:
    """The numbers of epochs at which a limit binds, for each budget."""
    if np.isfinite(question.max_params):
        few = product / question.max_params
        yield np.where(few > 1, np.ceil(few * (1 - _SLACK)), few) if question.whole else few
    if question.min_params:
        many = product / question.min_params
        yield np.where(many > 1, np.floor(many * (1 + _SLACK)), many) if question.whole else many
    if np.isfinite(question.max_epochs):
        most = (
            np.floor(question.max_epochs)
            if question.whole and question.max_epochs > 1
            else question.max_epochs
        )
        yield np.full_like(product, most)


# -- random questions


@dataclass(frozen=True)
class Case:
    """One question as a user asks it."""

    ud: float
    flops: float
    calibration: str
    law: str
    weight_decay: float | None
    limits: dict[str, Any]


def random_case(seed: int) -> Case:
    """Corpora of 10M to 10B tokens, ceilings from far too little to far too much, and limits of all kinds."""
    rng = np.random.default_rng(seed)
    calibration = str(rng.choice(["fineweb-llama2", "c4-gpt2"], p=[0.85, 0.15]))
    known = Calibration.load(calibration)
    form = str(rng.choice(list(known.settings[0].laws))) if rng.random() < 0.35 else known.default_law
    decays = [None, *known.weight_decays]
    ud = 10 ** rng.uniform(7.0, 10.0)
    flops = ud * 10 ** rng.uniform(8.0, 12.5)
    limits: dict[str, Any] = {}
    if rng.random() < 0.35:
        limits["max_params"] = 10 ** rng.uniform(7.5, 11.0)
    if rng.random() < 0.35:
        limits["max_epochs"] = float(rng.integers(1, 24))
    if rng.random() < 0.2:
        limits["min_params"] = min(10 ** rng.uniform(6.5, 9.5), limits.get("max_params", np.inf))
    if rng.random() < 0.1:
        limits = dict.fromkeys(("min_params", "max_params"), 10 ** rng.uniform(7.5, 10.0))
    if rng.random() < 0.15:
        limits["epochs"] = "continuous"
    return Case(ud, flops, calibration, form, decays[rng.integers(len(decays))], limits)


class Outcome(NamedTuple):
    """How one case went."""

    seed: int
    difference: float  # of the losses
    above_ceiling: bool
    broken: bool  # a limit
    seconds: float  # of the plan
    seconds_all: float  # of a plan that spends all, where it was timed
    seconds_search: float


def run(seed: int) -> Outcome:
    """One case, by both."""
    case = random_case(seed)
    known = Calibration.load(case.calibration)
    asked = {"law": case.law, "weight_decay": case.weight_decay, "calibration": known, **case.limits}
    began = time.process_time()
    try:
        p = plan(case.ud, case.flops, **asked)
    except InvalidInput:
        lost = 0.0 if too_far(case, searched(case)) else np.inf
        return Outcome(seed, lost, False, False, *(np.nan,) * 3)
    planned = time.process_time()
    if seed % TIMED == 0:
        _all_or_nothing(case, asked)
    done = time.process_time()
    wanted = searched(case)
    own = known.law(p.weight_decay, case.law).loss(p.params, case.ud, p.epochs)
    bound = own + added_uncertainty(known.setting(p.weight_decay), case.law)(p.params, case.ud, p.epochs)
    low, high, most = _bounds(case.limits)
    slack = 1 + 1e-9
    broken = p.params * slack < low or p.params > high * slack or p.epochs > most * slack
    broken |= case.limits.get("epochs") is None and p.epochs > 1 and p.epochs != round(p.epochs)
    above = max(p.spent_flops, 6 * p.params * p.tokens) > case.flops * slack
    off = float(bound) - wanted.loss
    if abs(p.spent_flops / wanted.flops - 1) < NEAR:  # the same minimum, which grids may miss by a little
        off = max(off, 0.0)
    difference = max(abs(off), abs(p.loss - float(own)))
    everything = done - planned if seed % TIMED == 0 else np.nan
    seconds = (planned - began, everything, time.process_time() - done)
    return Outcome(seed, difference, above, broken, *seconds)


def searched(case: Case) -> Point:
    """The best among the weight decays, by search."""
    known = Calibration.load(case.calibration)
    low, high, most = _bounds(case.limits)
    found = []
    for setting in known.candidates(case.law, case.weight_decay):
        whole = case.limits.get("epochs") is None
        law, excess = setting.law(case.law), added_uncertainty(setting, case.law)
        question = Question(law, case.ud, low, high, most, whole, excess)
        found.append(chosen(question, case.flops, setting.inside_error(case.law)))
    return min(found, key=lambda point: point.loss)


GROWTH = (0.089, 0.125, 0.80)  # nats for an e-fold beyond all that was trained, in size, data and epochs


def added_uncertainty(setting: Setting, form: str) -> ErrorOf:
    """By how much the upper end of the 80% interval is further away than inside of what was trained: its
    runs and the trainings that tested it, of repeated tokens where there are any.
    """
    fitted, measured = setting.fitted_on, setting.measured(form)
    width = predictive_width(None if measured is None else measured.runs)
    ranges = {}
    for again in (False, True):
        sizes = (fitted.repeated_params if again else None) or fitted.params
        data = (fitted.repeated_unique_tokens if again else None) or fitted.unique_tokens
        tried = [one for one in setting.trials if not again or one.epochs > 1]
        ranges[again] = [
            (min([a, *own]), max([b, *own]))
            for (a, b), own in (
                (sizes, [one.params for one in tried]),
                (data, [one.unique_tokens * min(one.epochs, 1.0) for one in tried]),
            )
        ]
    most = ranges[False][1][1]  # unique tokens, of all runs; more of them are no reason to choose otherwise
    longest = max([fitted.epochs[1], *(one.epochs for one in setting.trials)])

    def nats(growth: float, times: Any) -> Any:
        far = np.log(np.maximum(times, 1.0))  # the first tenth sets in smoothly
        return growth * np.where(far < 0.1, 5 * far**2, far - 0.05)

    def excess(params: Any, ud: Any, epochs: Any) -> Any:
        found = nats(GROWTH[2], epochs / longest)
        for again in (False, True):
            (small, large), (few, _) = ranges[again]
            here = (np.asarray(epochs) > 1) == again
            used = ud * np.minimum(epochs, 1.0)
            size = nats(GROWTH[0], np.maximum(params / large, small / params))
            data = nats(GROWTH[1], few / np.minimum(used, most))
            found = found + here * (size + data)
        return width * (found + nats(2.0, params / (8 * ranges[False][0][1])))

    return excess


def too_far(case: Case, point: Point) -> bool:
    """Whether a plan is a hundred times outside of all that was trained, so that none is given."""
    settings = Calibration.load(case.calibration).settings
    runs = [setting.fitted_on for setting in settings]
    tried = [trial for setting in settings for trial in setting.trials]
    sizes = [*(size for one in runs for size in one.params), *(one.params for one in tried)]
    corpora = [*(size for one in runs for size in one.unique_tokens), *(one.unique_tokens for one in tried)]
    epochs, used = max(one.epochs[1] for one in runs), case.ud * min(point.epochs, 1.0)
    return (
        not min(sizes) / 100 < point.params < 100 * max(sizes)
        or not min(corpora) / 100 < used < 100 * max(corpora)
        or point.epochs > 100 * epochs
    )


def _bounds(limits: dict[str, Any]) -> tuple[float, float, float]:
    return limits.get("min_params", 0.0), limits.get("max_params", np.inf), limits.get("max_epochs", np.inf)


def _all_or_nothing(case: Case, asked: dict[str, Any]) -> None:
    """The same plan if all has to be spent, on a corpus that nothing is known of yet."""
    with suppress(InvalidInput):  # the limits may leave no plan there
        plan(case.ud * (1 + 1e-9), case.flops, spend="all", **asked)


# -- all of them


def main(cases: int, seed: int, jobs: int) -> int:
    """Run them, and say what came out; the number of plans that are wrong in any way."""
    outcomes: list[Outcome] = []
    began = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        for outcome in pool.map(run, range(seed, seed + cases), chunksize=16):
            outcomes.append(outcome)
            if outcome.difference > CLOSE or outcome.above_ceiling or outcome.broken:
                print(f"seed {outcome.seed}: {outcome} {random_case(outcome.seed)}", flush=True)
            if len(outcomes) % 500 == 0:
                spent = time.perf_counter() - began
                print(f"{len(outcomes):,} of {cases:,} cases, {spent:.0f} s", flush=True)
    differing = sum(outcome.difference > CLOSE for outcome in outcomes)
    above = sum(outcome.above_ceiling for outcome in outcomes)
    broken = sum(outcome.broken for outcome in outcomes)
    worst = max(outcome.difference for outcome in outcomes)
    print(f"{cases:,} cases: {differing} beyond {CLOSE:g} in loss (the largest difference is {worst:.1e}),")
    print(f"{above} above the ceiling, {broken} with a broken limit.")
    columns = np.array([outcome[-3:] for outcome in outcomes])
    ceiling, everything, search = 1e3 * np.nanmedian(columns, axis=0)
    print(
        f"Median of processor time: plan {ceiling:.1f} ms, spending all {everything:.1f} ms, "
        f"ratio {np.nanmedian(columns[:, 0] / columns[:, 1]):.2f}; the search {search:.1f} ms."
    )
    return differing + above + broken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    raise SystemExit(bool(main(given.cases, given.seed, given.jobs)))
