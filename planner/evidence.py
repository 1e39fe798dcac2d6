"""How far from all evidence an answer may be: the one rule for questions and for answers.

The evidence of a calibration are the runs that its laws were fitted on and the trainings that tested them.
Outside of what was fitted a plan cautions (`planner.uncertainty`). More than `FAR` times outside of all
evidence, in model size, in unique tokens that are used or in epochs, there is no answer but one sentence:

- for what is asked, before any work: a corpus, or sizes that limits force, from which no plan leads back; a
  loss above that of guessing; and all that `predict` is given;
- for what comes out: the plan of `plan`, also where serving, members or bought data count.

What other laws or weight decays recommend is shown however far it is (`compare`, the table below a plan): to
show that is what it is for. Of a `frontier` rows that are too far stay, and are marked (`refused`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from planner.calibration_files import Calibration, Setting, shipped_names
from planner.errors import InvalidInput
from planner.limits import Limits
from planner.shapes import DEFAULT_VOCAB
from planner.units import epochs as in_epochs
from planner.units import number, short

FAR = 100.0
_ROUNDED = 1.005  # what is lost where an amount is written with three digits
_TOO_FAR = FAR * _ROUNDED
_Range = tuple[float, float]


class Outside(NamedTuple):
    """A quantity that is beyond an end of the evidence."""

    name: str
    value: float
    end: float

    @property
    def above(self) -> bool:
        return self.value > self.end

    @property
    def times(self) -> float:
        return self.value / self.end if self.above else self.end / self.value


class Evidence(NamedTuple):
    """What was trained, from the least to the most of each."""

    params: _Range
    unique_tokens: _Range
    epochs: _Range

    @classmethod
    def of(cls, settings: Iterable[Setting], *, repeated: bool = False) -> Evidence:
        """All of it or, where there is any, what was trained for more than one epoch."""
        places = [place for setting in settings for place in _trained(setting, repeated)]
        spans = [tuple(zip(*quantity, strict=True)) for quantity in zip(*places, strict=True)]
        return cls(*((min(lows), max(highs)) for lows, highs in spans))

    def outside(self, times: float, **place: float) -> list[Outside]:
        """The quantities of a place that are more than so many times outside. Below one epoch nothing
        repeats: few epochs never are.
        """
        found = []
        for name, value in place.items():
            low, high = getattr(self, name)
            if value > times * high:
                found.append(Outside(name, value, high))
            elif value < low / times and name != "epochs":
                found.append(Outside(name, value, low))
        return found


def _trained(setting: Setting, repeated: bool) -> Iterator[tuple[_Range, _Range, _Range]]:
    """The ranges of a setting's runs, and the places of the trainings that tested it."""
    fitted = setting.fitted_on
    sizes, tokens = fitted.params, fitted.unique_tokens
    if repeated:
        sizes, tokens = fitted.repeated_params or sizes, fitted.repeated_unique_tokens or tokens
    yield sizes, tokens, fitted.epochs
    for trial in setting.trials:
        if trial.epochs > 1 or not repeated:
            used = trial.unique_tokens * min(trial.epochs, 1.0)
            yield (trial.params, trial.params), (used, used), (trial.epochs, trial.epochs)


def check_question(
    known: Calibration, ud: float, limits: Limits, target_loss: Any = None, *, buys: bool = False
) -> None:
    """Refuse a question that no plan near any evidence can answer: a plan uses the corpus, or a part of it
    where it `buys` no more, and no size outside of the limits; and what guesses alike needs no training.
    """
    if target_loss is not None:
        _check_target(known, number(target_loss, "target_loss", examples="3.0"))
    seen, size = Evidence.of(known.settings), limits.size
    asked = (
        ("ud", "unique_tokens", None if buys else ud, False),
        ("max_params" if size is None else "params", "params", size or limits.max_params, False),
        ("min_params" if size is None else "params", "params", size or limits.min_params, True),
    )
    for field, name, value, above in asked:
        for far in seen.outside(_TOO_FAR, **{name: value}) if value is not None else ():
            if far.above == above:
                raise _refusal(known, far, field, {"unique_tokens": ud, name: far.value})


def _check_target(known: Calibration, loss: float) -> None:
    vocab = known.vocab_size or DEFAULT_VOCAB
    if loss > math.log(vocab):
        raise InvalidInput(
            f"({loss:g}) is above what guessing reaches without any training, ln({vocab:,}) = "
            f"{math.log(vocab):.2f}; a loss below that would do, such as 3.0.",
            field="target_loss",
        )


