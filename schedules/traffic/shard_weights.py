"""Relative sizes of shards, as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...errors import TopologyError, UnsupportedError
from ...support.quantities import as_amount
from ...support.validation import shown


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
