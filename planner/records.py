"""Records of our own making: pydantic models without the validators, which take longer to build than a plan.

What comes from outside (a file, a page) is validated; what was just computed is of the right types already,
as mypy knows. A file that ships has been validated by a test.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

P = ParamSpec("P")
T = TypeVar("T")


def made(model: Callable[P, T], /, *args: P.args, **values: P.kwargs) -> T:
    """A record of these values, as `model(**values)` makes it from values of the right types."""
    record: T = model.model_construct(*args, **values)  # type: ignore[attr-defined]
    return record


def trusted(kind: Any, value: Any) -> Any:
    """What validation makes of a valid value: records from dictionaries, tuples from lists."""
    origin, inner = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin in (Union, UnionType):
        return trusted(inner[0], value)
    if origin is tuple:
        return tuple(trusted(inner[0], each) for each in value)
    if origin is dict:
        return {name: trusted(inner[1], each) for name, each in value.items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields
        known = {
            name: trusted(fields[name].annotation, each) for name, each in value.items() if name in fields
        }
        return kind.model_construct(**{**value, **known})
    return float(value) if kind is float else value
