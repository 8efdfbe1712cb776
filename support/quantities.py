"""Parsing of bandwidths, in GB/s without a unit, of latencies, data sizes and factors into exact numbers."""

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from numbers import Rational

from ..errors import TopologyError, UnsupportedError
from .validation import is_whole, shown

BITS = Fraction(1, 8)
BYTES = Fraction(1)
KINDS = {"b/s": BITS, "bps": BITS, "bit/s": BITS, "B/s": BYTES, "Bps": BYTES}
PREFIXES = {"M": Fraction(1, 1000), "G": Fraction(1), "T": Fraction(1000)}

_WITH_UNIT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([MGT])(b/s|bps|bit/s|B/s|Bps)\s*", re.ASCII)
_UNIT = re.compile(r"[0-9. ][A-Za-z]{2,5}(?:/s)?\s*\Z", re.ASCII)

LINE_RATES = (400, 800, 1600, 3200)
"""Gb/s of NICs that cannot be GB/s: a port of 1.6 Tb/s, the fastest of 2026, has 200 GB/s."""


def as_gigabytes(value: object) -> object:
    """Convert text with a unit to GB/s, and return everything else unchanged."""
    amount = _WITH_UNIT.fullmatch(value) if isinstance(value, str) and len(value) <= 64 else None
    return value if amount is None else Fraction(amount[1]) * PREFIXES[amount[2]] * KINDS[amount[3]]


def nic_unit_warning(value: object, bandwidth: Fraction | None) -> str | None:
    """Warn if a NIC bandwidth without a unit was probably meant in Gb/s; None if not."""
    if bandwidth not in LINE_RATES or (isinstance(value, str) and _WITH_UNIT.fullmatch(value)):
        return None
    assert bandwidth is not None, "None is no line rate"
    return (
        f"nic_bandwidth={bandwidth} means {bandwidth} GB/s, which no card has; one of {bandwidth} Gb/s has "
        f"{bandwidth / 8} GB/s: give nic_bandwidth='{bandwidth}Gb/s'"
    )


SUFFIXES = ("", "K", "M", "G", "T")
MAX_DIGITS = 18  # decimal digits of a size, which fit into 64 bits
WHITESPACE = " \t\n\r\f\v"


def as_bytes(size: float | str, what: str = "size", *, low: int = 1) -> int:
    """Read a size: ``"1G"`` is 2^30 bytes, as for nccl-tests, and so is ``"1GiB"``; ``"1GB"`` is 10^9.

    Parameters
    ----------
    size : int, float or str
        A whole number of bytes from 1 to below 10^18, or a number with one of the suffixes K, M, G, T or KiB, MiB, GiB,
        TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000); otherwise `UnsupportedError`.
    what : str
        What errors call it.
    low : int
        The smallest size that is taken, 0 or 1.

    Examples
    --------
    >>> as_bytes("1G"), as_bytes("0.5M"), as_bytes("64KB"), as_bytes(1e6)
    (1073741824, 524288, 64000, 1000000)
    """
    refusal = UnsupportedError(
        f"{what} {shown(size)} is not understood; expected bytes such as 4096, '64K', '1M' or '2.5G'"
    )
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if not isinstance(size, str) and not is_whole(size):
        raise refusal
    if isinstance(size, str):
        match = re.fullmatch(r"(\d+)(\.\d{1,9})?\s*([KMGT]?)(I?B)?", size.strip(WHITESPACE), re.IGNORECASE | re.ASCII)
        if not match:
            raise refusal
        # Parsing millions of digits takes long; one digit too many is enough to refuse.
        digits = (match[1].lstrip("0") or "0")[: MAX_DIGITS + 1]
        unit = 1000 if (match[4] or "").upper() == "B" else 1024
        exact = Fraction(digits + (match[2] or "")) * unit ** SUFFIXES.index(match[3].upper())
    else:
        exact = Fraction(int(size))
    if exact.denominator != 1 or exact < low:
        raise refusal
    if exact >= 10**MAX_DIGITS:
        raise UnsupportedError(f"{what} {shown(size)} is too large; expected less than 10^{MAX_DIGITS} bytes")
    return int(exact)


