"""Whether somebody else's file hides one of our packages: a `trainer.py` in the folder where Python was
started, say.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

ROOMS = ("planner", "trainer", "calibration")  # each is built on those before it


def shadow(module: str) -> Path | None:
    """The file that Python takes for the package of this module, or for one that it is built on, although it
    is not ours; None: nothing is in the way.
    """
    package = module.partition(".")[0]
    needed = ROOMS[: ROOMS.index(package) + 1] if package in ROOMS else ()
    return next(filter(None, map(_instead_of, needed)), None)


def _instead_of(room: str) -> Path | None:
    found = find_spec(room)
    if found is None:
        return None
    ours = Path(__file__).resolve().parents[1] / room
    places = [place for place in (found.origin, *(found.submodule_search_locations or ())) if place]
    if not places or any(Path(place).resolve().is_relative_to(ours) for place in places):
        return None
    return Path(places[0])
