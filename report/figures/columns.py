"""What figures ask of their tables: the columns that they name, with values that can be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...errors import UnsupportedError
from ...support.validation import shown

if TYPE_CHECKING:
    import pandas as pd

Content = Literal["text", "number", "positive", "positive or missing"]
"""What a column holds; numbers are finite, and what is missing is NaN, None or NA."""

EXPECTED: dict[Content, str] = {
    "text": "text",
    "number": "a finite number",
    "positive": "a finite number above 0",
    "positive or missing": "a finite number above 0, or NaN where there is none",
}


def check_table(table: object, columns: Mapping[str, Content]) -> pd.DataFrame:
    """Return a table that can be drawn, or say what is wrong with it."""
    import pandas as pd

    named = ", ".join(columns)
    if not isinstance(table, pd.DataFrame):
        raise UnsupportedError(f"the table is {shown(table)}; expected a DataFrame with the columns {named}")
    names = table.columns.tolist()
    for column in columns:
        if column not in names:
            raise UnsupportedError(f"the table has no column {column!r}; expected the columns {named}")
        if names.count(column) > 1:
            raise UnsupportedError(f"the table has {names.count(column)} columns {column!r}; expected one: drop others")
    if not len(table):
        raise UnsupportedError("the table has no rows; expected rows to draw")
    for column, content in columns.items():
        for row, value in enumerate(table[column].tolist()):
            if not _fits(value, content):
                raise UnsupportedError(
                    f"row {row} of column {column!r} is {shown(value)}; expected {EXPECTED[content]}"
                )
    return table


def as_float(value: object) -> float | None:
    """Read a finite number, or return None."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _fits(value: Any, content: Content) -> bool:
    if content == "text":
        return isinstance(value, str)
    number = as_float(value)
    if number is None:
        return content == "positive or missing" and _is_missing(value)
    return content == "number" or number > 0


def _is_missing(value: object) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))
