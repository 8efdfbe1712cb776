"""Formatting of bandwidths, times, ratios and node names: at least three significant digits, with a fitting unit."""

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import groupby

BANDWIDTHS = (("GB/s", Fraction(1)), ("MB/s", Fraction(1, 10**3)), ("kB/s", Fraction(1, 10**6)))
"""In GB/s, the largest unit, in which links and libraries are compared."""
BYTES_PER_S = ("B/s", Fraction(1, 10**9))
TIMES = (("s", Fraction(10**6)), ("ms", Fraction(10**3)), ("µs", Fraction(1)))  # in µs
NANOSECONDS = ("ns", Fraction(1, 10**3))

DIGITS = 3
TINY = 1e-4  # values below this, in the smallest unit, are written with an exponent


def bandwidth_text(value: float | Fraction, decimals: int = 0) -> str:
    """Format a bandwidth. Units: `value` in GB/s."""
    return _in_units(value, BANDWIDTHS, BYTES_PER_S, decimals)


def time_text(microseconds: float | Fraction) -> str:
    """Format a time. Units: `microseconds` in µs."""
    return _in_units(microseconds, TIMES, NANOSECONDS, 0)


def times_text(microseconds: float | Fraction, ends: tuple[float, float] | None) -> str:
    """Format a time, or the range between `ends` where there is one."""
    return time_text(microseconds) if ends is None else f"{time_text(ends[0])} to {time_text(ends[1])}"


def percentage_text(share: float | Fraction) -> str:
    """Format a ratio in percent."""
    return f"{_digits(float(100 * share), 2)} %"


def count_text(count: int, word: str) -> str:
    """Format a count with its noun, whose plural ends in s."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def span_text(low: int, high: int, word: str) -> str:
    """Format the least and the largest count with their noun, or the one that all are."""
    return count_text(high, word) if low == high else f"{low} to {high} {word}s"


def _in_units(
    value: float | Fraction, units: Sequence[tuple[str, Fraction]], smallest: tuple[str, Fraction], decimals: int
) -> str:
    """Format a value in the largest unit in which it is at least 1 after rounding."""
    # 999.7 MB/s are 1000 MB/s to three digits.
    name, unit = next((entry for entry in units if float(value / entry[1]) >= 1 - 0.5 * 10**-DIGITS), smallest)
    return f"{_digits(float(value / unit), decimals)} {name}"


def _digits(value: float, decimals: int) -> str:
    """Format a number with at least three significant digits and at least `decimals` decimals."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < TINY:
        return f"{value:.{DIGITS - 1}e}"
    # Rounding first, because it can add a digit before the point.
    exponent = int(f"{value:.{DIGITS - 1}e}".partition("e")[2])
    return f"{value:.{max(decimals, DIGITS - 1 - exponent, 0)}f}"


MAX_NAMES = 12  # names, or ranges of names, that are listed


def rate_text(value: Fraction) -> str:
    """Format a bandwidth in GB/s, followed by the exact fraction where rounding changes it."""
    text = bandwidth_text(value, decimals=2)
    number, unit = text.split()
    if unit == "GB/s":
        return text if Fraction(number) == value else f"{text} ({value})"
    return f"{text} ({value} GB/s)"


def exact(value: Fraction, unit: str = "") -> str:
    """Write a number with its unit: whole, or as a decimal with the fraction beside it where the decimal rounds."""
    if value.denominator == 1:
        return f"{value} {unit}".rstrip()
    decimal = f"{float(value):.2f}" if abs(value) >= 1 else f"{float(value):.3g}"
    text = f"{decimal} {unit}".rstrip()
    return text if Fraction(decimal) == value else f"{text} ({value})"


def gap_text(missed: Fraction) -> str:
    """Format an optimality gap."""
    return "0 (optimal)" if missed == 0 else f"{percentage_text(missed)} ({missed})"


def abbreviated_names(names: Iterable[str]) -> str:
    """List names in their order, consecutively numbered ones as a range."""
    runs = [run[0] if len(run) == 1 else f"{run[0]}..{_split(run[-1])[1]}" for run in _runs(list(names))]
    ending = f", and {len(runs) - MAX_NAMES} more" if len(runs) > MAX_NAMES else ""
    return ", ".join(runs[:MAX_NAMES]) + ending


def set_text(names: Iterable[str]) -> str:
    """List names in the order of people, who count 9 before 10, as `abbreviated_names` does."""
    return abbreviated_names(sorted(names, key=lambda name: ((parts := _split(name))[0], int(parts[1] or -1))))


def _runs(names: Sequence[str]) -> list[list[str]]:
    """Split the list wherever a name is not its predecessor with the next number."""

    def offset(entry: tuple[int, str]) -> tuple[str, int | None]:
        prefix, digits = _split(entry[1])
        return prefix, int(digits) - entry[0] if digits else None

    return [[name for _, name in run] for _, run in groupby(enumerate(names), key=offset)]


def _split(name: str) -> tuple[str, str]:
    """Split a name into prefix and trailing digits."""
    match = re.fullmatch(r"(.*?)([0-9]{0,18})", name, re.DOTALL)
    assert match  # Both parts may be empty.
    return match[1], match[2]
