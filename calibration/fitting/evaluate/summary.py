"""What is said of a fitted law: the range of its runs, how well it fits them, intervals from its draws, and
what repetition costs under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict
from scipy.optimize import minimize_scalar
from scipy.special import erf, huber

from calibration.fitting.runs.arrays import SINGLE_EPOCH
from planner.calibration import Calibration, FittedRange, Setting
from planner.inputs import CONTINUOUS, InvalidInput, Limits, count, number, short
from planner.laws import Law
from planner.results import Interval
from planner.solve import FLOPS_PER_PARAM_TOKEN, allocate
from planner.uncertainty import LEVEL, interval, intervals_of, with_discrepancy

PAPER_DELTA = 1e-3  # of the Huber loss of ln(loss)
MOST_WRONG = 0.5  # in ln(loss): a prediction that is wrong by two thirds is useless, by however much more
_DIGITS = 7  # of a draw that is kept


def kept_draws(draws: Mapping[str, Any]) -> dict[str, list[float]]:
    """Draws by name as a calibration keeps them: seven significant digits."""
    return {name: [float(f"{value:.{_DIGITS}g}") for value in values] for name, values in draws.items()}


def fitted_range(table: pd.DataFrame) -> FittedRange:
    """What the runs of a table cover."""
    single = table["epochs"] <= SINGLE_EPOCH
    repeated = table if single.all() else table[~single]
    flops = FLOPS_PER_PARAM_TOKEN * table["params"] * table["unique_tokens"] * table["epochs"]
    columns = {name: table[name] for name in ("params", "unique_tokens", "epochs")}
    columns |= {f"repeated_{name}": repeated[name] for name in ("params", "unique_tokens")}
    columns |= {"loss": table["loss"], "flops": flops}
    ranges: dict[str, Any] = {name: (float(one.min()), float(one.max())) for name, one in columns.items()}
    return FittedRange(
        **ranges,
        runs=len(table),
        single_epoch_runs=int(single.sum()),
        multi_epoch_runs=int((~single).sum()),
    )


# -- goodness of fit -----------------------------------------------------------------------------------------


def goodness_of_fit(
    ln_loss: np.ndarray,
    predicted: np.ndarray,
    single: np.ndarray,
    parameters: int,
    delta: float = PAPER_DELTA,
    *,
    cells: np.ndarray | None = None,
    held_out: np.ndarray | None = None,
) -> dict[str, float | None]:
    """R^2 on the loss, Huber sum and AICc of predicted ln(loss); from `held_out` residuals, NaN in cells that
    do not count, the mean absolute error of ln(loss) in left-out cells.
    """
    loss, expected = np.exp(ln_loss), np.exp(predicted)
    objective = float(huber(delta, predicted - ln_loss).sum())
    figures: dict[str, float | None] = {
        "r2": r_squared(loss, expected),
        "r2_multi": r_squared(loss[~single], expected[~single]),
        "r2_single": r_squared(loss[single], expected[single]),
        "huber": objective,
        "aicc": aicc(objective, len(ln_loss), parameters, delta),
    }
    if held_out is not None and cells is not None:
        counts = ~np.isnan(held_out)
        for name, rows in (("held_out_error", counts), ("held_out_error_multi", counts & ~single)):
            figures[name] = float(np.mean(capped(held_out[rows]))) if rows.any() else None
        figures["held_out_cells"] = float(len(np.unique(cells[counts])))
    return figures


def capped(residual: np.ndarray) -> np.ndarray:
    """|ln(predicted / observed)|, at most `MOST_WRONG`: one run missed by far must not decide over all."""
    return np.asarray(np.minimum(np.abs(residual), MOST_WRONG))


def r_squared(observed: np.ndarray, predicted: np.ndarray) -> float | None:
    """1 - residual over total sum of squares; None where the observed values do not vary."""
    total = float(((observed - observed.mean()) ** 2).sum()) if len(observed) else 0.0
    return 1 - float(((observed - predicted) ** 2).sum()) / total if total > 0 else None


def aicc(objective: float, n: int, parameters: int, delta: float) -> float | None:
    """Corrected Akaike criterion under the objective's own error density, proportional to exp(-rho / tau).

    tau is the noise scale, estimated like a parameter. None where there are too few runs for the correction.
    """
    k = parameters + 1
    if n <= k + 1 or objective <= 0:
        return None

    def deviance(ln_tau: float) -> float:
        tau = float(np.exp(ln_tau))
        core = np.sqrt(2 * np.pi * tau) * erf(delta / np.sqrt(2 * tau))
        tails = 2 * tau / delta * np.exp(-(delta**2) / (2 * tau))
        return 2 * n * float(np.log(core + tails)) + 2 * objective / tau

    centre = np.log(objective / n)
    best = minimize_scalar(deviance, bounds=(centre - 10, centre + 10), method="bounded")
    return float(best.fun) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


# -- intervals -----------------------------------------------------------------------------------------------


def deviation(values: Any) -> float:
    """The median absolute deviation of the finite values."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return float(np.median(np.abs(finite - np.median(finite))))


def spread_of_draws(draws: Law) -> dict[str, dict[str, Any]]:
    """Median absolute deviation and interval of each parameter, as a calibration keeps them."""
    spread = {name: deviation(values) for name, values in draws.parameters.items()}
    spans = intervals_of(draws.parameters)
    intervals = {name: [span.low, span.median, span.high] for name, span in spans.items()}
    return {"spread": {name: spread[name] for name in intervals}, "intervals": intervals}


