"""Several forms at once: their weighted average, and draws of which each has a form of its own.

`Averaged` is a law: its loss, terms and slopes are the weighted means of those of its parts, so that a plan
minimises the averaged loss. `Mixture` is an ensemble whose members differ in form; where two mixtures are
made alike, member i of one belongs to member i of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planner.laws.common import Stack, stacked
from planner.laws.forms import AVERAGE, BASE_PARAMETERS, Array, form_named
from planner.laws.law import Law, Slopes, Terms

_NEWTON = 12


class Averaged(Law):
    """The weighted average of laws of different forms."""

    parts: tuple[Law, ...]
    weights: tuple[float, ...]
    _by_axes: dict[int, list[tuple[Law, np.ndarray]]]  # by axes of what they see: laws, and their weights

    def __init__(self, parts: Sequence[Law], weights: Sequence[float]) -> None:
        total = float(sum(weights))
        _put(
            self,
            form=AVERAGE,
            parts=tuple(parts),
            weights=tuple(float(weight) / total for weight in weights),
            declared=form_named(AVERAGE),
            parameters={f"{part.form} {name}": v for part in parts for name, v in part.parameters.items()},
            is_ensemble=False,
            _by_axes={},
        )

    def _mean(self, of: Callable[[Law], Array]) -> Array:
        return sum(weight * of(part) for weight, part in zip(self.weights, self.parts, strict=True))

    def _means(self, of: Callable[[Law], Sequence[Array]], axes: int, more: int = 0) -> list[Array]:
        """The means of some figures that are computed for all parts at once, for arrays of so many axes; the
        figures may have more.
        """
        if axes not in self._by_axes:
            index, weights = (slice(None), *(None,) * axes), np.asarray(self.weights)
            self._by_axes[axes] = [
                (one.law.member(index), weights[one.places]) for one in stacked(self.parts)
            ]
        rank = axes + more
        found = [[_mean(figure, share, rank) for figure in of(law)] for law, share in self._by_axes[axes]]
        return [sum(values) for values in zip(*found, strict=True)]

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        axes = max(np.ndim(values) for values in (params, unique_tokens, epochs))
        return Terms(*self._means(lambda law: law._terms(params, unique_tokens, epochs), axes))

    def slopes(self, params: Array, unique_tokens: Array, epochs: Array) -> Slopes:
        axes = max(np.ndim(values) for values in (params, unique_tokens, epochs))
        return Slopes(*self._means(lambda law: law.slopes(params, unique_tokens, epochs), axes))

    def optimal_params(self, tokens: Array) -> Array:
        """The geometric mean of those of the parts."""
        return np.exp(self._mean(lambda part: np.log(part.optimal_params(tokens))))

    def fresh_epochs(self, product: Array, unique_tokens: Array) -> Array:
        """Where the averaged base law is lowest along the iso-FLOP curve: it is convex in ln(epochs), and the
        minimum lies between those of the parts.
        """
        ln_k, ln_u = np.log(product), np.log(unique_tokens)
        ends = np.log([part.fresh_epochs(product, unique_tokens) for part in self.parts])
        low, high = ends.min(axis=0), ends.max(axis=0)
        ln_a, alpha, ln_b, beta = (
            column.reshape(-1, *(1,) * np.ndim(ends[0])) for column in self._base_columns()
        )
        at = np.tensordot(self.weights, ends, axes=1)
        for _ in range(_NEWTON):
            capacity = alpha * np.exp(ln_a - alpha * (ln_k - at))
            data = beta * np.exp(ln_b - beta * (ln_u + at))
            step = (capacity - data).sum(axis=0) / (alpha * capacity + beta * data).sum(axis=0)
            at = np.clip(at - step, low, high)
            if np.all(np.abs(step) < 1e-12):
                break
        return np.exp(at)

    def _base_columns(self) -> list[np.ndarray]:
        """Of all parts: ln(weight A), alpha, ln(weight B), beta."""
        p = {name: np.array([part.parameters[name] for part in self.parts]) for name in BASE_PARAMETERS}
        ln_weights = np.log(self.weights)
        return [ln_weights + np.log(p["A"]), p["alpha"], ln_weights + np.log(p["B"]), p["beta"]]

    def epochs_bound(self, product: Array, unique_tokens: Array, loss: Array) -> Array:
        """Where the capacity term of every part exceeds what it may, so does their average."""
        return np.max([part.epochs_bound(product, unique_tokens, loss) for part in self.parts], axis=0)

    def base(self) -> Law:
        return Averaged([part.base() for part in self.parts], self.weights)

    def member(self, index: Any) -> Law:
        return self

    def on_isoflop(self, product: Array, unique_tokens: Array, epochs: Array) -> Array:
        axes = np.ndim(product)
        return self._means(lambda law: (law.on_isoflop(product, unique_tokens, epochs),), axes, 1)[0]

    @property
    def is_separable(self) -> bool:
        return False

    def isoflop_factors(self, product: Array, unique_tokens: Array, epochs: Array) -> None:
        return None


class Mixture(Law):
    """Draws of laws, each of one of several forms; draws of all forms alternate."""

    parts: tuple[Law, ...]
    order: np.ndarray  # place of member i among the members of all parts, one part after the other
    groups: list[Stack]  # all of them as few ensembles, whose places are among all parts, too

    def __init__(self, parts: Sequence[Law]) -> None:
        sizes = [part.members for part in parts]
        evenly = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
        _put(
            self,
            form=AVERAGE,
            parts=tuple(parts),
            order=np.argsort(evenly, kind="stable"),
            groups=stacked(parts),
            declared=form_named(AVERAGE),
            parameters={},
            is_ensemble=True,
        )

    @property
    def members(self) -> int:
        return len(self.order)

    def each_of(self, of: Callable[..., Sequence[Array]], *values: Array) -> list[Array]:
        """Figures of some members at their share of some values, for all members: each as one array."""
        number = np.argsort(self.order)
        found: list[np.ndarray] = []
        for group in self.groups:
            mine = number[group.places]
            figures = of(group.law, *(value[..., mine] if np.ndim(value) else value for value in values))
            found = found or [np.empty(self.members) for _ in figures]
            for every, figure in zip(found, figures, strict=True):
                every[mine] = figure
        return list(found)

    def first_of_each(self, share: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """Which members of each group are among the first of their form, a share of those and at least one;
        and the number of that form.
        """
        sizes = [part.members for part in self.parts]
        first = np.concatenate([np.arange(size) < max(round(share * size), 1) for size in sizes])
        form = np.repeat(np.arange(len(sizes)), sizes)
        some = [(group.places, np.flatnonzero(first[group.places])) for group in self.groups]
        return [(index, form[places[index]]) for places, index in some]

    def _terms(self, params: Array, unique_tokens: Array, epochs: Array) -> Terms:
        return Terms(*self.each_of(lambda some, *at: some._terms(*at), params, unique_tokens, epochs))

    def member(self, index: Any) -> Law:
        """One member, by its number."""
        if isinstance(index, slice) and index.indices(self.members) == (0, self.members, 1):
            return self
        place = int(self.order[index])
        for part in self.parts:
            if place < part.members:
                return part.member(place)
            place -= part.members
        raise IndexError(index)


def belonging(ensembles: Sequence[Law]) -> list[tuple[Law, ...]]:
    """Ensembles whose members belong together, one of each given: of mixtures, those of forms that all
    have.
    """
    apart = [one.parts if isinstance(one, Mixture) else (one,) for one in ensembles]
    by_form = [{part.form: part for part in parts} for parts in apart]
    shared = [form for form in by_form[0] if all(form in parts for parts in by_form)]
    if not shared:
        return []
    least = {form: min(parts[form].members for parts in by_form) for form in shared}
    groups = [stacked([parts[form].member(slice(least[form])) for form in shared]) for parts in by_form]
    return [tuple(stack.law for stack in stacks) for stacks in zip(*groups, strict=True)]


def _mean(figure: Array, weights: np.ndarray, axes: int) -> Array:
    """The mean over the laws, which are the axis before these; without it a figure is the same for all."""
    if np.ndim(figure) <= axes:
        return figure * weights.sum()
    if len(figure) == 1:
        return figure[0] * weights.sum()
    return (weights @ figure.reshape(len(figure), -1)).reshape(figure.shape[1:])


def _put(law: Law, **values: Any) -> None:
    """The fields of a law, which is frozen."""
    for name, value in values.items():
        object.__setattr__(law, name, value)
