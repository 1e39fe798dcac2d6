"""What the visitor has chosen, as text the way it was typed, and the address that reproduces it.

The address holds only what differs from the defaults, so that links stay short: `?ud=500M&flops=1e19`. Values
are checked where they are used (by `answers`); here only choices from a list are, because a list cannot show
anything else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from urllib.parse import parse_qsl, urlencode

from planner.calibration import DEFAULT_CALIBRATION, RENAMED_SHIPPED, Calibration
from planner.hardware import ACCELERATORS, DEFAULT_MFU
from planner.inputs import ALL, CEILING, CONTINUOUS_EPOCHS, WHOLE, InvalidInput
from planner.laws import AVERAGE, RENAMED_FORMS, every_form
from planner.options import label

# What a budget is given in, named as the field that counts; a loss asks for the least compute for it.
IN_FLOPS, IN_HOURS, IN_MONEY, IN_LOSS = BUDGETS = ("flops", "hours", "budget_usd", "target_loss")
PICTURES = {
    "crossover": "Where to stop",
    "isoflop": "At this budget",
    "decay": "Weight decay",
    "frontier": "Every law",
    "terms": "Loss terms",
    "whatif": "What if",
}
_INSTEAD = "the default is shown instead."
LONGEST, LONGEST_PIN = 80, 600  # characters of one value in an address: more is not a number anybody typed


@dataclass(frozen=True)
class Choices:
    """Every input of the page. Empty text means "choose for me" or "no limit"."""

    ud: str = "250M"
    compute: str = IN_FLOPS  # which of the next four counts
    flops: str = "5e18"
    hours: str = "3"
    budget_usd: str = "500"
    target_loss: str = "3.1"
    gpu: str = "H100"
    gpus: str = "8"
    mfu: str = f"{DEFAULT_MFU:.0%}"
    price: str = ""
    tflops: str = ""  # of an accelerator of the visitor's own, in place of the one in the list
    memory: str = ""
    weight_decay: str = ""
    law: str = ""
    calibration: str = DEFAULT_CALIBRATION
    epochs: str = WHOLE
    params: str = ""
    min_params: str = ""
    max_params: str = ""
    min_epochs: str = ""
    max_epochs: str = ""
    members: str = ""  # models whose probabilities are averaged; empty: one
    serve_tokens: str = ""
    spend: str = CEILING
    picture: str = "crossover"
    pin: str = ""  # the address of another plan, to hold this one against

    def query(self) -> str:
        """The part of the address behind the question mark."""
        given = asdict(self)
        return urlencode({name: given[name] for name in NAMES if given[name] != getattr(DEFAULTS, name)})


DEFAULTS = Choices()
NAMES = tuple(field.name for field in fields(Choices))
# Examples to begin with, each a link of the page: what people have, in words they would use.
_DAY, _WEEK = {"compute": IN_HOURS, "hours": "24"}, {"compute": IN_HOURS, "hours": "168"}
PRESETS: dict[str, Choices] = {
    "Law texts, 8 × H100, a day": replace(DEFAULTS, ud="180M", **_DAY),
    "A national language, 8 × H100, a day": replace(DEFAULTS, ud="2B", **_DAY),
    "A code base, one A100, a week": replace(DEFAULTS, ud="40M", gpu="A100", gpus="1", **_WEEK),
    "The paper: 500M, 3e19 FLOPs": replace(DEFAULTS, ud="500M", flops="3e19"),
}
_LISTS: dict[str, tuple[str, ...]] = {
    "compute": BUDGETS,
    "gpu": tuple(ACCELERATORS),
    "law": ("", AVERAGE, *every_form()),
    "epochs": (WHOLE, CONTINUOUS_EPOCHS),
    "spend": (CEILING, ALL),
    "picture": tuple(PICTURES),
}
_RENAMED = {"law": RENAMED_FORMS, "calibration": RENAMED_SHIPPED}  # in links of earlier versions


def from_query(query: str) -> tuple[Choices, list[str]]:
    """The choices that an address holds, and a sentence for each part of it that cannot be used."""
    given: dict[str, str] = {}
    problems = []
    for name, value in parse_qsl(query.removeprefix("?")[:8000], keep_blank_values=True):
        if name not in NAMES:
            continue  # other parts of an address, such as the theme, are not ours
        value = _RENAMED.get(name, {}).get(value, value)
        if len(value) > (LONGEST_PIN if name == "pin" else LONGEST):
            problems.append(f"The link's {name} is too long to be a value of this page; {_INSTEAD}")
        elif name in _LISTS and value not in _LISTS[name]:
            allowed = ", ".join(choice for choice in _LISTS[name] if choice)
            problems.append(f"The link asks for {name} {value!r}, which is not one of {allowed}; {_INSTEAD}")
        else:
            given[name] = value
    return replace(DEFAULTS, **given), problems


def fitting(choices: Choices, known: Calibration) -> tuple[Choices, list[str]]:
    """The choices with a law and weight decay of this calibration, and a sentence for each that changed."""
    problems, changes = [], {}
    if choices.law and choices.law not in laws_of(known):
        own = known.default_law
        problems.append(f"{known.name} has no law {choices.law}; its own default, {own}, is used.")
        changes["law"] = ""
    if choices.weight_decay:
        try:
            known.setting(choices.weight_decay)
        except InvalidInput as error:
            problems.append(f"{error.said(label)} The best one is chosen.")
            changes["weight_decay"] = ""
    return replace(choices, **changes), problems


def laws_of(known: Calibration) -> list[str]:
    """The laws that a calibration has at every weight decay."""
    offered = (AVERAGE, *every_form())
    return [form for form in offered if all(setting.has(form) for setting in known.settings)]
