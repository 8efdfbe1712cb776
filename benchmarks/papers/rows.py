"""What a table or figure prints beside what is recomputed: `Row` and `Item`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Number = int | float | Fraction
NUMBER = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?"
RANGE = re.compile(rf"({NUMBER})(?:-({NUMBER}))?")
DIGITS = 4
"""Significant digits where the paper prints no number to take them from."""


@dataclass(frozen=True)
class Row:
    """One value: as the paper prints it, and as we find it.

    Attributes
    ----------
    case
        What the value belongs to: network, collective, planner; unique within its item.
    where
        Row, column, curve or sentence of the paper that prints it.
    printed
        As it stands there, such as ``"320.0"``, ``"2.21e-2"`` or ``"1.01-1.1"``; empty for figures without numbers.
    ours
        A number, the lowest and highest of several, or words.
    unit
        Of both.
    why
        One line; required where the two differ at the digits that the paper prints.
    measured
        Whether `ours` is a time on this machine, which another run does not repeat.
    """

    case: str
    where: str
    printed: str
    ours: Number | tuple[Number, Number] | str
    unit: str = ""
    why: str = ""
    measured: bool = False

    def __post_init__(self) -> None:
        if self.differs and not self.why:
            raise ValueError(f"{self.case}: the paper prints {self.printed}, we find {self.text}, and no line says why")

    @property
    def text(self) -> str:
        """`ours`, with as many digits as the paper prints."""
        if isinstance(self.ours, str):
            return self.ours
        ends = self.ours if isinstance(self.ours, tuple) else (self.ours,)
        return "-".join(dict.fromkeys(_written(end, self.printed) for end in ends))

    @property
    def verdict(self) -> str:
        """How the two compare, in a few words."""
        return self.why or ("" if not self.printed else "same" if self.text == self.printed else "in the range")

    @property
    def differs(self) -> bool:
        """Whether the paper prints something else; a range holds what lies in it."""
        printed = RANGE.fullmatch(self.printed)
        if not self.printed or self.text == self.printed:
            return False
        if printed is None or printed[2] is None or isinstance(self.ours, str):
            return True
        ends = self.ours if isinstance(self.ours, tuple) else (self.ours,)
        return not all(float(printed[1]) <= float(_written(end, self.printed)) <= float(printed[2]) for end in ends)


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper.

    Attributes
    ----------
    name
        As people type it, such as ``"table-3"``.
    title
        What it shows, in our words.
    section
        Where the paper has it: section or appendix.
    rows
        Recomputes it; ``True`` asks only for the rows that take a second or less together, which every run of the tests
        repeats.
    note
        One paragraph for the page: assumptions, and what of the item no model can show.
    plot
        Draws the rows, where people would rather look than read.
    """

    name: str
    title: str
    section: str
    rows: Callable[[bool], Iterable[Row]]
    note: str = ""
    plot: Callable[[list[Row]], Figure] | None = None


def _written(value: Number, printed: str) -> str:
    """A number with the digits of the first number in `printed`."""
    match = re.search(NUMBER, printed)
    if match is None:
        return f"{float(value):.{DIGITS}g}"
    mantissa, _, exponent = match[0].partition("e")
    decimals = len(mantissa.partition(".")[2])
    if not exponent:
        return f"{float(value):.{decimals}f}"
    digits, _, power = f"{float(value):.{decimals}e}".partition("e")
    return f"{digits}e{int(power)}"
