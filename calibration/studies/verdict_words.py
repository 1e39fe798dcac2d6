"""The outcome of a validation in words and figures, for terminals and reports alike."""

from __future__ import annotations

from calibration.studies.outcomes import CrossoverFound, Standing
from planner.units import scientific


def sentence(found: CrossoverFound) -> str:
    """Predicted and observed crossover in one line."""
    if found.predicted is None:
        return found.note
    text = f"predicted {scientific(found.predicted)}"
    if found.predicted_interval is not None:
        text += " (95% {} to {})".format(*(scientific(end) for end in found.predicted_interval))
    between = ""
    if found.observed_interval is not None and found.observed_interval != (None, None):
        low, high = found.observed_interval
        ends = (
            "below the range" if low is None else scientific(low),
            "above the range" if high is None else scientific(high),
        )
        between = " (95% {} to {})".format(*ends)
    if found.observed is None:
        return f"{text}; observed: {found.note}{between}"
    text += f", observed {scientific(found.observed)}{between}"
    text += f": {found.ratio:.2f} times the predicted one"
    if found.foreseen is not None and found.shown:
        text += ", as far as both are certain" if found.foreseen else ", further off than both are uncertain"
    return f"{text}; {found.note}" if found.note else text


def beyond_noise(
    value: bool | None, behind: float | None, interval: tuple[float, float] | None = None
) -> str:
    """Whether a law is behind the best one beyond seed noise, in a word or two.

    Where it is not shown, the difference that these seeds could have shown stands with it: a law may be far
    behind and its seeds scatter further.
    """
    if behind is None:
        return "not comparable"
    if value is None:
        return "best" if behind == 0 else "unknown"
    if value:
        return "yes"
    return "not shown" if interval is None else f"not shown (below {interval[1] - behind:.2g})"


def by_regret(standing: Standing) -> tuple[float, int, float]:
    """The order of standings: a mean over fewer budgets is no comparison, so these laws come later."""
    return (
        standing.weight_decay,
        -standing.pairs,
        float("inf") if standing.regret is None else standing.regret,
    )


def figure(value: float | None, style: str = ".4f") -> str:
    """A number of a table, blank where it is not known."""
    return "" if value is None else format(value, style)
