"""How figures and names are written for people: rounded for the eye, and exactly beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import groupby

from .formatting import bandwidth_text, percentage_text

__all__ = ["SHOWN", "gap", "rate", "shortened"]

SHOWN = 12
"""Names, or runs of names, that are written out."""


def rate(value: Fraction) -> str:
    """Write a bandwidth in GB/s with two decimals or three digits and, where these round, exactly.

    Examples
    --------
    >>> rate(Fraction(5312, 15)), rate(Fraction(320)), rate(Fraction(1, 3000))
    ('354.13 GB/s (exactly 5312/15)', '320.00 GB/s', '333.33 kB/s (exactly 1/3000 GB/s)')
    """
    text = bandwidth_text(value, decimals=2)
    number, unit = text.split()
    if unit == "GB/s":
        return text if Fraction(number) == value else f"{text} (exactly {value})"
    return f"{text} (exactly {value} GB/s)"


def gap(missed: Fraction) -> str:
    """Write the share of the bound that is missed.

    Examples
    --------
    >>> gap(Fraction(0)), gap(Fraction(37, 1162))
    ('0, optimal', '3.18 % (exactly 37/1162)')
    """
    return "0, optimal" if missed == 0 else f"{percentage_text(missed)} (exactly {missed})"


def shortened(names: Iterable[str]) -> str:
    """Write different names in their order, and runs of numbered ones in short.

    Examples
    --------
    >>> shortened(["box0/gpu0", "box0/gpu1", "box0/gpu2", "box0/nic0", "ib"])
    'box0/gpu0..2, box0/nic0, ib'
    """
    runs = [run[0] if len(run) == 1 else f"{run[0]}..{_split(run[-1])[1]}" for run in _runs(list(names))]
    more = f", and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
    return ", ".join(runs[:SHOWN]) + more


def _runs(names: Sequence[str]) -> list[list[str]]:
    """Cut the list wherever a name is not the one before it with the next number."""

    def offset(entry: tuple[int, str]) -> tuple[str, int | None]:
        prefix, digits = _split(entry[1])
        return prefix, int(digits) - entry[0] if digits else None

    return [[name for _, name in run] for _, run in groupby(enumerate(names), key=offset)]


def _split(name: str) -> tuple[str, str]:
    """Split off the number that a name ends with."""
    match = re.fullmatch(r"(.*?)([0-9]{0,18})", name, re.DOTALL)
    assert match  # Both parts may be empty.
    return match[1], match[2]
