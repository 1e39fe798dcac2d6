"""The one exception that bad input raises: a ValueError whose text is a single sentence for the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_MENTION = re.compile("‹(\\w+)›")


def named(text: str, name: Callable[[str], str]) -> str:
    """The text with each field that it mentions in ‹› called what `name` makes of it."""
    return _MENTION.sub(lambda mention: name(mention[1]), text)


class InvalidInput(ValueError):
    """Bad input in one sentence: which field, what was given, what would do.

    `field` is the argument at fault and the subject of the sentence, which goes on from it; other arguments
    are mentioned in ‹›:

        raise InvalidInput("needs ‹gpu›, such as H100.", field="hours")

    Python reads "hours needs gpu, ...". A shell or a page says what was typed there instead: see `said`.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def said(self, name: Callable[[str], str]) -> str:
        """The sentence with each field called what `name` makes of it."""
        subject = "" if self.field is None else f"{name(self.field)} "
        return subject + named(str(self.args[0]), name)

    def renamed(self, names: Mapping[str, str]) -> InvalidInput:
        """The same complaint by somebody who has other names for some of the fields."""
        message = named(str(self.args[0]), lambda name: f"‹{names.get(name, name)}›")
        return InvalidInput(message, field=names.get(self.field or "", self.field))

    def __str__(self) -> str:
        return self.said(str)


class InvalidCalibration(InvalidInput):
    """A calibration file that cannot be used: unreadable, corrupt, or of an unknown version."""
