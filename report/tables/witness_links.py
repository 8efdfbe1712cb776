"""Which nodes and links a bound's witness is about, for figures to show."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UnsupportedError
from ...schedules import Bound, Cut, LinkLengths, LinkPrice, Partition, Prices, RankCuts, Witness
from ...support.validation import shown

if TYPE_CHECKING:
    import pandas as pd

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
    return _view(bound.witness, bound)


@singledispatch
def _view(witness: Witness, bound: Bound) -> WitnessView:
    if not isinstance(witness, Witness):
        raise UnsupportedError(
            f"the bound's witness is {shown(witness)}; expected a cut, a partition, dual values or dual lengths"
        )
    weights = witness.link_weights(bound.topology, bound.collective)
    return WitnessView((), frozenset(pair for pair, weight in weights.items() if weight > 0), "link in the bound")


@_view.register(Cut)
def _of_cut(witness: Cut, bound: Bound) -> WitnessView:
    return _crossing(bound, witness, bound.collective.direction == "reduce")


@_view.register(RankCuts)
def _of_rank_cuts(witness: RankCuts, bound: Bound) -> WitnessView:
    # All but the widest hold with room to spare; of equal ones, one is enough to look at.
    receiving = bool(bound.topology.multicast)
    widths = [
        cut.entering_bandwidth(bound.topology) if receiving else cut.bandwidth(bound.topology) for cut in witness.cuts
    ]
    return _crossing(bound, witness.cuts[widths.index(max(widths))], receiving)


@_view.register(Partition)
def _of_partition(witness: Partition, bound: Bound) -> WitnessView:
    ranks = set(bound.topology.compute_nodes)
    parts = tuple(part for part in witness.parts if part & ranks)
    return WitnessView(parts, frozenset(witness.link_weights(bound.topology, bound.collective)), "link into a part")


@_view.register(LinkLengths)
def _of_lengths(witness: LinkLengths, bound: Bound) -> WitnessView:  # noqa: ARG001
    return _priced(witness.links, "dual length")


@_view.register(Prices)
def _of_prices(witness: Prices, bound: Bound) -> WitnessView:  # noqa: ARG001
    return _priced(witness.links, "dual value")


def _priced(links: Iterable[LinkPrice], what: str) -> WitnessView:
    priced = frozenset((entry.tail, entry.head) for entry in links if entry.price > 0)
    return WitnessView((), priced, f"link with a {what} in the bound")


def _crossing(bound: Bound, cut: Cut, inwards: bool) -> WitnessView:
    """Show one cut and the links out of it, or into it."""
    crossed = cut.crossed(bound.topology, entering=inwards)
    return WitnessView((cut.nodes,), frozenset(crossed), f"link {'into' if inwards else 'out of'} the cut")
