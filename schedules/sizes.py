"""The sizes of data that people write, such as "1M"."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np

from ..errors import UnsupportedError
from ..topologies.validation import shown

__all__ = ["as_bytes"]

SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


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
        If it is not a whole, positive number of bytes.

    Examples
    --------
    >>> as_bytes("1G"), as_bytes("0.5M"), as_bytes(4096)
    (1073741824, 524288, 4096)
    """
    refusal = UnsupportedError(
        f"size {shown(size)} is not understood; expected bytes such as 4096, '64K', '1M' or '2.5G'"
    )
    if isinstance(size, bool) or not isinstance(size, (int, str, np.integer)):
        raise refusal
    if not isinstance(size, str) and not 1 <= size < 10**18:
        raise refusal
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)(?:I?B)?\s*", str(size), re.IGNORECASE | re.ASCII)
    if not match:
        raise refusal
    exact = Fraction(match[1]) * 2 ** SUFFIXES[match[2].upper()]
    if exact.denominator != 1 or exact < 1:
        raise refusal
    return int(exact)
