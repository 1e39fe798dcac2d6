"""The bodies of requests, made from the signatures of Python's calls: whatever `planner.plan` takes, the
service takes under the same name, in the words of `planner.options`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, create_model

from planner import plans
from planner.inputs import MENTION
from planner.options import OPTIONS

LONGEST, MOST = 100, 10_000  # characters of a value, and values of a list
MOST_BUDGETS, MOST_SEARCHES = 1_000, 25  # of a frontier, and where each is searched for by itself

_Text = Annotated[str, Field(max_length=LONGEST)]
Quantity = StrictInt | StrictFloat | _Text  # as people write it: 250e6 or "250M"
_Several = Quantity | Annotated[list[Quantity], Field(min_length=1, max_length=MOST)]
_Pair = Annotated[list[Quantity], Field(min_length=2, max_length=2)]
_Given = _Text | dict[str, Any]
_KINDS: dict[str, Any] = {"law": _Text, "gpu": _Text, "calibration": _Given, "weight_decays": _Pair}
_LISTS = {"frontier": {"ud", "flops"}, "predict": {"params", "ud", "epochs"}}  # arguments that may be lists
_FLAGS = {name for name, option in OPTIONS.items() if option.is_flag}
_WORDS: dict[Any, str] = {  # where those of a shell do not fit
    "calibration": "A shipped one by name (GET /v1/calibrations), the id of one that was uploaded or fitted, "
    "or the calibration itself as JSON.",
    "weight_decays": "Which two settings.",
    ("predict", "epochs"): "Passes over the unique tokens; fractions are fine.",
}


class Asked(BaseModel):
    """The arguments of a call."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def body_of(call: Callable[..., Any]) -> type[Asked]:
    """The body of a request that makes this call."""
    arguments = inspect.signature(call).parameters.values()
    fields: dict[str, Any] = {one.name: _field(call.__name__, one) for one in arguments}
    about = (inspect.getdoc(call) or "").split("\n\n")[0]
    return create_model(f"{call.__name__.title()}Request", __base__=Asked, __doc__=about, **fields)


def _field(call: str, argument: inspect.Parameter) -> tuple[Any, Any]:
    """One argument: what it may be, whether it is needed, and what it is in words."""
    name, kind = argument.name, _KINDS.get(argument.name, Quantity)
    if name in _LISTS.get(call, ()):
        kind = _Several
    elif name in _FLAGS:
        kind = StrictBool
    about = Field(argument.default, description=_WORDS.get((call, name)) or _in_words(name))
    if argument.default is inspect.Parameter.empty or (call, name) == ("predict", "ud"):
        return kind, Field(description=about.description)
    return kind | None, about


def _in_words(name: str) -> str:
    option = OPTIONS.get(name)
    if option is None or name in _WORDS:
        return _WORDS[name]
    default = f" Default: {option.default}." if option.default else ""
    return MENTION.sub(r"`\1`", option.help) + default


CALLS: dict[str, Callable[..., Any]] = {
    name: getattr(plans, name) for name in ("plan", "compare", "frontier", "crossover", "predict")
}
BODIES = {name: body_of(call) for name, call in CALLS.items()}
