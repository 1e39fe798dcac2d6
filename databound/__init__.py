"""All of it under one name: what planner, trainer and calibration offer, loaded when first used.

    >>> import databound
    >>> databound.plan(ud=250e6, flops=5e18).epochs
    6.0

The three packages can be imported by themselves just as well; this one adds the way in, and a client of
`planner serve`, which has the same calls.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration import *  # noqa: F403
    from databound.client import Client as Client
    from databound.client import ServiceError as ServiceError
    from planner import *  # noqa: F403
    from trainer import *  # noqa: F403

    __version__: str
    __all__: list[str]

ROOMS = ("planner", "trainer", "calibration")
_OWN = ("Client", "ServiceError")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("databound")
    if name == "__all__":
        return sorted([*_OWN, *(public for room in ROOMS for public in _open(room).__all__)])
    if name in _OWN:
        _open("planner")  # which it is built on
        value = globals()[name] = getattr(import_module("databound.client"), name)
        return value
    if not name.startswith("_"):
        for room in map(_open, ROOMS):
            if name in room.__all__:
                value = globals()[name] = getattr(room, name)
                return value
    raise AttributeError(f"module 'databound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__"), "__version__"})


def _open(room: str) -> ModuleType:
    """One of our packages. A file of the user's that has its name is told, and not run."""
    found = find_spec(room)
    origin = None if found is None or found.origin is None else Path(found.origin).resolve()
    if origin is not None and origin.parents[1] != Path(__file__).resolve().parents[1]:
        raise ImportError(
            f"{origin} hides databound's package `{room}`: Python finds it first; rename that file, or start "
            f"Python in another folder.",
            name=room,
            path=str(origin),
        )
    return import_module(room)
