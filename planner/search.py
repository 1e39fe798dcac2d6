r"""The search where more than size and epochs is free: members, any weight decay, tokens to serve or to buy.

Asked is for the lowest loss within a total cost (`hardware.TotalCost`), or for the lowest cost that reaches a
loss, of one model or of K whose probabilities are averaged (`planner.averaging`). The search is nested:

1. For given members, epochs, weight decay and unique tokens only the size is free. The loss along it is
   tabulated up to the largest size that can be paid for, and its lowest place narrowed down; for a loss to
   reach, the first size that reaches it.
2. That is done on a grid of everything else. The best combinations of members and whole epochs are kept.
3. For each of them what is continuous (weight decay, bought tokens, epochs that need not be whole) is
   narrowed down together: a pattern search on ever smaller grids around the best point (Hooke & Jeeves 1961).
4. Whole epochs and members that the grid left out are tried next to the best.

Nothing of a law is used but its loss, so that every form can be asked, alone or averaged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.calibration import Calibration, Setting
from planner.hardware import TotalCost
from planner.inputs import Limits
from planner.solve import Point

_SIZES = (0.0, math.log(1e15))  # ln of the smallest and the largest model looked at
_COARSE, _FINE = 33, 9  # sizes in a table, and in each of the narrower ones
_SIZE, _REACHED = 1e-4, 1e-8  # how close, in ln, sizes are found: the best, and the first that reaches a loss
_ALL_EPOCHS, _RATIO = 16, 1.25  # whole epochs that are all tried, and steps beyond
_SHARES = np.exp(-np.linspace(9.0, 0.0, 13))[:-1]  # of the corpus, below one epoch
_DECAYS, _TOKENS = 9, 11  # weight decays and amounts of data on the first grid
_WIDE = 10.0  # between points of the first grid: one table of sizes is enough
_KEPT, _LAST, _NARROWINGS, _OFFSETS = 12, 4, 60, 5
_ROUGH, _ROUNDED, _CLOSE, _CLOSEST = 0.05, 3e-4, 2e-5, 1e-6  # in ln of what is continuous
_NEAR = 0.15  # how far, of the first grid, what is next to the best is looked for

Values = np.ndarray
Along = Callable[[Values], Values]  # sizes of a row (their ln) -> losses


class Found(NamedTuple):
    """What to train, how often; the point's compute is what it costs in all."""

    members: int
    weight_decay: float
    point: Point


class Grid(NamedTuple):
    """Configurations, as arrays of one length, whose size is free."""

    members: Values
    epochs: Values
    ln_decay: Values
    ln_tokens: Values

    @classmethod
    def at(cls, found: Found, tokens: float | None = None) -> Grid:
        """One configuration without its size."""
        ln_decay = math.log(max(found.weight_decay, 1e-30))
        ln_tokens = math.log(tokens or found.point.unique_tokens)
        return cls(*(np.array([v]) for v in (float(found.members), found.point.epochs, ln_decay, ln_tokens)))


