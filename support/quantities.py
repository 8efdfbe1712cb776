"""Bandwidths written with their unit, and numbers that somebody may have meant in another one.

A bare number is GB/s everywhere, and is never taken for anything else.
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["as_gigabytes", "doubt_about_nic", "looks_like_unit"]

BITS = Fraction(1, 8)
BYTES = Fraction(1)
KINDS = {"b/s": BITS, "bps": BITS, "bit/s": BITS, "B/s": BYTES, "Bps": BYTES}
PREFIXES = {"M": Fraction(1, 1000), "G": Fraction(1), "T": Fraction(1000)}

_WITH_UNIT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([MGT])(b/s|bps|bit/s|B/s|Bps)\s*", re.ASCII)
_UNIT = re.compile(r"[0-9. ][A-Za-z]{2,5}(?:/s)?\s*\Z", re.ASCII)

LINE_RATES = (400, 800, 1600, 3200)
"""Gb/s of cards, as numbers that are no GB/s of any: a port of 1.6 Tb/s, the fastest of 2026, has 200 GB/s."""


def as_gigabytes(value: object) -> object:
    """Turn text with a unit into GB/s, and leave everything else as it is.

    Parameters
    ----------
    value : object
        ``"400Gb/s"``, ``"400 Gbps"``, ``"50GB/s"`` or ``"1.6Tb/s"``: M, G or T, and a small b for bits.

    Returns
    -------
    object
        A Fraction, or `value`.

    Examples
    --------
    >>> as_gigabytes("400Gb/s")
    Fraction(50, 1)
    >>> as_gigabytes("400")
    '400'
    """
    found = _WITH_UNIT.fullmatch(value) if isinstance(value, str) and len(value) <= 64 else None
    return value if found is None else Fraction(found[1]) * PREFIXES[found[2]] * KINDS[found[3]]


def looks_like_unit(value: object) -> bool:
    """Tell whether a text ends in what may be meant for a unit.

    Examples
    --------
    >>> looks_like_unit("400gbps"), looks_like_unit("fast")
    (True, False)
    """
    return isinstance(value, str) and _UNIT.search(value[-16:]) is not None


def doubt_about_nic(value: object, bandwidth: Fraction | None) -> str | None:
    """Say that a bare number, which no card has in GB/s, is the Gb/s of one.

    Parameters
    ----------
    value : object
        As it was written.
    bandwidth : Fraction or None
        What it was read as; None if it was not given.

    Returns
    -------
    str or None
        A sentence, or None if there is nothing to doubt.

    Examples
    --------
    >>> print(doubt_about_nic("400", Fraction(400)))
    nic_bandwidth=400 counts as 400 GB/s, which no card has; one of 400 Gb/s has 50 GB/s: give nic_bandwidth='400Gb/s'
    >>> doubt_about_nic("400GB/s", Fraction(400)), doubt_about_nic(100, Fraction(100))
    (None, None)
    """
    if bandwidth not in LINE_RATES or (isinstance(value, str) and _WITH_UNIT.fullmatch(value)):
        return None
    assert bandwidth is not None, "None is no line rate"
    return (
        f"nic_bandwidth={bandwidth} counts as {bandwidth} GB/s, which no card has; one of {bandwidth} Gb/s has "
        f"{bandwidth / 8} GB/s: give nic_bandwidth='{bandwidth}Gb/s'"
    )
