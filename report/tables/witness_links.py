"""Which nodes and links a bound's witness is about, for figures to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...errors import UnsupportedError
from ...schedules import Bound, Cut, LinkLengths, Partition, Prices, RankCuts
from ...support.validation import shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["WitnessView", "bound_links", "witness_view"]

Pair = tuple[str, str]


class WitnessView(NamedTuple):
    """What to show of a witness.

    `parts`: Sets of nodes whose borders count; none for prices and lengths of links.
    `links`: Links whose bandwidth the witness adds up.
    `words`: What these links are, for a legend.
    """

    parts: tuple[frozenset[str], ...]
    links: frozenset[Pair]
    words: str


def bound_links(bound: Bound) -> pd.DataFrame:
    """Tabulate the links of a bound's topology, and which of them limit the collective.

    Parameters
    ----------
    bound : Bound
        With a witness of any kind.

    Returns
    -------
    DataFrame
        One row per link: ``tail``, ``head``, ``bandwidth_gbps``, ``latency_us``, and ``in_cut``, whether the bound's
        witness adds up its bandwidth.  These are the links that cross the cut in the direction that counts, those that
        enter a part of a partition, or those with a price or a length.

    Raises
    ------
    UnsupportedError
        If the bound is none, or its witness is of an unknown kind.

    Examples
    --------
    >>> import collopt
    >>> bound = collopt.bound(collopt.topologies.dgx_a100(boxes=4), "allgather")
    >>> links = bound_links(bound)
    >>> int(links["in_cut"].sum()), float(links[links["in_cut"]]["bandwidth_gbps"].sum())
    (8, 200.0)
    """
    import pandas as pd

    counted = witness_view(bound).links
    links = bound.topology.links
    return pd.DataFrame(
        {
            "tail": [link.tail for link in links],
            "head": [link.head for link in links],
            "bandwidth_gbps": [float(link.bandwidth) for link in links],
            "latency_us": [float(link.latency) for link in links],
            "in_cut": [(link.tail, link.head) in counted for link in links],
        }
    )


def witness_view(bound: Bound) -> WitnessView:
    """Say what to show of a bound's witness; raises as `bound_links`."""
    if not isinstance(bound, Bound):
        raise UnsupportedError(f"the bound is {shown(bound)}; expected a Bound")
    witness = bound.witness
    if isinstance(witness, Cut):
        return _crossing(bound, witness, bound.collective.direction == "reduce")
    if isinstance(witness, RankCuts):
        # All but the widest hold with room to spare; of equal ones, one is enough to look at.
        receiving = bool(bound.topology.multicast)
        widths = [
            cut.entering_bandwidth(bound.topology) if receiving else cut.bandwidth(bound.topology)
            for cut in witness.cuts
        ]
        return _crossing(bound, witness.cuts[widths.index(max(widths))], receiving)
    if isinstance(witness, Partition):
        ranks = set(bound.topology.compute_nodes)
        parts = tuple(part for part in witness.parts if part & ranks)
        part_of = {node: number for number, part in enumerate(parts) for node in part}
        links = _pairs(bound)
        entering = {(tail, head) for tail, head in links if head in part_of and part_of.get(tail) != part_of[head]}
        return WitnessView(parts, frozenset(entering), "link into a part")
    if isinstance(witness, LinkLengths | Prices):
        what = "length" if isinstance(witness, LinkLengths) else "price"
        priced = frozenset((entry.tail, entry.head) for entry in witness.links if entry.price > 0)
        return WitnessView((), priced, f"link with a {what} in the bound")
    raise UnsupportedError(f"the bound's witness is {shown(witness)}; expected a cut, a partition, prices or lengths")


def _crossing(bound: Bound, cut: Cut, inwards: bool) -> WitnessView:
    """Show one cut and the links out of it, or into it."""
    links = {(tail, head) for tail, head in _pairs(bound) if (head if inwards else tail) in cut.nodes}
    crossing = {(tail, head) for tail, head in links if (tail if inwards else head) not in cut.nodes}
    return WitnessView((cut.nodes,), frozenset(crossing), f"link {'into' if inwards else 'out of'} the cut")


def _pairs(bound: Bound) -> list[Pair]:
    return [(link.tail, link.head) for link in bound.topology.links]
