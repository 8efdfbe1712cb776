"""Rounding of breadth-first broadcast shares to whole chunks, and their schedule.

The shares that a rank gets of one source's shard sum to 1.  With P chunks per shard each becomes P times as many
chunks, rounded down or up, so that together they are P.  Theorem 20 of the direct-connect paper (appendix E.2) bounds
what that adds to the bandwidth time; where all links into a rank are equally fast, the optimum of integer program (13)
is ``ceil(P U)`` exactly, with the U of linear program (1).  Proofs are in docs/formulations/bfb_rounding.md.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from ..errors import UnsupportedError
from ..schedules.steps.step_schedule import Send
from ..support.validation import is_whole, shown
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .inputs import TOLERANCE, as_count, as_share

__all__ = ["as_sends", "excess_bound", "round_shares"]

Offer = tuple[str, str, str]


def round_shares(shares: Mapping[Offer, float | Fraction], chunks: int) -> dict[Offer, int]:
    """Round the shares of a solution to whole chunks, at most one more than the share on any link.

    Largest remainder method: the links with the largest remainders get one chunk each.  For every source and head the
    chunks sum to `chunks`; each number is less than 1 away from ``chunks`` times its share.

    Parameters
    ----------
    shares : mapping of (source, tail, head) to number
        As a solution of `collopt.formulations.bfb.build` has them under ``"share"``.
    chunks : int
        Chunks per shard, the paper's P.

    Examples
    --------
    >>> round_shares({("a", "b", "d"): Fraction(1, 3), ("a", "c", "d"): Fraction(2, 3)}, 4)
    {('a', 'b', 'd'): 1, ('a', 'c', 'd'): 3}
    """
    chunks = as_count(chunks, "chunks")
    _check_offers(shares, "shares")
    groups: dict[tuple[str, str], dict[Offer, Fraction]] = {}
    for offer, share in shares.items():
        groups.setdefault((offer[0], offer[2]), {})[offer] = as_share(share, f"the share {offer}")
    rounded: dict[Offer, int] = {}
    for (source, head), group in groups.items():
        total = sum(group.values(), Fraction(0))
        if abs(total - 1) > TOLERANCE:
            raise UnsupportedError(
                f"the shares of {source!r} that reach {head!r} add up to {float(total):g}; expected 1"
            )
        rounded |= _rounded({offer: chunks * share / total for offer, share in group.items()}, chunks)
    return {offer: rounded[offer] for offer in shares}


def excess_bound(degree: int, diameter: int, chunks: int, num_ranks: int) -> Fraction:
    """Return the bound on what rounding adds to the bandwidth time, in M/B: Theorem 20.

    It is ``d / (P N)`` times the sum of ``d^(t - 1)`` for t = 1, ..., D, which the paper writes in closed form.

    Parameters
    ----------
    degree : int
        Links into each rank, d.
    diameter : int
        Largest distance in hops, D.
    chunks : int
        Chunks per shard, P.
    num_ranks : int
        Ranks, N.

    Examples
    --------
    >>> excess_bound(degree=2, diameter=3, chunks=4, num_ranks=8)
    Fraction(7, 16)
    """
    numbers = {"degree": degree, "diameter": diameter, "chunks": chunks, "num_ranks": num_ranks}
    d, length, parts, ranks = (as_count(value, what) for what, value in numbers.items())
    sources: int = length if d == 1 else (d**length - 1) // (d - 1)
    return Fraction(d * sources, parts * ranks)


def as_sends(counts: Mapping[Offer, int], distance: int, topology: Topology) -> list[Send]:
    """Assign consecutive chunks to links: sends for `StepSchedule.from_sends`.

    Any assignment is valid, since every neighbor has the whole shard by then (direct-connect paper, section 6.1).

    Parameters
    ----------
    counts : mapping of (source, tail, head) to int
        Chunks on each link, such as `round_shares` returns.
    distance : int
        From the sources to the heads, in hops: they are sent in step ``distance - 1``.
    topology : Topology
        Whose ranks they are.
    """
    distance = as_count(distance, "distance")
    _check_offers(counts, "counts")
    as_topology(topology)
    used: dict[tuple[str, str], int] = {}
    sends = []
    rank = topology.node_index
    for (source, tail, head), count in counts.items():
        if unknown := [name for name in (source, tail, head) if name not in topology.compute_nodes]:
            raise UnsupportedError(f"{shown(unknown[0])} is not a rank of {topology}; expected names of ranks")
        if not is_whole(count) or count < 0:
            raise UnsupportedError(f"the count of {(source, tail, head)} is {shown(count)}; expected at least 0 chunks")
        lower = used.get((source, head), 0)
        used[source, head] = lower + int(count)
        if count:
            sends.append(Send(distance - 1, rank[source], lower, lower + int(count), (rank[tail], rank[head])))
    return sends


def _check_offers(numbers: object, what: str) -> None:
    if not isinstance(numbers, Mapping):
        raise UnsupportedError(f"{what} are {shown(numbers)}; expected a mapping from (source, tail, head) to numbers")
    for offer in numbers:
        if not isinstance(offer, tuple) or len(offer) != 3:
            raise UnsupportedError(f"{what} have the key {shown(offer)}; expected (source, tail, head)")


def _rounded(amounts: Mapping[Offer, Fraction], total: int) -> dict[Offer, int]:
    """Round amounts that sum to an integral `total`, by the largest remainder method."""
    integers = {key: floor(amount) for key, amount in amounts.items()}
    by_remainder = sorted(amounts, key=lambda key: integers[key] - amounts[key])
    for key in by_remainder[: total - sum(integers.values())]:
        integers[key] += 1
    return integers