def draws(setting: Setting, form: str, of_losses: bool = False) -> Law:
    """The draws of a form, or an error that says how to get one."""
    found = setting.law_draws(form, of_losses=of_losses)
    if found is None:
        raise InvalidInput(
            f"no draws of {form} at weight decay {setting.weight_decay:g}; "
            f"a fit with ‹bootstrap› 1000 has intervals."
        )
    return found


def parameter_intervals(setting: Setting, form: str, level: float = LEVEL) -> dict[str, Interval]:
    """Intervals of the parameters of a form."""
    found = {name: interval(values, level) for name, values in draws(setting, form).parameters.items()}
    return {name: value for name, value in found.items() if value is not None}


def loss_interval(
    setting: Setting, form: str, params: float, ud: float, epochs: float, level: float = LEVEL
) -> Interval | None:
    """Interval of the predicted loss of one configuration."""
    return interval(_losses(setting, form, params, ud, epochs), level)


def allocation_intervals(
    setting: Setting, form: str, ud: float, flops: float, level: float = LEVEL, limits: Limits = CONTINUOUS
) -> dict[str, Interval]:
    """Intervals of the optimal size, epochs (by default continuous), tokens and loss at one budget."""
    best = allocate(draws(setting, form), ud, flops, limits)
    values = {**best._asdict(), "loss": _losses(setting, form, best.params, ud, best.epochs)}
    found = {name: interval(each, level) for name, each in values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _losses(setting: Setting, form: str, params: Any, ud: float, epochs: Any) -> np.ndarray:
    """What each refit loses with a configuration, or with one of its own."""
    terms = draws(setting, form, of_losses=True).terms(params, ud, epochs)
    with np.errstate(over="ignore"):
        return with_discrepancy(np.asarray(terms.loss), terms.irreducible, setting.discrepancy(form))


# -- repetition ----------------------------------------------------------------------------------------------


class Point(BaseModel):
    """Where penalties are compared."""

    model_config = ConfigDict(frozen=True)

    params: float
    unique_tokens: float
    epochs: float

    def __str__(self) -> str:
        size, tokens = short(self.params), short(self.unique_tokens)
        return f"{size} parameters, {tokens} unique tokens, {self.epochs:.3g} epochs"


def example_question(calibration: Calibration) -> tuple[float, float]:
    """Unique tokens and compute to show a calibration's plan for: the largest budget of its runs, on the
    largest corpus that was repeated.
    """
    ranges = [setting.fitted_on for setting in calibration.settings]
    ud = max((on.repeated_unique_tokens or on.unique_tokens)[1] for on in ranges)
    largest = (
        FLOPS_PER_PARAM_TOKEN * on.params[1] * ud if on.flops is None else on.flops[1] for on in ranges
    )
    return float(f"{ud:.3g}"), float(f"{max(largest):.2g}")


def middle_of(setting: Setting) -> Point:
    """The middle of a setting's repeated runs, where forms are alike in what they say, if not in how."""
    return common_point(setting, setting)


def repetition_cost(setting: Setting, form: str, at: Point) -> tuple[float, Interval | None]:
    """By how many nats repeated tokens are worse than as many new ones under a form, with what fades and what
    overfits in it, and its 95% interval where there are refits.
    """
    where = (at.params, at.unique_tokens, at.epochs)

    def cost(law: Law) -> Any:
        return law.loss(*where) - law.base().loss(*where)

    refits = setting.law_draws(form, of_losses=True)
    return float(cost(setting.law(form))), None if refits is None else interval(np.asarray(cost(refits)))


def common_point(
    first: Setting, second: Setting, params: Any = None, ud: Any = None, epochs: Any = None
) -> Point:
    """The point asked for, and where nothing was asked the middle (on log axes) of the repeated runs that
    both have.
    """
    one, two = first.fitted_on, second.fitted_on
    high = min(one.epochs[1], two.epochs[1])
    chosen = 1 + max(high - 1, 1.0) ** 0.5 if epochs is None else number(epochs, "epochs", examples="4")
    if chosen <= 1:
        raise InvalidInput(
            f"must be above 1, such as 4, because nothing overfits before data repeats; got {chosen:g}.",
            field="epochs",
        )
    sizes = [fitted.repeated_params or fitted.params for fitted in (one, two)]
    budgets = [fitted.repeated_unique_tokens or fitted.unique_tokens for fitted in (one, two)]
    size = _middle(sizes, "model sizes", "params") if params is None else count(params, "params")
    tokens = _middle(budgets, "unique tokens", "ud") if ud is None else count(ud, "ud")
    return Point(params=size, unique_tokens=tokens, epochs=chosen)


def _middle(ranges: Sequence[tuple[float, float]], what: str, option: str) -> float:
    """Geometric middle of the overlap of some ranges."""
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if low > high:
        told = " and ".join(f"{short(a)} to {short(b)}" for a, b in ranges)
        raise InvalidInput(
            f"the two settings have no {what} of repeated runs in common ({told}); "
            f"name a point with ‹{option}› to compare where at least one of them extrapolates."
        )
    return float(np.sqrt(low * high))