@dataclass(frozen=True, eq=False)
class Search:
    """What is searched for: the lowest loss within a ceiling or, with a target, the lowest total."""

    known: Calibration
    form: str
    setting: Setting | None  # None: the weight decay is free
    cost: TotalCost
    limits: Limits
    members: tuple[int, ...]
    ceiling: float = math.inf
    target: float | None = None

    @property
    def decays(self) -> tuple[float, float]:
        """ln of the weakest and the strongest weight decay that may be chosen."""
        if self.setting is not None:
            here = math.log(max(self.setting.weight_decay, 1e-30))
            return here, here
        low, high = self.known.weight_decay_range
        return math.log(max(low, 1e-3 * high)), math.log(high)

    @property
    def tokens(self) -> tuple[float, float]:
        """ln of the fewest and the most unique tokens that may be used."""
        low = math.log(self.cost.owned)
        if not self.cost.buys:
            return low, low
        most = self.cost.most_tokens(self.ceiling) if math.isfinite(self.ceiling) else 1e16
        return low, max(low, math.log(most))

    @property
    def epochs(self) -> tuple[float, float]:
        """The fewest and the most epochs that may be chosen."""
        return self.limits.min_epochs or 1e-6, min(self.limits.max_epochs or 1e5, 1e5)

    @property
    def close(self) -> float:
        """How close, in ln, what is continuous is found. A free weight decay is rounded in the end; the least
        bought data that reaches a loss may lie next to where none does, and costs climb steeply there.
        """
        if self.setting is None and not self.cost.buys:
            return _ROUNDED
        return _CLOSE if self.target is None else _CLOSEST

    def loss_along(self, grid: Grid) -> Along:
        """The loss of each configuration for the sizes (their ln) of its row; infinity where it cannot be
        told."""
        count, epochs, ln_decay, ln_tokens = (values[:, None] for values in grid)
        decay, tokens = np.exp(ln_decay), np.exp(ln_tokens)
        law = self.known.law_at(self.form, decay) if self.setting is None else self.setting.law(self.form)
        averaging, recipe = self.known.members, self.known.recipe

        def losses(ln_params: Values) -> Values:
            params = np.exp(ln_params)
            with np.errstate(over="ignore", invalid="ignore"):
                if averaging is None or recipe is None or not np.any(count > 1):
                    found = law.loss(params, tokens, epochs)
                else:
                    timescale = recipe.timescale_tokens(decay)
                    found = averaging.loss(law, count, params, tokens, epochs, timescale)
            return np.where(np.isfinite(found), found, np.inf)

        return losses

    def sizes(self, grid: Grid) -> tuple[Values, Values]:
        """ln of the smallest and the largest members that are allowed; the other way round: none."""
        paid = self.cost.largest(self.ceiling, grid.members, np.exp(grid.ln_tokens), grid.epochs)
        with np.errstate(divide="ignore"):
            exact = np.log(paid)
        high = np.minimum(exact, _SIZES[1])
        low = np.full_like(high, _SIZES[0])
        if self.limits.max_params is not None:
            high = np.minimum(high, math.log(self.limits.max_params))
        if self.limits.min_params is not None:
            low = np.maximum(low, math.log(self.limits.min_params))
            high = np.where((high < low) & (high > low - 1e-12), low, high)  # met exactly, but for rounding
        if self.limits.ceiling or self.target is not None:
            return low, high
        # All of it is spent: the size is what that pays for.
        return np.where((exact >= low - 1e-12) & (exact <= high + 1e-12), high, np.inf), high

    def score(self, found: Found) -> float:
        return float(found.point.loss if self.target is None else found.point.flops)


def searches(
    known: Calibration,
    form: str,
    weight_decay: float | None,
    cost: TotalCost,
    limits: Limits,
    members: Sequence[int],
) -> list[Search]:
    """One search for each weight decay that may be chosen; a weight-decay law has them all in one."""
    free: tuple[Setting | None, ...] = known.candidates(form, weight_decay)
    if weight_decay is None and known.has_weight_decay_law(form):
        free = (None,)
    return [Search(known, form, setting, cost, limits, tuple(members)) for setting in free]


def best_of(tasks: Sequence[Search]) -> Found | None:
    """The best answer of several, which differ in their weight decay."""
    found = [one for one in map(best, tasks) if one is not None]
    return min(found, key=lambda one: (tasks[0].score(one), one.point.flops), default=None)


def best(task: Search, *, rough: bool = False) -> Found | None:
    """The answer, or None where limits and ceiling leave nothing that can be paid (or reached); a `rough` one
    is right to about a hundredth of a nat.
    """
    grid = _first_grid(task)
    values = best_sizes(task, grid, close=_WIDE)[1]
    order = np.argsort(values, kind="stable")
    first: dict[tuple[float, float], int] = {}  # the best place of each number of members and epochs
    for row in order[np.isfinite(values[order])].tolist():
        first.setdefault((float(grid.members[row]), float(grid.epochs[row])), row)
        if len(first) == (_LAST if rough else _KEPT):
            break
    if not first:
        return None
    start = Grid(*(column[list(first.values())] for column in grid))
    if rough:
        return _narrow(task, start, close=_ROUGH)[0]
    found = _try_neighbours(task, _narrow(task, start, close=task.close)[0])
    return found if task.setting is not None else _two_digits(task, found)


