"""The rings that a plan consists of, where it consists of rings, as NCCL would run them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import Forest
from ...support.validation import shown

MAX_CHANNELS = 32
"""What all versions of NCCL take."""

WANTED = "expected the same rings for all data, such as of a plan by 'ring'"

Ring = tuple[int, ...]


def ring_channels(plan: Plan) -> tuple[Ring, ...]:
    """List the rings that a plan spreads its data over equally.

    >>> import collopt
    >>> topology = collopt.topologies.ring(4)
    >>> ring_channels(collopt.plan(topology, "allgather", planner="ring"))
    ((0, 1, 2, 3), (0, 3, 2, 1))
    """
    if not isinstance(plan, Plan):
        raise UnsupportedError(f"the plan is {shown(plan)}; expected a Plan")
    shares = [_shares(forest, plan.planner) for forest in plan.trees.forests]
    if shares[0] != shares[-1] and _turned(shares[0]) != shares[-1]:
        raise UnsupportedError(f"the plan by {plan.planner!r} reduces along other rings than it broadcasts; {WANTED}")
    # The least common number of shares that makes each ring's a whole one.
    total = math.lcm(*(share.denominator for share in shares[-1].values()))
    if total > MAX_CHANNELS:
        raise UnsupportedError(
            f"the plan by {plan.planner!r} makes {total} channels of NCCL, which takes at most {MAX_CHANNELS}; "
            "expected fewer rings, or rings with equal shares"
        )
    return tuple(ring for ring in sorted(shares[-1]) for _ in range(int(shares[-1][ring] * total)))


def _shares(forest: Forest, planner: str) -> dict[Ring, Fraction]:
    """What part of every root's shard goes around each ring."""
    ranks = forest.num_ranks
    chains = np.argsort(forest.depths, axis=1)
    if (np.sort(forest.depths, axis=1) != np.arange(ranks)).any():
        raise UnsupportedError(f"the plan by {planner!r} has trees in which a rank sends to several others; {WANTED}")
    if forest.direction == "reduce":
        chains = chains[:, ::-1]
    uses: dict[int, Counter[Ring]] = {}
    for root, weight, chain in zip(forest.roots.tolist(), forest.weights.tolist(), chains.tolist(), strict=True):
        uses.setdefault(root, Counter())[_from_lowest(chain)] += weight
    shares = [{ring: Fraction(weight, use.total()) for ring, weight in use.items()} for use in uses.values()]
    if any(share != shares[0] for share in shares):
        raise UnsupportedError(
            f"the plan by {planner!r} sends the data of some ranks around other rings than that of others; {WANTED}"
        )
    return shares[0]


def _turned(shares: dict[Ring, Fraction]) -> dict[Ring, Fraction]:
    """The same rings the other way round."""
    return {_from_lowest(ring[::-1]): share for ring, share in shares.items()}


def _from_lowest(ring: Sequence[int]) -> Ring:
    first = ring.index(min(ring))
    return tuple(ring[first:]) + tuple(ring[:first])
