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
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from planner.calibration_files import Calibration, Setting, shipped_names
from planner.errors import InvalidInput
from planner.limits import ALL, CEILING, Limits
from planner.shapes import DEFAULT_VOCAB
from planner.units import compute, number, scientific, short
from planner.units import epochs as in_epochs

FAR = 100.0
_NEAR = 10.0  # within which a plan of another calibration is worth naming
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
            f"({loss:.6g}) is above what guessing reaches without any training, ln({vocab:,}) = "
            f"{math.log(vocab):.4f}; a loss below that would do.",
            field="target_loss",
        )


def check_prediction(known: Calibration, params: float, ud: float, epochs: float) -> None:
    """Refuse a configuration that is too far from all evidence."""
    for far in _far_from(known, ud, params, epochs):
        if far.name == "unique_tokens" and epochs < 1 and not far.above:
            least = far.end / FAR / ud
            text = f"({epochs:g}) leaves {short(far.value)} tokens in use, {_how_far(known, far)}; "
            raise InvalidInput(f"{text}at least {least:.2g} would do.", field="epochs")
        place = {"unique_tokens": ud * min(epochs, 1.0), "params": params, "epochs": epochs}
        raise _refusal(known, far, "ud" if far.name == "unique_tokens" else far.name, place)


def check_plan(known: Calibration, ud: float, params: float, epochs: float) -> None:
    """Refuse a plan that is too far from all evidence."""
    for far in _far_from(known, ud, params, epochs):
        best = f"the best plan would be {short(params)} for {in_epochs(epochs)}"
        raise TooFar(f"{best}: {_how_far(known, far)}", known, far)


def _far_from(known: Calibration, ud: float, params: float, epochs: float) -> list[Outside]:
    """Where a configuration is too far from all evidence, that of repeated tokens where it repeats any."""
    place = {"unique_tokens": ud * min(epochs, 1.0), "params": params, "epochs": epochs}
    repeated = Evidence.of(known.settings, repeated=epochs > 1).outside(_TOO_FAR, **place)
    every = Evidence.of(known.settings).outside(_TOO_FAR, **place)
    return [far for far in repeated if far.above] + [far for far in every if not far.above]


def refused(known: Calibration, params: Any, unique_tokens: Any, epochs: Any) -> np.ndarray:
    """Which of many plans, with the unique tokens that each uses, are too far from all evidence."""
    every, repeated = (Evidence.of(known.settings, repeated=only) for only in (False, True))
    far: np.ndarray = np.greater(epochs, _TOO_FAR * every.epochs[1])
    for name, values in (("params", params), ("unique_tokens", unique_tokens)):
        (low, once), (_, again) = getattr(every, name), getattr(repeated, name)
        high = np.where(np.greater(epochs, 1.0), again, once)
        far = far | np.greater(values, _TOO_FAR * high) | np.less(values, low / _TOO_FAR)
    return far


class TooFar(InvalidInput):
    """A plan that is too far from all evidence; `suggest_remedies` adds what would do."""

    def __init__(self, sentence: str, known: Calibration, far: Outside) -> None:
        super().__init__(f"{sentence}.")
        self.sentence, self.known, self.far = sentence, known, far

    def changes(self, given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Changes to the question that may bring the plan back, in words and as arguments."""
        seen = Evidence.of(self.known.settings, repeated=True)
        size, passes = short(seen.params[1]), f"{seen.epochs[1]:g}"
        if given.get("spend") == ALL:
            yield f"‹spend› {CEILING}", {"spend": CEILING}
        if self.far.above:
            yield f"‹max_params› {size}", {"max_params": size}
            yield f"‹max_epochs› {passes}", {"max_epochs": passes}
            both = f"‹max_params› {size} with ‹max_epochs› {passes}"
            yield both, {"max_params": size, "max_epochs": passes}
        for name in ("max_epochs", "max_params", "min_params", "params"):
            if given.get(name) is not None:
                yield f"leaving out ‹{name}›", {name: None}
        if not self.far.above and given.get("flops") is not None:
            for more in range(1, 9):
                flops = scientific(compute(given["flops"]) * 10**more)
                yield f"‹flops› {flops}", {"flops": flops}


Asking = TypeVar("Asking", bound=Callable[..., Any])


def suggest_remedies(ask: Asking) -> Asking:
    """Where a plan is refused as too far from all evidence, say what would do: the first change that is
    answered, and the first other shipped calibration whose plan is within ten times its own evidence. Both
    were tried.
    """

    @wraps(ask)
    def asking(ud: Any, flops: Any = None, **given: Any) -> Any:
        question = {"ud": ud, "flops": flops, **given}
        try:
            return ask(**question)
        except TooFar as refusal:
            would_do = []
            for words, change in refusal.changes(question):
                if _answered(ask, question | change) is not None:
                    would_do.append(words)
                    break
            for name in shipped_names() if not isinstance(given.get("calibration"), Calibration) else ():
                found = _answered(ask, question | {"calibration": name})
                if found is not None and not Evidence.of(Calibration.load(name).settings).outside(
                    _NEAR, params=found.params, unique_tokens=found.unique_tokens, epochs=found.epochs
                ):
                    would_do.append(f"‹calibration› {name}")
                    break
            end = f"; {' or '.join(would_do)} would do." if would_do else "."
            raise InvalidInput(refusal.sentence + end) from None

    return asking  # type: ignore[return-value]


def _answered(ask: Callable[..., Any], question: dict[str, Any]) -> Any:
    try:
        return ask(**question)
    except InvalidInput:
        return None


def untried(known: Calibration, setting: Setting, params: float, ud: float, epochs: float) -> str | None:
    """Beyond which trainings a configuration is at a setting, in words; None: it is between them."""
    behind = [setting] if setting.between is None else [known.setting(decay) for decay in setting.between]
    seen = Evidence.of(behind, repeated=epochs > 1)
    beyond = seen.outside(_ROUNDED, params=params, unique_tokens=ud * min(epochs, 1.0), epochs=epochs)
    ends = [f"{'above' if one.above else 'below'} {_amount(one.name, one.end)}" for one in beyond]
    what = "nothing repeated" if epochs > 1 else "nothing"
    return f"{what} {' or '.join(ends)} was tried" if ends else None


# -- in words


def _refusal(known: Calibration, far: Outside, field: str, given: dict[str, float]) -> InvalidInput:
    end = f"at most {_figure(far.name, FAR * far.end)}" if far.above else ""
    would_do = [end or f"at least {_figure(far.name, far.end / FAR)}", *_others(known, given)]
    got = f"({_figure(far.name, far.value)})"
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
