"""Measured times of a collective over sizes, whoever measured them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from ....errors import UnsupportedError
from ....schedules import COLLECTIVES, Collective
from ....schedules.traffic.collective import collective_or_given
from ....support.validation import shown

UNPLANNED = ("sendrecv", "gather", "scatter", "hypercube")
"""What nccl-tests measures besides, and nobody plans."""
MEASURED: dict[str, Collective | str] = {
    **{each.nccl_name: each for each in COLLECTIVES.values()},
    **{name: name for name in UNPLANNED},
}
"""By the names of nccl-tests, of its programs and of rccl-tests' JSON, without what these differ in."""


MOST_EXPONENT = 300
"""Of numbers in files; more is no time."""


class MeasuredRow(NamedTuple):
    """One measured time.

    `size`: Bytes as nccl-tests counts them.
    `microseconds`: More than 0.
    `by`: Who did it, where a file has several; else empty.
    `wrong`: Elements that were not as they have to be; None where nothing was checked.
    `rounding`: Microseconds that the time may be off because it was printed with so many digits.
    """

    size: int
    microseconds: float
    in_place: bool = False
    by: str = ""
    wrong: float | None = None
    rounding: float = 0.0


@dataclass(frozen=True)
class MeasuredTimes:
    """What a file of measurements holds.

    Attributes
    ----------
    source : str
        The file, for messages.
    collective : Collective, str or None
        ``sendrecv``, ``gather``, ``scatter`` and ``hypercube`` by their names; None where the file does not say.
    num_ranks : int or None
        None likewise.
    rows : tuple of MeasuredRow
    """

    source: str
    collective: Collective | str | None
    num_ranks: int | None
    rows: tuple[MeasuredRow, ...]

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def names(self) -> tuple[str, ...]:
        """Those who were measured."""
        return tuple(dict.fromkeys(row.by for row in self.rows))

    def of(self, by: str | None) -> MeasuredTimes:
        """Keep the rows of one of `names`, which may be left out where there is one only.

        Raises
        ------
        UnsupportedError
            If there is none of that name, or it has to be chosen.
        """
        names = self.names
        if by is None and len(names) == 1:
            return self
        if by is not None and names == ("",):
            raise UnsupportedError(f"{self.source} does not say whose times it has; leave {shown(by)} out")
        if by not in names:
            asked = "measures several" if by is None else f"measures nothing of {shown(by)}"
            raise UnsupportedError(f"{self.source} {asked}; choose one of {', '.join(map(shown, names))}")
        return replace(self, rows=tuple(row for row in self.rows if row.by == by))

    def right(self) -> MeasuredTimes:
        """Leave out times of runs that gave wrong data.

        Raises
        ------
        UnsupportedError
            If nothing is left.
        """
        rows = tuple(row for row in self.rows if not row.wrong)
        if not rows:
            raise UnsupportedError(f"{self.source} has only wrong results; fix that before using its times")
        return replace(self, rows=rows)


def collective_called(name: str) -> Collective | str | None:
    """Translate what others call a collective, or a program that measures one.

    >>> collective_called("all_reduce_perf"), collective_called("AllGather"), collective_called("mpirun")
    (<Collective allreduce>, <Collective allgather>, None)
    """
    plain = re.sub(r"(_perf)?(\.exe)?$", "", name.lower())
    return MEASURED.get(re.sub(r"[^a-z]", "", plain))


def half_digit(text: str) -> float:
    """Return by how much a printed number may differ from the one that was meant.

    >>> half_digit("4.00"), half_digit("1234.5"), half_digit("1.25e+03"), half_digit("17")
    (0.005, 0.05, 5.0, 0.5)
    """
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    # The power as text, which rounds once.
    return float(f"5e{min(int(exponent or 0), MOST_EXPONENT) - digits - 1}")
