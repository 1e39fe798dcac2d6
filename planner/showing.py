"""How answers look in Python: `print` gives what the command line prints, a notebook the same in a frame, and
columns become a pandas table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame


class Shown:
    """An answer that prints as the command line prints it."""

    def __str__(self) -> str:
        from planner.render import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


class Columns:
    """Fields of which the arrays have one length."""

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, as `--json` prints them."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    def to_frame(self) -> DataFrame:
        """One row for each entry of the arrays."""
        from pandas import DataFrame

        return DataFrame({name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)})
