"""What people say that ranks have for each other, as whole numbers."""

from __future__ import annotations

from fractions import Fraction
from math import inf, lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError, UnsupportedError
from ..topologies.validation import as_amount, shown

__all__ = ["as_pair_traffic"]

IntArray = npt.NDArray[np.int64]

MOST_UNITS = 2**53
"""What all parts together may count."""


def as_pair_traffic(traffic: Any, num_ranks: int) -> IntArray:
    """Read a traffic matrix exactly, as whole numbers without a common divisor.

    Parameters
    ----------
    traffic : matrix of number, shape (ranks, ranks)
        Bytes, or any relative amounts, from each rank (row) to each other (column): a list of lists, an array or a
        DataFrame whose rows and columns have the same labels.  What ranks have for themselves counts for the algorithm
        bandwidth only.
    num_ranks : int
        How many there must be.

    Returns
    -------
    ndarray of int64, shape (ranks, ranks)

    Raises
    ------
    UnsupportedError
        If it is not of this form, an entry is negative or no finite number, no rank has anything for another, or all
        parts together count more than 2^53 of their common unit.

    Examples
    --------
    >>> as_pair_traffic([[0, 1.5], [6, 0]], 2).tolist()
    [[0, 1], [4, 0]]
    """
    matrix = _square(traffic, num_ranks)
    if matrix.dtype.kind in "iu" and matrix.dtype.itemsize <= 8:
        return _whole([int(entry) for entry in matrix.ravel().tolist()], num_ranks)
    exact = [
        _amount(value, *divmod(place, num_ranks)) for place, value in enumerate(matrix.astype(object).ravel().tolist())
    ]
    scale = lcm(*{amount.denominator for amount in exact})
    return _whole([int(amount * scale) for amount in exact], num_ranks)


def _square(traffic: Any, num_ranks: int) -> npt.NDArray[Any]:
    if hasattr(traffic, "columns") and list(traffic.columns) != list(traffic.index):
        raise UnsupportedError(
            "the traffic's rows and columns have different labels; expected the same ranks in the same order"
        )
    if isinstance(traffic, (str, bytes)) or not hasattr(traffic, "__len__"):
        raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a matrix, one row of numbers per rank")
    try:
        # Of a list, numpy would turn true and false into numbers.
        matrix = np.asarray(traffic, dtype=object if isinstance(traffic, (list, tuple)) else None)
    except ValueError:  # rows of unequal length
        matrix = np.empty(0)
    if matrix.shape != (num_ranks, num_ranks):
        raise UnsupportedError(
            f"the traffic is {shown(traffic)} of shape {matrix.shape}; expected {num_ranks} rows of {num_ranks} "
            "numbers, one per rank"
        )
    return matrix


def _amount(value: object, source: int, destination: int) -> Fraction:
    if isinstance(value, float) and 0 <= value < inf:
        return Fraction(repr(value))  # measured amounts have more digits than anyone writes
    try:
        return as_amount(value)
    except TopologyError:
        raise _refusal(value, source, destination) from None


def _refusal(value: object, source: int, destination: int) -> UnsupportedError:
    return UnsupportedError(
        f"the traffic from rank {source} to rank {destination} is {shown(value)}; expected a number of at least 0"
    )


def _whole(amounts: list[int], num_ranks: int) -> IntArray:
    if (least := min(amounts)) < 0:
        raise _refusal(least, *divmod(amounts.index(least), num_ranks))
    largest = max(amounts)
    if largest < 2**62:
        common = int(np.gcd.reduce(np.array(amounts, dtype=np.int64)))
    else:
        common = int(np.gcd.reduce(np.array(amounts, dtype=object)))
    units = [amount // common for amount in amounts] if common > 1 else amounts
    if sum(units) > MOST_UNITS:
        raise UnsupportedError(
            "the traffic counts more than 2^53 of its common unit in all; round it to fewer digits or larger units"
        )
    matrix = np.array(units, dtype=np.int64).reshape(num_ranks, num_ranks)
    if not matrix[~np.eye(num_ranks, dtype=np.bool_)].any():
        raise UnsupportedError("no rank has anything for another in the traffic; expected some entry off the diagonal")
    return matrix