def best_sizes(task: Search, grid: Grid, *, close: float = 0.0) -> tuple[Values, Values]:
    """The best size (its ln) of each configuration, and what is minimised there: the loss, or the total cost.

    Between configurations that are `close` (in ln, of what else is free) a size need not be known better.
    """
    low, high = task.sizes(grid)
    possible = high >= low
    bottom, top = np.where(possible, np.minimum(low, high), 0.0), np.where(possible, high, 0.0)
    along = task.loss_along(grid)
    sizes, losses = _lowest(along, bottom, top, max(_SIZE, close / 8))
    if task.target is None:
        return sizes, np.where(possible, losses, np.inf)
    reached = possible & (losses <= task.target)
    sizes = _first_reaching(along, task.target, bottom, sizes, min(max(_REACHED, close**2 / 1000), 0.2))
    total = task.cost.total(grid.members, np.exp(sizes), np.exp(grid.ln_tokens), grid.epochs)
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


def _first_reaching(along: Along, target: float, low: Values, high: Values, close: float) -> Values:
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


def _first_grid(task: Search) -> Grid:
    """Combinations of everything but the size: fractions of an epoch, the first whole ones and fewer and
    fewer beyond; some of many numbers of members (those between are tried next to the best).
    """
    fewest, most = task.epochs
    epochs = np.concatenate(
        [_SHARES, np.arange(1.0, _ALL_EPOCHS + 1), np.floor(_ALL_EPOCHS * _RATIO ** np.arange(1, 45))]
    )
    ends = [fewest, most]
    if not task.limits.whole_epochs:
        epochs = np.concatenate([epochs, [1.02, 1.1, 1.25, 1.5, 2.5]])
    else:
        ends = [math.ceil(fewest) if fewest > 1 else fewest, math.floor(most) if most >= 1 else most]
    epochs = np.unique(np.append(epochs[(epochs >= fewest) & (epochs <= most)], ends))
    axes = (
        np.array(_few(task.members), dtype=float),
        epochs[epochs >= max(fewest, _SHARES[0])],
        *(
            np.linspace(low, high, number) if high > low else np.array([low])
            for (low, high), number in ((task.decays, _DECAYS), (task.tokens, _TOKENS))
        ),
    )
    return Grid(*(values.ravel() for values in np.meshgrid(*axes, indexing="ij")))


def _few(counts: Sequence[int]) -> list[int]:
    if len(counts) <= 6:
        return list(counts)
    picks = np.unique(np.round(np.geomspace(1, len(counts), 7)).astype(int)) - 1
    return [counts[pick] for pick in picks]


