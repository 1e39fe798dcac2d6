r"""Can this table identify a law at all? Asked before fitting, and answered with the run that would help.

The base law E + A N^-alpha + B D^-beta is read off the single-epoch runs: three model sizes and three token
budgets are the least that separate E, A and alpha, and B and beta, and sizes must not simply follow the
budgets. The repetition forms are read off the runs beyond one epoch; on a logarithmic scale the additive
penalty is linear,

    ln penalty = ln P + delta ln R + kappa ln N - kappa gamma ln U,

so that its parameters need as many independent rows of (1, ln R, ln N, ln U), or of (1, ln N/U) for two of
them.

For other forms these are the derivatives of ln(penalty) by their parameters. Both are questions about the
rank of a matrix with one row per distinct configuration. The run to add is the
one, among ordinary sizes, budgets and epochs around those in the table, that adds most information for its
cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.fitting.solver import Coordinates
from planner.inputs import short
from planner.laws import (
    BASE_FORM,
    BASE_PARAMETERS,
    FORMS,
    STANDARD,
    STEP,
    At,
    check_form,
    repetition_parameters,
)

_NOMINAL = 0.35  # exponent at which the base law is linearised: all published ones are within 0.28 to 0.54
# singular value, of columns scaled to length one per root row, below which a direction is not seen at all
_FLAT = 1e-4
_FACTORS = (1.0, 0.25, 0.5, 2.0, 4.0)
_EPOCHS = (1.0, 2.0, 4.0, 8.0, 16.0)
_MOST_RUNS = 6
_THRIFT = 0.3  # how much information (in nats) a run must add to be worth e times the compute


class Run(NamedTuple):
    """A run to train."""

    params: float
    unique_tokens: float
    epochs: float

    def __str__(self) -> str:
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs:g} epochs"
        return f"{short(self.params)} parameters on {short(self.unique_tokens)} unique tokens for {epochs}"


class Unidentified(NamedTuple):
    """Why a law form cannot be fitted at one weight decay, and which runs would change that."""

    weight_decay: float
    form: str
    reason: str
    add: tuple[Run, ...]

    def __str__(self) -> str:
        where = f"{self.form} cannot be identified at weight decay {self.weight_decay:g}"
        return f"{where}: {self.reason}; {self.remedy}"

    @property
    def remedy(self) -> str:
        if not self.add:
            return "a grid of at least three sizes, three budgets and several epochs would do"
        runs = f"{len(self.add)} runs: " if len(self.add) > 1 else "a run of "
        return f"add {runs}{'; '.join(str(run) for run in self.add)}"


def unidentified(table: pd.DataFrame, forms: Iterable[str] = STANDARD) -> list[Unidentified]:
    """Every (weight decay, form) that this run table cannot identify; empty where all is well."""
    names = [check_form(form) for form in forms]
    found = []
    for decay, runs in table.groupby("weight_decay", sort=True):
        configurations = runs[["params", "unique_tokens", "epochs"]].drop_duplicates().to_numpy(dtype=float)
        base = _base_reason(configurations)
        for form in names:
            reason = base or _repetition_reason(configurations, form)
            if reason:
                lacking = BASE_FORM if base else form
                added = runs_to_add(configurations, lacking, _pool(configurations, lacking))
                add = tuple(Run(*map(float, run)) for run in added)
                found.append(Unidentified(float(decay), form, reason, add))  # type: ignore[arg-type]
    return found


def is_identified(runs: np.ndarray, form: str) -> bool:
    """Whether rows of (params, unique tokens, epochs) of one weight decay identify a form."""
    distinct = np.unique(runs, axis=0)
    return not (_base_reason(distinct) or _repetition_reason(distinct, form))


def _base_reason(runs: np.ndarray) -> str | None:
    single = runs[runs[:, 2] <= 1]
    ln_sizes, ln_budgets = np.log(single[:, 0]), np.log(single[:, 1] * single[:, 2])
    sizes, budgets = _distinct(ln_sizes), _distinct(ln_budgets)
    needed = len(BASE_PARAMETERS)
    if len(single) < needed:
        runs_found = f"{len(single)} different single-epoch run{'s' * (len(single) != 1)}"
        return f"only {runs_found}, where the base law has {needed} parameters"
    for number, what, term in ((sizes, "model size", "parameter"), (budgets, "unique-token budget", "data")):
        if number < 3:
            found = f"one {what}" if number == 1 else f"two {what}s"
            return f"only {found} among the single-epoch runs, where its {term} term needs three"
    if _follows(ln_sizes, ln_budgets):
        return (
            "params and unique_tokens are collinear in the single-epoch runs, "
            "so that parameter and data term cannot be told apart"
        )
    if not _is_full(_base_rows(single)):
        return "the single-epoch runs do not separate its parameter term from its data term"
    return None


def _repetition_reason(runs: np.ndarray, form: str) -> str | None:
    names = repetition_parameters(form)
    if not names:
        return None
    multi = runs[runs[:, 2] > 1]
    if not len(multi):
        return "no run repeats its data, so that nothing is known about repetition"
    if len(multi) < len(names):
        runs_found = f"{len(multi)} different run{'s' * (len(multi) > 1)}"
        return f"only {runs_found} beyond one epoch for its {len(names)} repetition parameters"
    columns = _varied(multi, form)
    for name, values in columns.items():
        if _distinct(values) < 2:
            return f"{name} is the same in all runs beyond one epoch"
    for (one, x), (other, y) in itertools.combinations(columns.items(), 2):
        if _follows(x, y):
            return (
                f"{one} and {other} are collinear in the runs beyond one epoch, "
                f"so that their effects cannot be told apart"
            )
    if not _is_full(_repetition_rows(multi, form)):
        what = ", ".join(columns) or ", ".join(names)
        return f"{' and '.join(what.rsplit(', ', 1))} are collinear in the runs beyond one epoch"
    return None


def runs_to_add(runs: np.ndarray, form: str, pool: np.ndarray) -> list[np.ndarray]:
    """The fewest runs of `pool`, each the most telling one left for its cost, after which the form is
    identified.

    Runs are rows of (params, unique tokens, epochs). The base law is taken as it is, unless it is the form in
    question.
    """
    base = form == BASE_FORM
    missing = _base_reason if base else lambda rows: _repetition_reason(rows, form)
    matrix = _base_rows if base else lambda rows: _repetition_rows(rows, form)
    pool = pool[(pool[:, 2] <= 1) == base]
    added: list[np.ndarray] = []
    while missing(runs) and len(added) < _MOST_RUNS and len(pool):
        relevant = runs[(runs[:, 2] <= 1) == base]
        scores = [_information(matrix(np.vstack([relevant, candidate]))) for candidate in pool]
        best = int(np.argmax(np.array(scores) - _THRIFT * np.log(pool.prod(axis=1))))
        added.append(pool[best])
        runs, pool = np.vstack([runs, pool[best]]), np.delete(pool, best, axis=0)
    return added


def _pool(runs: np.ndarray, form: str) -> np.ndarray:
    """Ordinary runs around those in the table, none of which it has."""
    sizes, budgets = (_spread(runs[:, 0]), _spread(runs[:, 1])) if len(runs) else ([], [])
    there = {tuple(run) for run in runs}
    epochs = (1.0,) if form == BASE_FORM else _EPOCHS[1:]
    new = [(n, u, e) for n in sizes for u in budgets for e in epochs if (n, u, e) not in there]
    return np.array(new, dtype=float).reshape(-1, 3)


# -- small matrices ------------------------------------------------------------------------------------------


def _base_rows(runs: np.ndarray) -> np.ndarray:
    """The derivatives of the base law by its parameters, at ordinary exponents."""
    x, y = np.log(runs[:, 0]), np.log(runs[:, 1] * np.minimum(runs[:, 2], 1))
    x, y = x - x.mean(), y - y.mean()
    parameter, data = np.exp(-_NOMINAL * x), np.exp(-_NOMINAL * y)
    return np.column_stack([np.ones_like(x), parameter, x * parameter, data, y * data])


def _varied(runs: np.ndarray, form: str) -> dict[str, np.ndarray]:
    """ln of what must differ between the runs beyond one epoch, by what it is called."""
    known = {
        "params": runs[:, 0],
        "unique_tokens": runs[:, 1],
        "params / unique_tokens": runs[:, 0] / runs[:, 1],
        "repeats": runs[:, 2] - 1,
    }
    needed = [parameter.acts_on for parameter in FORMS[form].repetition]
    return {name: np.log(values) for name, values in known.items() if name in needed}


def _repetition_rows(runs: np.ndarray, form: str) -> np.ndarray:
    """What the form's parameters act on: of a power law the logarithms of what is raised to a power, or else
    the derivatives of ln(overfitting) by them, at ordinary values. The first column stands for the size of
    the penalty.
    """
    declared = FORMS[form]
    acting = [parameter for parameter in declared.repetition if parameter.acts_on]
    if acting and all(parameter.kind == "exponent" for parameter in acting):
        powers = [column - column.mean() for column in _varied(runs, form).values()]
        return np.column_stack([np.ones(len(runs)), *powers])
    base, _ = declared.somewhere()
    params, unique, repeats = np.exp(np.log(runs - [0, 0, 1]).mean(axis=0))
    middle = At(params, unique, 1 + repeats)
    coordinates = Coordinates(declared.repetition, middle, middle)
    ordinary = [coordinates.scaled(p, [p.ordinary])[0] for p in declared.repetition]
    columns = []
    for k, parameter in enumerate(declared.repetition):
        stepped = [value + 1j * STEP * (i == k) for i, value in enumerate(ordinary)]
        cost = declared.terms(coordinates.natural(stepped, base), At(*runs.T)).overfitting
        if np.any(cost) and parameter.kind not in ("amplitude", "linear"):
            columns.append(np.imag(np.log(cost)) / STEP)
    seen = [column - column.mean() for column in columns if np.any(column)]
    return np.column_stack([np.ones(len(runs)), *seen])


def _singular(rows: np.ndarray) -> np.ndarray:
    """Singular values by column, padded with zeros where there are fewer rows than columns."""
    values = np.linalg.svd(rows / np.sqrt(len(rows)), compute_uv=False)
    return np.pad(values, (0, rows.shape[1] - len(values)))


def _is_full(rows: np.ndarray) -> bool:
    return bool(_singular(rows)[-1] > _FLAT)


def _information(rows: np.ndarray) -> float:
    return float(np.log(np.maximum(_singular(rows) * np.sqrt(len(rows)), 1e-9)).sum())


def _distinct(logarithms: np.ndarray) -> int:
    """How many values differ by more than rounding: 220.5M and 221M are one size."""
    return int(len(logarithms) > 0) + int(np.sum(np.diff(np.sort(logarithms)) > 0.02))


def _follows(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether one column of logarithms is a multiple of the other: a power law between the two."""
    x, y = a - a.mean(), b - b.mean()
    return bool(abs(x @ y) > 0.9999 * np.sqrt((x @ x) * (y @ y)))


def _spread(values: np.ndarray) -> list[float]:
    """Values in the table and ordinary multiples of its middle one."""
    distinct = np.unique(values)
    middle = distinct[len(distinct) // 2]
    some = distinct[np.unique(np.linspace(0, len(distinct) - 1, min(len(distinct), 5)).astype(int))]
    return sorted({float(v) for v in some} | {float(middle * factor) for factor in _FACTORS})
