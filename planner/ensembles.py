r"""The best size, epochs, weight decay, number of members and amount of data where all of them cost.

Asked is for the lowest loss within a total cost (`planner.serving`), or for the lowest cost that reaches a
loss, of one model or of K whose probabilities are averaged (`planner.members`). The search is nested:

1. For given members, epochs, weight decay and unique tokens only the size is free. The loss along it is
   tabulated up to the largest size that can be paid for, and its lowest place narrowed down; for a loss to
   reach, the first size that reaches it.
2. That is done on a grid of everything else. The best combinations of members and whole epochs are kept.
3. For each of them what is continuous (weight decay of a dial, bought tokens, epochs that need not be whole)
   is narrowed down together, by ever smaller grids around the best point.
4. Whole epochs and members that the grid left out are tried next to the best.

Where a thousandth of a nat is enough, sizes are narrowed down together with all else in place of that.
Nothing of a law is used but its loss, so that every form can be asked, alone or averaged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.calibration_files import Calibration, Setting
from planner.dialling import dial_law, has_dial
from planner.limits import Limits
from planner.serving import Bill

_SIZES = (0.0, math.log(1e15))  # ln of the smallest and the largest model looked at
_COARSE, _FINE = 33, 9  # sizes in a table, and in each of the narrower ones
_SIZE, _REACHED = 1e-4, 1e-8  # how close, in ln, sizes are found: the best, and the first that reaches a loss
_ALL_EPOCHS, _RATIO, _MOST_EPOCHS = 16, 1.25, 1e5  # whole epochs that are all tried, and steps beyond
_SHARES = np.exp(-np.linspace(9.0, 0.0, 13))[:-1]  # of the corpus, below one epoch
_DECAYS, _TOKENS = 9, 11  # of a dial, and amounts of data, on the first grid
_WIDE = 10.0  # between points of the first grid: one table of sizes is enough
_KEPT, _NARROWINGS = 12, 60
_ROUGHLY, _ROUNDED, _CLOSE, _CLOSEST = 0.02, 3e-4, 2e-5, 1e-6  # in ln of what is continuous
_LESS = -math.log(4.0) * np.arange(3.0)  # ln of the shares of a ceiling that are spent at a glance
_GLANCE = 0.12  # nats by which what is seen at a glance may be off
_NEAR = 0.15  # how far, of the first grid, what is next to the best is looked for
_HALVED, _LAST = 3, 4  # after so many narrowings the worse half is dropped, down to so many
_OFFSETS = 5  # places that are tried of each continuous quantity, around the best so far
# Where sizes are looked for together with epochs, decay and tokens: the places that are tried around a size,
# as shares of the reach, and by how much of the others' step the next reach is widened, because moving those
# moves the best size too and there may be two valleys.
_AROUND, _OTHERS = np.linspace(-1.0, 1.0, _COARSE), 4.0

Values = np.ndarray
Along = Callable[[Values], Values]  # sizes of a row (their ln) -> losses


class Found(NamedTuple):
    """What to train, how often, and what it costs in all."""

    members: int
    params: float
    unique_tokens: float  # of the corpus, bought ones included
    epochs: float
    weight_decay: float
    loss: float
    total: float


class Point(NamedTuple):
    """Configurations, as arrays of one length, whose size is free."""

    members: Values
    epochs: Values
    ln_decay: Values
    ln_tokens: Values


@dataclass(frozen=True, eq=False)
class Losses:
    """The loss of any configuration, at one weight decay or, with a dial, at any."""

    known: Calibration
    form: str
    setting: Setting | None  # None: the weight decay is free

    @property
    def decays(self) -> tuple[float, float]:
        """ln of the weakest and the strongest weight decay that may be chosen."""
        if self.setting is not None:
            here = math.log(max(self.setting.weight_decay, 1e-30))
            return here, here
        low, high = self.known.weight_decay_range
        return math.log(max(low, 1e-3 * high)), math.log(high)

    def along(self, point: Point) -> Along:
        """The loss of each point for the sizes (their ln) of its row; infinity where it cannot be told."""
        count, epochs, ln_decay, ln_tokens = (values[:, None] for values in point)
        decay, tokens = np.exp(ln_decay), np.exp(ln_tokens)
        law = dial_law(self.known, self.form, decay) if self.setting is None else self.setting.law(self.form)
        members, recipe = self.known.members, self.known.recipe

        def losses(ln_params: Values) -> Values:
            params = np.exp(ln_params)
            with np.errstate(over="ignore", invalid="ignore"):
                if members is None or recipe is None or not np.any(count > 1):
                    found = law.loss(params, tokens, epochs)
                else:
                    memory = recipe.memory_tokens(decay)
                    found = members.loss(law, count, params, tokens, epochs, memory)
            return np.where(np.isfinite(found), found, np.inf)

        return losses


@dataclass(frozen=True, eq=False)
class Task:
    """What is searched for: the lowest loss within a ceiling or, with a target, the lowest total."""

    losses: Losses
    bill: Bill
    limits: Limits
    counts: tuple[int, ...]
    ceiling: float = math.inf
    target: float | None = None

    @property
    def tokens(self) -> tuple[float, float]:
        """ln of the fewest and the most unique tokens that may be used."""
        low = math.log(self.bill.owned)
        if not self.bill.buys:
            return low, low
        if math.isfinite(self.ceiling):
            return low, math.log(self.bill.most_tokens(self.ceiling))
        return low, max(low, math.log(1e16))

    @property
    def close(self) -> float:
        """How close, in ln, what is continuous is found. A dial's weight decay is rounded in the end; the
        least bought data that reaches a loss may lie next to where none does, and costs climb steeply there.
        """
        if self.losses.setting is None and not self.bill.buys:
            return _ROUNDED
        return _CLOSE if self.target is None else _CLOSEST

    @property
    def most_epochs(self) -> float:
        return min(self.limits.max_epochs or _MOST_EPOCHS, _MOST_EPOCHS)

    def sizes(self, point: Point) -> tuple[Values, Values]:
        """ln of the smallest and the largest members that each point allows; the other way round: none."""
        paid = self.bill.largest(self.ceiling, point.members, np.exp(point.ln_tokens), point.epochs)
        with np.errstate(divide="ignore"):
            high = np.minimum(np.log(paid), _SIZES[1])
        low = np.full_like(high, _SIZES[0])
        if self.limits.max_params is not None:
            high = np.minimum(high, math.log(self.limits.max_params))
        if self.limits.min_params is not None:
            low = np.maximum(low, math.log(self.limits.min_params))
            close = (high < low) & (high > low - 1e-12)  # met exactly, but for rounding
            high = np.where(close, low, high)
        if self.limits.ceiling or self.target is not None:
            return low, high
        with np.errstate(divide="ignore"):  # all of it is spent: the size is what that pays for
            exact = np.log(paid)
        return np.where((exact >= low - 1e-12) & (exact <= high + 1e-12), high, np.inf), high


def best(task: Task) -> Found | None:
    """The answer, or None where limits and ceiling leave nothing that can be paid (or reached)."""
    start = _kept(*_grid(task), _KEPT)
    if start is None:
        return None
    found = _beside(task, _narrowed(task, start))
    return found if task.losses.setting is not None else _two_digits(task, found)


def one_and_several(task: Task) -> tuple[float, float]:
    """The lowest loss of one model and that of several members, both roughly, from one grid."""
    point, losses = _grid(task)
    several = point.members > 1
    starts = (_kept(point, np.where(kind, losses, np.inf), _LAST) for kind in (~several, several))
    one, more = (math.inf if start is None else _roughly(task, start).loss for start in starts)
    return one, more


def best_below(tasks: Sequence[Task], loss: float) -> Found | None:
    """A rough answer of several that gets below a loss, the best of them, or None: where it is far out of
    reach a glance is enough to know.
    """
    found = [one for one in (_below(task, loss) for task in tasks) if one is not None and one.loss < loss]
    return min(found, key=lambda one: (one.loss, one.total), default=None)


def _below(task: Task, loss: float) -> Found | None:
    point, losses = _glance(task)
    start = _kept(point, losses, _LAST)
    if start is None or losses.min() > loss + _GLANCE:
        return None
    return _roughly(task, start)


def best_of(tasks: Sequence[Task]) -> Found | None:
    """The best answer of several, which differ in their weight decay."""
    found = [one for one in map(best, tasks) if one is not None]
    if not found:
        return None
    return min(found, key=lambda one: (one.loss, one.total) if tasks[0].target is None else one.total)


def tasks_for(
    known: Calibration,
    form: str,
    weight_decay: float | None,
    bill: Bill,
    limits: Limits,
    counts: Sequence[int],
) -> list[Task]:
    """One search for each weight decay that may be chosen; a dial has them all in one."""
    free: tuple[Setting | None, ...] = known.candidates(form, weight_decay)
    if weight_decay is None and has_dial(known, form):
        free = (None,)
    return [Task(Losses(known, form, setting), bill, limits, tuple(counts)) for setting in free]


# -- one size after the other


def solved(task: Task, point: Point, *, close: float = 0.0) -> tuple[Values, Values]:
    """The best size (its ln) of each point, and what is minimised there: the loss, or the total cost.

    Between points that are `close` (in ln, of what else is free) a size need not be known better than that.
    """
    low, high = task.sizes(point)
    possible = high >= low
    low = np.minimum(low, high)
    with np.errstate(invalid="ignore"):
        bottom = np.where(possible, low, 0.0)
        top = np.where(possible, high, 0.0)
    along = task.losses.along(point)
    sizes, losses = _lowest(along, bottom, top, max(_SIZE, close / 8))
    if task.target is None:
        return sizes, np.where(possible, losses, np.inf)
    reached = possible & (losses <= task.target)
    sizes = _first(along, task.target, bottom, sizes, min(max(_REACHED, close**2 / 1000), 0.2))
    total = task.bill.total(point.members, np.exp(sizes), np.exp(point.ln_tokens), point.epochs)
    return sizes, np.where(reached, total, np.inf)


def _lowest(along: Along, low: Values, high: Values, close: float) -> tuple[Values, Values]:
    """The size with the lowest loss between two: a table, and ever narrower ones around its lowest place,
    until those next to it are close.
    """
    rows, number = np.arange(len(low)), _COARSE
    while True:
        sizes = np.linspace(low, high, number, axis=1)
        table = along(sizes)
        pick = table.argmin(axis=1)
        if np.max(high - low) <= close * (number - 1):
            return sizes[rows, pick], table[rows, pick]
        low, high = sizes[rows, np.maximum(pick - 1, 0)], sizes[rows, np.minimum(pick + 1, number - 1)]
        number = _FINE


def _first(along: Along, target: float, low: Values, high: Values, close: float) -> Values:
    """The smallest size that reaches the loss asked for, below one that does."""
    rows, number = np.arange(len(low)), _COARSE
    while np.max(high - low) > close:
        sizes = np.linspace(low, high, number, axis=1)
        reaches = along(sizes) <= target
        reaches[:, -1] = True
        first = reaches.argmax(axis=1)
        low, high = sizes[rows, np.maximum(first - 1, 0)], sizes[rows, first]
        number = _FINE
    return high


# -- everything else


def _epoch_grid(task: Task) -> Values:
    """Numbers of epochs to begin with: fractions, the first whole ones, and fewer and fewer beyond."""
    most = task.most_epochs
    beyond = _ALL_EPOCHS * _RATIO ** np.arange(1, 45)
    grid = np.concatenate([_SHARES, np.arange(1.0, _ALL_EPOCHS + 1), np.floor(beyond)])
    if not task.limits.whole_epochs:
        grid = np.concatenate([grid, [1.02, 1.1, 1.25, 1.5, 2.5]])
    last = math.floor(most) if task.limits.whole_epochs and most >= 1 else most
    return np.unique(np.append(grid[grid <= most], last))


def _grid(task: Task) -> tuple[Point, Values]:
    """All combinations of the first grid, and what is minimised at each."""
    point = _points(task)
    return point, solved(task, point, close=_WIDE)[1]


def _glance(task: Task) -> tuple[Point, Values]:
    """The same combinations, and the lowest loss of each if all, a quarter or a sixteenth of a ceiling is
    spent.
    """
    point = _points(task)
    low, high = task.sizes(point)
    possible = high >= low
    sizes = np.maximum(np.where(possible, high, 0.0) + _LESS[:, None], np.where(possible, low, 0.0))
    return point, np.where(possible, task.losses.along(point)(sizes.T).min(axis=1), np.inf)


def _points(task: Task) -> Point:
    """Combinations of everything but the size."""
    axes = (
        np.array(_few(task.counts), dtype=float),
        _epoch_grid(task),
        _axis(*task.losses.decays, _DECAYS),
        _axis(*task.tokens, _TOKENS),
    )
    return Point(*(values.ravel() for values in np.meshgrid(*axes, indexing="ij")))


def _axis(low: float, high: float, number: int) -> Values:
    return np.linspace(low, high, number) if high > low else np.array([low])


def _few(counts: Sequence[int]) -> list[int]:
    """Some of many numbers of members; those between are tried next to the best."""
    if len(counts) <= 6:
        return list(counts)
    picks = np.unique(np.round(np.geomspace(1, len(counts), 7)).astype(int)) - 1
    return [counts[pick] for pick in picks]


def _kept(point: Point, values: Values, number: int) -> Point | None:
    """The best places of the grid, one for each number of members and epochs."""
    order = np.argsort(values, kind="stable")
    order = order[np.isfinite(values[order])]
    if not len(order):
        return None
    first: dict[tuple[float, float], int] = {}
    for row in order.tolist():
        first.setdefault((float(point.members[row]), float(point.epochs[row])), row)
        if len(first) == number:
            break
    rows = list(first.values())
    return Point(*(column[rows] for column in point))


def _narrowed(task: Task, point: Point, *, near: float = 1.0) -> tuple[Found, ...]:
    """Each start with all that is continuous narrowed down around it, the best first; `near` is how far the
    search begins, of what is between two points of the first grid.
    """
    centre, low, high, width = _bounds(task, point)
    width *= near
    count, whole = point.members, np.where(low[:, 0] == high[:, 0], point.epochs, np.nan)
    steps = _steps(width, _OFFSETS)
    for step in range(_NARROWINGS if len(steps) > 1 else 0):
        tried = np.clip(centre[:, None] + steps * width[:, None], low[:, None], high[:, None])
        flat = tried.reshape(-1, 3)
        each = Point(np.repeat(count, len(steps)), np.exp(flat[:, 0]), flat[:, 1], flat[:, 2])
        values = solved(task, each, close=float(width.max()))[1].reshape(len(centre), -1)
        pick = values.argmin(axis=1)
        rows = np.arange(len(centre))
        there, least = tried[rows, pick], values[rows, pick]
        width = np.where(np.abs(there - centre) < 0.9 * width, 0.5 * width, width)
        centre = there
        if step % _HALVED == _HALVED - 1 and len(centre) > _LAST:  # those behind will not catch up
            ahead = np.argsort(least, kind="stable")[: max(len(centre) // 2, _LAST)]
            centre, low, high, width = centre[ahead], low[ahead], high[ahead], width[ahead]
            count, whole = count[ahead], whole[ahead]
        if width.max() < task.close:
            break
    epochs = np.where(np.isnan(whole), np.exp(centre[:, 0]), whole)
    return _answers(task, Point(count, epochs, centre[:, 1], centre[:, 2]))


def _roughly(task: Task, point: Point) -> Found:
    """The lowest loss within a ceiling next to some starts, right to a thousandth of a nat: sizes are
    narrowed down together with all else that is continuous.
    """
    centre, low, high, width = _bounds(task, point)
    number = _FINE if np.count_nonzero(width.any(axis=0)) == 1 else _OFFSETS
    steps, rows = _steps(width, number), np.arange(len(centre))
    bottom, top = task.sizes(point)
    size, reach = 0.5 * (bottom + top), float(np.max(top - bottom)) / 2
    for _ in range(_NARROWINGS):
        tried = np.clip(centre[:, None] + steps * width[:, None], low[:, None], high[:, None])
        flat = tried.reshape(-1, 3)
        each = Point(np.repeat(point.members, len(steps)), np.exp(flat[:, 0]), flat[:, 1], flat[:, 2])
        bottom, top = (ends[:, None] for ends in task.sizes(each))
        sizes = np.clip(np.repeat(size, len(steps))[:, None] + reach * _AROUND, bottom, top)
        losses = np.where(top >= bottom, task.losses.along(each)(sizes), np.inf).reshape(len(centre), -1)
        pick = losses.argmin(axis=1)
        there, size = tried[rows, pick // _COARSE], sizes.reshape(len(centre), -1)[rows, pick]
        width = np.where(np.abs(there - centre) < 0.9 * width, 2 / (number - 1) * width, width)
        centre, reach = there, 2 * reach / (_COARSE - 1) + _OTHERS * float(width.max())
        if reach < _ROUGHLY:
            break
    epochs = np.where(low[:, 0] == high[:, 0], point.epochs, np.exp(centre[:, 0]))
    found = Point(point.members, epochs, centre[:, 1], centre[:, 2])
    return _described(task, found, size, losses[rows, pick])[0]


def _steps(width: Values, number: int) -> Values:
    """All combinations of so many steps of what is continuous, in units of how far around it is looked."""
    free = np.flatnonzero(width.any(axis=0))
    steps = np.zeros((number ** len(free), 3))
    steps[:, free] = list(itertools.product(np.linspace(-1.0, 1.0, number), repeat=len(free)))
    return steps


def _bounds(task: Task, point: Point) -> tuple[Values, Values, Values, Values]:
    """The continuous quantities of each start, between which ends they lie, and how far around they are
    looked for first.
    """
    here = np.log(point.epochs)
    fixed = (point.epochs >= 1) if task.limits.whole_epochs else np.zeros(len(here), dtype=bool)
    top = math.log(min(task.most_epochs, 1.0)) if task.limits.whole_epochs else math.log(task.most_epochs)
    ends = [(np.where(fixed, here, math.log(1e-6)), np.where(fixed, here, top))]
    ends += [
        (np.full_like(here, low), np.full_like(here, high)) for low, high in (task.losses.decays, task.tokens)
    ]
    low, high = (np.stack(side, axis=1) for side in zip(*ends, strict=True))
    spacing = np.array([0.8, 1.0 / (_DECAYS - 1), 1.0 / (_TOKENS - 1)])
    width = np.where(high > low, spacing, 0.0)
    width[:, 1:] *= (high - low)[:, 1:]
    return np.stack([here, point.ln_decay, point.ln_tokens], axis=1), low, high, width


def _answers(task: Task, point: Point) -> tuple[Found, ...]:
    """What each point comes to, the best first."""
    return _described(task, point, *solved(task, point))


def _described(task: Task, point: Point, sizes: Values, values: Values) -> tuple[Found, ...]:
    """Points of these sizes, the best first."""
    params, tokens = np.exp(sizes), np.exp(point.ln_tokens)
    tokens = np.where(np.isclose(tokens, task.bill.owned, rtol=1e-9), task.bill.owned, tokens)
    if task.limits.max_params is not None:
        params = np.minimum(params, task.limits.max_params)
    loss = values if task.target is None else task.losses.along(point)(sizes[:, None])[:, 0]
    total = task.bill.total(point.members, params, tokens, point.epochs)
    setting = task.losses.setting
    order = np.argsort(values, kind="stable")
    return tuple(
        Found(
            int(point.members[row]),
            float(params[row]),
            float(tokens[row]),
            float(point.epochs[row]),
            float(np.exp(point.ln_decay[row])) if setting is None else setting.weight_decay,
            float(loss[row]),
            float(total[row]),
        )
        for row in order
        if np.isfinite(values[row])
    )


def _beside(task: Task, found: Sequence[Found]) -> Found:
    """The best once whole epochs and members between those of the grid are tried as well."""
    answer = found[0]
    gap = max((_RATIO - 1) * answer.epochs, 1.0) if task.limits.whole_epochs else 0.0
    spread = len(task.counts) > len(_few(task.counts))
    while True:
        counts = _neighbours(task.counts, answer.members) if spread else [answer.members]
        epochs = _whole_around(answer.epochs, gap, task.most_epochs) if gap else [answer.epochs]
        pairs = list(itertools.product(counts, epochs))
        start = Point(
            np.array([count for count, _ in pairs], dtype=float),
            np.array([passes for _, passes in pairs]),
            np.full(len(pairs), math.log(max(answer.weight_decay, 1e-30))),
            np.full(len(pairs), math.log(answer.unique_tokens)),
        )
        closer = (*_narrowed(task, start, near=_NEAR), answer)
        next_best = min(closer, key=_score(task))
        done = gap <= 1.0 and _score(task)(next_best) >= _score(task)(answer) - 1e-13
        answer, gap = next_best, min(gap, max(0.3 * gap, 1.0))
        if done:
            return answer


def _score(task: Task) -> Callable[[Found], float]:
    return (lambda found: found.loss) if task.target is None else (lambda found: found.total)


def _neighbours(counts: Sequence[int], count: int) -> list[int]:
    place = counts.index(count)
    return list(counts[max(place - 2, 0) : place + 3])


def _whole_around(epochs: float, gap: float, most: float) -> list[float]:
    """A few whole numbers of epochs on either side; below one epoch what was found, and one."""
    if epochs < 1:
        return [epochs]
    near = np.unique(np.round(np.linspace(epochs - gap, epochs + gap, 7)))
    return [float(one) for one in near if 1 <= one <= most] or [epochs]


def _two_digits(task: Task, found: Found) -> Found:
    """The same with a weight decay that people can type, the better of the two next to the best."""
    low, high = (math.exp(end) for end in task.losses.decays)
    digit = 10.0 ** (math.floor(math.log10(found.weight_decay)) - 1)
    near = {math.floor(found.weight_decay / digit) * digit, math.ceil(found.weight_decay / digit) * digit}
    known, answers = task.losses.known, []
    for decay in sorted(float(f"{min(max(one, low), high):.2g}") for one in near):
        losses = replace(task.losses, setting=known.setting(min(max(decay, low), high)))
        fixed = replace(task, losses=losses)
        start = Point(
            np.array([float(found.members)]),
            np.array([found.epochs]),
            np.array([losses.decays[0]]),
            np.array([math.log(found.unique_tokens)]),
        )
        if narrowed := _narrowed(fixed, start):  # nothing where two digits leave what can be paid
            answers.append(_beside(fixed, narrowed))
    return min(answers, key=_score(task), default=found)