def _narrow(task: Search, start: Grid, *, close: float, near: float = 1.0) -> tuple[Found, ...]:
    """Each start with all that is continuous narrowed down around it, the best first; `near` is how far the
    search begins, of what is between two points of the first grid.
    """
    fewest, most = task.epochs
    whole = (start.epochs >= 1) & task.limits.whole_epochs
    ln_epochs, most = np.log(start.epochs), min(most, 1.0) if task.limits.whole_epochs else most
    bounds = [(np.where(whole, ln_epochs, math.log(fewest)), np.where(whole, ln_epochs, math.log(most)))]
    bounds += [tuple(np.full_like(ln_epochs, end) for end in ends) for ends in (task.decays, task.tokens)]
    low, high = (np.stack(side, axis=1) for side in zip(*bounds, strict=True))
    centre = np.stack([ln_epochs, start.ln_decay, start.ln_tokens], axis=1)
    width = np.where(high > low, [0.8, 1 / (_DECAYS - 1), 1 / (_TOKENS - 1)], 0.0)
    width[:, 1:] *= (high - low)[:, 1:]
    width *= near
    free = np.flatnonzero(width.any(axis=0))
    steps = np.zeros((_OFFSETS ** len(free), 3))
    steps[:, free] = list(itertools.product(np.linspace(-1.0, 1.0, _OFFSETS), repeat=len(free)))
    count, epochs = start.members, start.epochs
    for step in range(_NARROWINGS if len(free) else 0):
        tried = np.clip(centre[:, None] + steps * width[:, None], low[:, None], high[:, None])
        flat = tried.reshape(-1, 3)
        each = Grid(np.repeat(count, len(steps)), np.exp(flat[:, 0]), flat[:, 1], flat[:, 2])
        values = best_sizes(task, each, close=float(width.max()))[1].reshape(len(centre), -1)
        rows, pick = np.arange(len(centre)), values.argmin(axis=1)
        there, least = tried[rows, pick], values[rows, pick]
        width = np.where(np.abs(there - centre) < 0.9 * width, 0.5 * width, width)
        centre = there
        if step % 3 == 2 and len(centre) > _LAST:  # those behind will not catch up
            ahead = np.argsort(least, kind="stable")[: max(len(centre) // 2, _LAST)]
            centre, low, high, width = centre[ahead], low[ahead], high[ahead], width[ahead]
            count, epochs, whole = count[ahead], epochs[ahead], whole[ahead]
        if width.max() < close:
            break
    grid = Grid(count, np.where(whole, epochs, np.exp(centre[:, 0])), centre[:, 1], centre[:, 2])
    return _answers(task, grid)


def _answers(task: Search, grid: Grid) -> tuple[Found, ...]:
    """What each configuration comes to with its best size, the best first."""
    sizes, values = best_sizes(task, grid)
    params, tokens = np.exp(sizes), np.exp(grid.ln_tokens)
    tokens = np.where(np.isclose(tokens, task.cost.owned, rtol=1e-9), task.cost.owned, tokens)
    if task.limits.max_params is not None:
        params = np.minimum(params, task.limits.max_params)
    loss = values if task.target is None else task.loss_along(grid)(sizes[:, None])[:, 0]
    total = task.cost.total(grid.members, params, tokens, grid.epochs)
    points = Point(params, tokens, grid.epochs, total, loss)
    decays = np.exp(grid.ln_decay) if task.setting is None else [task.setting.weight_decay] * len(loss)
    return tuple(
        Found(int(grid.members[row]), float(decays[row]), points.at(row).single())
        for row in np.argsort(values, kind="stable")
        if np.isfinite(values[row])
    )


def _try_neighbours(task: Search, answer: Found) -> Found:
    """The best once whole epochs and members between those of the grid are tried as well."""
    gap = max((_RATIO - 1) * answer.point.epochs, 1.0) if task.limits.whole_epochs else 0.0
    spread = len(task.members) > len(_few(task.members))
    while True:
        place = task.members.index(answer.members)
        counts = list(task.members[max(place - 2, 0) : place + 3]) if spread else [answer.members]
        epochs = [answer.point.epochs]
        if gap and answer.point.epochs >= 1:  # a few whole numbers on either side
            near = np.unique(np.round(np.linspace(epochs[0] - gap, epochs[0] + gap, 7)))
            epochs = [float(e) for e in near if max(1.0, task.epochs[0]) <= e <= task.epochs[1]] or epochs
        pairs = list(itertools.product(counts, epochs))
        start = Grid(
            np.array([count for count, _ in pairs], dtype=float),
            np.array([passes for _, passes in pairs]),
            np.full(len(pairs), math.log(max(answer.weight_decay, 1e-30))),
            np.full(len(pairs), math.log(answer.point.unique_tokens)),
        )
        closer = (*_narrow(task, start, close=task.close, near=_NEAR), answer)
        next_best = min(closer, key=task.score)
        done = gap <= 1.0 and task.score(next_best) >= task.score(answer) - 1e-13
        answer, gap = next_best, min(gap, max(0.3 * gap, 1.0))
        if done:
            return answer


def _two_digits(task: Search, found: Found) -> Found:
    """The same with a weight decay that people can type, the better of the two next to the best."""
    low, high = (math.exp(end) for end in task.decays)
    digit = 10.0 ** (math.floor(math.log10(found.weight_decay)) - 1)
    near = {math.floor(found.weight_decay / digit) * digit, math.ceil(found.weight_decay / digit) * digit}
    answers = []
    for decay in sorted(float(f"{min(max(one, low), high):.2g}") for one in near):
        fixed = replace(task, setting=task.known.setting(min(max(decay, low), high)))
        start = Grid.at(found)._replace(ln_decay=np.array([fixed.decays[0]]))
        if narrowed := _narrow(fixed, start, close=fixed.close):  # nothing where two digits cannot be paid
            answers.append(_try_neighbours(fixed, narrowed[0]))
    return min(answers, key=task.score, default=found)