def as_several_bytes(sizes: Iterable[int | str]) -> list[int]:
    """Read several sizes, each as by `as_bytes`."""
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise UnsupportedError(f"the sizes are {shown(sizes)}; expected several, such as ['1M', '1G']")
    return [as_bytes(size) for size in sizes]


Exact = int | float | str | Fraction | Decimal
"""Types of numbers in arguments; floats are read by their shortest decimal form, so ``0.1`` is 1/10."""

MAX_BANDWIDTH = Fraction(10**9)  # GB/s; larger values are typing errors
MAX_LATENCY = Fraction(10**12)  # microseconds
MAX_FACTOR = Fraction(10**12)
MAX_DENOMINATOR = 10**12  # finer fractions cannot be scaled to int64 next to ordinary bandwidths
MAX_EXPONENT = 400  # larger powers of ten take long to expand; floats end at 308


def as_bandwidth(value: object, where: str) -> Fraction:
    """Read a bandwidth in GB/s as an exact positive fraction."""
    expected = "a positive number of GB/s"
    if isinstance(value, str) and _UNIT.search(value[-16:]):
        expected += ", or one with another unit, such as 400Gb/s"
    bandwidth = _as_fraction(as_gigabytes(value), f"bandwidth of {where}", expected)
    if not 0 < bandwidth <= MAX_BANDWIDTH:
        raise TopologyError(
            f"bandwidth of {where} is {shown(value)}; expected a positive number of GB/s, at most "
            f"{float(MAX_BANDWIDTH):g} (leave out dead links)"
        )
    return bandwidth


def as_latency(value: object, where: str) -> Fraction:
    """Read a latency in µs as an exact non-negative fraction; errors as in `as_bandwidth`."""
    expected = f"a number of microseconds between 0 and {float(MAX_LATENCY):g}"
    return _within(value, f"latency of {where}", expected, lambda latency: 0 <= latency <= MAX_LATENCY)


def as_amount(value: object, what: str = "amount") -> Fraction:
    """Read a relative amount exactly: a number of at least 0; errors as in `as_bandwidth`."""
    return _within(value, what, "a number of at least 0", lambda amount: amount >= 0)


def as_factor(value: object, what: str) -> Fraction:
    """Read a positive multiplier exactly; errors as in `as_bandwidth`."""
    expected = f"a positive number, at most {float(MAX_FACTOR):g}"
    return _within(value, what, expected, lambda factor: 0 < factor <= MAX_FACTOR)


def _within(value: object, what: str, expected: str, fits: Callable[[Fraction], bool]) -> Fraction:
    number = _as_fraction(value, what, expected)
    if not fits(number):
        raise TopologyError(f"{what} is {shown(value)}; expected {expected}")
    return number


def _as_fraction(value: object, what: str, expected: str) -> Fraction:
    if type(value) is Fraction and value.denominator <= MAX_DENOMINATOR:
        return value
    if isinstance(value, str) and len(value) > 64:
        raise TopologyError(f"{what} has {len(value)} characters; expected {expected}")
    finite = not isinstance(value, float) or math.isfinite(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, str, Decimal, Rational))
        or not finite
        or _exponent(value) > MAX_EXPONENT
    ):
        raise TopologyError(f"{what} is {shown(value)}; expected {expected}")
    try:
        # A float's repr is what the user typed: 0.1 means one tenth, not its binary neighbor.
        number = Fraction(repr(float(value)) if isinstance(value, float) else value)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise TopologyError(f"{what} is {shown(value)}; expected {expected}") from error
    if number.denominator > MAX_DENOMINATOR:
        raise TopologyError(f"{what} is {shown(value)}; expected a number with at most 12 decimal places")
    # Numpy integers would stay inside the fraction and overflow later.
    return Fraction(int(number.numerator), int(number.denominator))


def _exponent(value: object) -> int:
    """Return the absolute decimal exponent of `value`."""
    if isinstance(value, Decimal) and value.is_finite():
        return abs(int(value.as_tuple().exponent))
    if isinstance(value, str) and (match := re.search(r"e([+-]?\d[\d_]*)\s*$", value, re.IGNORECASE)):
        return abs(int(match[1].replace("_", "")))
    return 0
