"""The one exception that bad input raises: a ValueError whose text is a single sentence for the user."""

from __future__ import annotations


class InvalidInput(ValueError):
    """Bad input, named in one sentence: which field, what was given, what would do."""


class InvalidCalibration(InvalidInput):
    """A calibration file that cannot be used: unreadable, corrupt, or of an unknown version."""
