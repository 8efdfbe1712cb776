"""Sizes of shards, and traffic matrices of an all-to-all(v), in exact or whole numbers."""

import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError, UnsupportedError
from ..support.arrays import IntArray
from ..support.quantities import as_amount
from ..support.validation import shown

MAX_UNITS = 2**53  # units at most of all parts together
FLOAT_UNITS = 2**40  # units of all parts together where floats are rounded
FLOATS = (float, np.floating)
DECIMAL = re.compile(r"\+?([0-9]{1,64}\.?[0-9]{0,64}|\.[0-9]{1,64})(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
"""How numbers of at least 0 are written that are read with all their digits."""


def as_pair_traffic(traffic: Any, ranks: Sequence[str]) -> IntArray:
    """Read a traffic matrix as whole numbers without a common divisor.

    Shapes: `traffic` (ranks, ranks); returns int64 (ranks, ranks).
    """
    matrix = _square(traffic, ranks)
    if matrix.dtype.kind in "iu" and matrix.dtype.itemsize <= 8:
        return _reduced([int(entry) for entry in matrix.ravel().tolist()], len(ranks))
    exact = _amounts(matrix)
    scale = Fraction(lcm(*{amount.denominator for amount in exact}))
    total = sum(exact, Fraction(0))
    if total * scale > MAX_UNITS and all(isinstance(value, FLOATS) for value in matrix.astype(object).ravel()):
        scale = FLOAT_UNITS / total
        return _reduced([max(round(amount * scale), 1) if amount else 0 for amount in exact], len(ranks))
    return _reduced([int(amount * scale) for amount in exact], len(ranks))


def pair_amounts(traffic: Any, ranks: Sequence[str]) -> list[list[Fraction]]:
    """Read a traffic matrix exactly, in its own unit; parameters and errors as for `as_pair_traffic`."""
    size = len(ranks)
    flat = _amounts(_square(traffic, ranks))
    return [flat[row * size : (row + 1) * size] for row in range(size)]


def check_table(traffic: Any) -> None:
    """Raise `UnsupportedError` for masked entries, and frames whose rows and columns are not the same in one order."""
    if np.ma.is_masked(traffic):
        raise UnsupportedError("the traffic has masked entries; expected all of them, as traffic.filled(0) has")
    pandas = sys.modules.get("pandas")  # a caller with a frame has imported it
    if pandas is None or not isinstance(traffic, pandas.DataFrame):
        return
    if not traffic.index.is_unique:
        label = shown(traffic.index[traffic.index.duplicated()].tolist()[0])
        raise UnsupportedError(f"the traffic has several rows labelled {label}; expected one row for each rank")
    if not traffic.index.equals(traffic.columns):
        rows, columns = traffic.index.tolist(), traffic.columns.tolist()
        at = next((place for place, row in enumerate(rows) if row != columns[place]), 0)
        raise UnsupportedError(
            f"the traffic has row {at} labelled {shown(rows[at])} and column {at} labelled {shown(columns[at])}; "
            "expected the same labels in the same order, as traffic.loc[labels, labels] has them"
        )


def _amounts(matrix: npt.NDArray[Any]) -> list[Fraction]:
    size = len(matrix)
    return [_amount(value, *divmod(place, size)) for place, value in enumerate(matrix.astype(object).ravel().tolist())]


def _square(traffic: Any, ranks: Sequence[str]) -> npt.NDArray[Any]:
    num_ranks = len(ranks)
    if isinstance(traffic, (str, bytes)) or not hasattr(traffic, "__len__"):
        raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a matrix, one row of numbers per rank")
    try:
        # Of a list, numpy would turn true and false into numbers.
        matrix = np.asarray(traffic, dtype=object if isinstance(traffic, (list, tuple)) else None)
    except ValueError:  # rows of unequal length
        matrix = np.empty(0)
    except (TypeError, RuntimeError):  # such as tensors on a GPU
        raise UnsupportedError(
            f"the traffic is a {type(traffic).__name__} that numpy cannot read; expected a dense matrix in main "
            "memory, one row of numbers per rank"
        ) from None
    if matrix.shape != (num_ranks, num_ranks):
        text = matrix.ndim == 2 and matrix.size and isinstance(matrix[0, 0], str)
        raise UnsupportedError(
            f"the traffic is {shown(traffic)} of shape {matrix.shape}; expected {num_ranks} rows of {num_ranks} "
            f"numbers, one per rank{', without a header or labels' if text else ''}"
        )
    check_table(traffic)
    if hasattr(traffic, "columns") and hasattr(traffic, "index") and {*map(str, traffic.index)} == {*ranks}:
        return np.asarray(traffic.rename(index=str, columns=str).loc[list(ranks), list(ranks)])
    return matrix


def _amount(value: object, source: int, destination: int) -> Fraction:
    if isinstance(value, Fraction) and value >= 0:
        return value
    # Measured amounts have more digits than anyone writes, and than `as_amount` takes.
    text = repr(float(value)) if isinstance(value, (float, np.floating)) else value
    if isinstance(text, (str, Decimal)) and DECIMAL.fullmatch(str(text)):
        return Fraction(text)
    try:
        return as_amount(value)
    except TopologyError:
        raise _refusal(value, source, destination) from None


def _refusal(value: object, source: int, destination: int) -> UnsupportedError:
    return UnsupportedError(
        f"the traffic from rank {source} to rank {destination} is {shown(value)}; expected a number of at least 0"
    )


def _reduced(amounts: list[int], num_ranks: int) -> IntArray:
    if (lowest := min(amounts)) < 0:
        raise _refusal(lowest, *divmod(amounts.index(lowest), num_ranks))
    largest = max(amounts)
    if largest < 2**62:
        common = int(np.gcd.reduce(np.array(amounts, dtype=np.int64)))
    else:
        common = int(np.gcd.reduce(np.array(amounts, dtype=object)))
    units = [amount // common for amount in amounts] if common > 1 else amounts
    if sum(units) > MAX_UNITS:
        raise UnsupportedError(
            "the traffic counts more than 2^53 of its common unit in all; round it to fewer digits or larger units"
        )
    matrix = np.array(units, dtype=np.int64).reshape(num_ranks, num_ranks)
    if not matrix[~np.eye(num_ranks, dtype=np.bool_)].any():
        raise UnsupportedError("all off-diagonal traffic is 0; expected a positive entry")
    return matrix


def traffic_matrix(weights: tuple[int, ...], num_ranks: int) -> npt.NDArray[np.object_]:
    """Lay out weights by source and destination. Shapes: returns (ranks, ranks)."""
    flat = np.array(weights or (1,) * num_ranks**2, dtype=object)
    matrix: npt.NDArray[np.object_] = flat.reshape(num_ranks, num_ranks)
    np.fill_diagonal(matrix, 0)
    return matrix


def crossing_traffic(inside: npt.NDArray[np.bool_], weights: tuple[int, ...]) -> int:
    """Add up the data of ranks inside a cut for ranks outside. Shapes: `inside` bool (ranks,)."""
    within = int(inside.sum())
    if not weights:
        return within * (len(inside) - within)
    rows = (weights[rank * len(inside) : (rank + 1) * len(inside)] for rank in np.flatnonzero(inside).tolist())
    outside = np.flatnonzero(~inside).tolist()
    return sum(row[rank] for row in rows for rank in outside)


def as_weights(weights: object, num_ranks: int) -> tuple[Fraction, ...]:
    """Read the relative sizes of the shards exactly."""
    if weights is None:
        return (Fraction(1),) * num_ranks
    if isinstance(weights, (str, bytes)) or not isinstance(weights, (Sequence, np.ndarray)):
        raise UnsupportedError(f"weights is {shown(weights)}; expected a list of numbers, one per rank in rank order")
    if isinstance(weights, np.ndarray) and weights.ndim != 1:
        raise UnsupportedError(f"weights is an array of shape {weights.shape}; expected one number per rank")
    exact = tuple(_weight(rank, value) for rank, value in enumerate(weights))
    if len(exact) != num_ranks:
        raise UnsupportedError(f"weights has {len(exact)} entries; expected one per rank, {num_ranks}")
    if not any(exact):
        raise UnsupportedError("all weights are 0; expected some rank to have data")
    return exact


def _weight(rank: int, value: object) -> Fraction:
    try:
        return as_amount(value)
    except TopologyError:
        raise UnsupportedError(
            f"weight {shown(value)} of rank {rank} is not usable; expected a number of at least 0"
        ) from None


def is_even(traffic: IntArray) -> bool:
    """Whether all ranks send each other as much. Shapes: `traffic` (ranks, ranks)."""
    off_diagonal = traffic[~np.eye(len(traffic), dtype=np.bool_)]
    return bool((off_diagonal == off_diagonal[:1]).all())
