"""Which links a bound depends on, by adding up its witness once more."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...support.validation import shown
from .bound import Bound
from .cut_duals import Prices
from .cuts import Cut, LinkPrice, Partition, RankCuts
from .length_duals import LinkLengths

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["bound_sensitivity", "link_prices"]


def link_prices(bound: Bound) -> tuple[LinkPrice, ...]:
    """Say by how much the bound rises with the bandwidth of each link.

    Parameters
    ----------
    bound : Bound
        With any witness of this package.

    Returns
    -------
    tuple of LinkPrice
        GB/s of algorithm bandwidth per GB/s of the link, for links that matter to the witness.

    Raises
    ------
    UnsupportedError
        For a witness of another kind, or something that is no bound.

    Notes
    -----
    With every witness ``algbw = W sum of y b / amount``, W all data and y the weight that the witness gives to a link.
    The witness stays valid when b changes, so no wider link gains more than its price times what was added; it gains
    less where another witness takes over.  `collopt.sensitivity` solves again to find out.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> bound = Bound.from_witness(ring(4, bandwidth=25), "allgather", Cut(frozenset({"gpu0", "gpu1", "gpu2"})))
    >>> link_prices(bound)[0]
    LinkPrice(tail='gpu2', head='gpu3', price=Fraction(4, 3))
    """
    if not isinstance(bound, Bound):
        raise UnsupportedError(f"the bound is {shown(bound)}; expected a Bound, such as collopt.bound returns")
    topology, witness, collective = bound.topology, bound.witness, bound.collective
    weights: dict[tuple[str, str], Fraction] = {}
    if isinstance(witness, (Prices, LinkLengths)):
        weights = {(tail, head): price for tail, head, price in witness.links}
    elif isinstance(witness, Cut):
        weights = _crossed(bound, witness, entering=collective.direction == "reduce")
    elif isinstance(witness, RankCuts):
        for cut in witness.cuts:
            crossed = _crossed(bound, cut, entering=bool(topology.multicast))
            if sum(topology.link(*pair).bandwidth for pair in crossed) == witness.bandwidth(topology):
                weights |= crossed
    elif isinstance(witness, Partition):
        for part in witness.parts:
            if not part.isdisjoint(topology.compute_nodes):
                weights |= _crossed(bound, Cut(part), entering=True)
    else:
        raise UnsupportedError(f"a bound by {type(witness).__name__} does not say what a link is worth")
    amount, _ = witness.crossing(topology, collective, bound.weights)
    return tuple(LinkPrice(*pair, weight * bound.total_weight / amount) for pair, weight in weights.items() if weight)


def bound_sensitivity(bound: Bound) -> pd.DataFrame:
    """Tabulate `link_prices`.

    Parameters
    ----------
    bound : Bound
        With any witness of this package.

    Returns
    -------
    DataFrame
        One row per link, dearest first: ``tail``, ``head``, ``bandwidth`` in GB/s and ``price``, both exact.
    """
    import pandas as pd

    prices = {(tail, head): price for tail, head, price in link_prices(bound)}
    rows = [
        (link.tail, link.head, link.bandwidth, prices.get((link.tail, link.head), Fraction(0)))
        for link in bound.topology.links
    ]
    rows.sort(key=lambda row: row[3], reverse=True)
    return pd.DataFrame(rows, columns=["tail", "head", "bandwidth", "price"])


def _crossed(bound: Bound, cut: Cut, *, entering: bool) -> dict[tuple[str, str], Fraction]:
    """Weight 1 for every link that leaves, or enters, a cut."""
    inside = {(link.tail, link.head): (link.tail in cut.nodes, link.head in cut.nodes) for link in bound.topology.links}
    wanted = (False, True) if entering else (True, False)
    return {pair: Fraction(1) for pair, sides in inside.items() if sides == wanted}
