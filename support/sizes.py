"""The sizes of data that people write, such as "1M"."""

from __future__ import annotations

import re
from fractions import Fraction

from ..errors import UnsupportedError
from .validation import is_whole, shown

__all__ = ["as_bytes"]

SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
MOST_DIGITS = 18
"""Sizes have at most as many, which 64 bits hold."""
WHITE = " \t\n\r\f\v"


def as_bytes(size: int | str) -> int:
    """Read a size as nccl-tests does: ``"1G"`` is 2^30 bytes.

    Parameters
    ----------
    size : int or str
        Bytes, or a number with one of the suffixes K, M, G, T (powers of 1024; ``"64KB"`` and ``"64KiB"`` mean the
        same).

    Returns
    -------
    int

    Raises
    ------
    UnsupportedError
        If it is not a whole, positive number of bytes, or 10^18 bytes or more.

    Examples
    --------
    >>> as_bytes("1G"), as_bytes("0.5M"), as_bytes(4096)
    (1073741824, 524288, 4096)
    """
    refusal = UnsupportedError(
        f"size {shown(size)} is not understood; expected bytes such as 4096, '64K', '1M' or '2.5G'"
    )
    if not isinstance(size, str) and not is_whole(size):
        raise refusal
    if isinstance(size, str):
        match = re.fullmatch(r"(\d+)(\.\d{1,9})?\s*([KMGT]?)(?:I?B)?", size.strip(WHITE), re.IGNORECASE | re.ASCII)
        if not match:
            raise refusal
        # Of millions of digits, which take long to read, the first that are too many will do.
        digits = (match[1].lstrip("0") or "0")[: MOST_DIGITS + 1]
        exact = Fraction(digits + (match[2] or "")) * 2 ** SUFFIXES[match[3].upper()]
    else:
        exact = Fraction(int(size))
    if exact.denominator != 1 or exact < 1:
        raise refusal
    if exact >= 10**MOST_DIGITS:
        raise UnsupportedError(f"size {shown(size)} is too large; expected less than 10^{MOST_DIGITS} bytes")
    return int(exact)