def check_prediction(known: Calibration, params: float, ud: float, epochs: float) -> None:
    """Refuse a configuration that is too far from all evidence."""
    place = {"unique_tokens": ud * min(epochs, 1.0), "params": params, "epochs": epochs}
    for far in Evidence.of(known.settings).outside(_TOO_FAR, **place):
        field = "ud" if far.name == "unique_tokens" else far.name
        raise _refusal(known, far, field, place, " of it in use" if field == "ud" and epochs < 1 else "")


def check_plan(known: Calibration, ud: float, params: float, epochs: float, more: str) -> None:
    """Refuse a plan that is too far from all evidence; `more` is what would make a larger one of it."""
    place = {"unique_tokens": ud * min(epochs, 1.0), "params": params, "epochs": epochs}
    for far in Evidence.of(known.settings).outside(_TOO_FAR, **place):
        less = {
            "params": f"‹max_params› {short(far.end)}",
            "unique_tokens": f"‹ud› {short(far.end)}, a part of the corpus,",
            "epochs": f"‹max_epochs› {far.end:g}",
        }
        would_do = [less[far.name] if far.above else more, *_others(known, {"unique_tokens": ud})]
        best = f"the best plan would be {short(params)} for {in_epochs(epochs)}"
        raise InvalidInput(f"{best}: {_how_far(known, far)}; {' or '.join(would_do)} would do.")


def refused(known: Calibration, params: Any, unique_tokens: Any, epochs: Any) -> np.ndarray:
    """Which of many plans, with the unique tokens that each uses, are too far from all evidence."""
    seen = Evidence.of(known.settings)
    far: np.ndarray = np.greater(epochs, _TOO_FAR * seen.epochs[1])
    for values, (low, high) in ((params, seen.params), (unique_tokens, seen.unique_tokens)):
        far |= np.greater(values, _TOO_FAR * high) | np.less(values, low / _TOO_FAR)
    return far


def untried(known: Calibration, setting: Setting, params: float, ud: float, epochs: float) -> str | None:
    """Beyond which trainings a configuration is at a setting, in words; None: it is between them."""
    behind = [setting] if setting.between is None else [known.setting(decay) for decay in setting.between]
    seen = Evidence.of(behind, repeated=epochs > 1)
    beyond = seen.outside(_ROUNDED, params=params, unique_tokens=ud * min(epochs, 1.0), epochs=epochs)
    ends = [f"{'above' if one.above else 'below'} {_amount(one.name, one.end)}" for one in beyond]
    what = "nothing repeated" if epochs > 1 else "nothing"
    return f"{what} {' or '.join(ends)} was tried" if ends else None


# -- in words


def _refusal(
    known: Calibration, far: Outside, field: str, given: dict[str, float], part: str = ""
) -> InvalidInput:
    end = f"at most {_figure(far.name, FAR * far.end)}" if far.above else ""
    would_do = [end or f"at least {_figure(far.name, far.end / FAR)}", *_others(known, given)]
    got = f"({_figure(far.name, far.value)}{part})"
    text = f"{got} is {_how_far(known, far)}; {' or '.join(would_do)} would do."
    return InvalidInput(text, field=field)


def _how_far(known: Calibration, far: Outside) -> str:
    ends = {"params": ("smallest", "largest"), "unique_tokens": ("fewest", "most"), "epochs": ("", "most")}
    end = f"{'' if far.above else 'below '}the {ends[far.name][far.above]}"
    return (
        f"{far.times:,.0f} times {end} that calibration {known.name} knows from runs "
        f"({_amount(far.name, far.end)}), and beyond {FAR:g} times nothing is known"
    )


def _amount(name: str, value: float) -> str:
    if name == "epochs":
        return in_epochs(value)
    return f"{short(value)} {'parameters' if name == 'params' else 'unique tokens'}"


def _figure(name: str, value: float) -> str:
    return f"{value:,.0f}" if name == "epochs" else short(value)


def _others(known: Calibration, given: dict[str, float]) -> list[str]:
    """The first shipped calibration that knows from runs what is asked, where this one does not."""

    def knows(one: Calibration) -> bool:
        return not Evidence.of(one.settings).outside(1.0, **given)

    if knows(known):
        return []
    return [f"‹calibration› {name}" for name in shipped_names() if knows(Calibration.load(name))][:1]
