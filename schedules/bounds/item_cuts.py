"""`ItemCuts`: weighted cuts that items must enter, as the witness of a bound of any demands."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray
from ...support.formatting import count_text, exact
from ...support.validation import shown
from ...topologies import Topology
from ..collective import AnyCollective, Collective
from ..demands import Demands
from .witness import WITHOUT_CODING, Crossing, LinkDuals, as_node_set, as_parts, value_by_link, value_rows
from .witness import values_from_rows as as_values

EXACT_FLOATS = 2**53  # floats up to here are whole numbers that add up exactly


class ItemCut(NamedTuple):
    """A set of `nodes`, ranks and switches that multicast, that an item must enter, and its `weight`."""

    weight: Fraction
    nodes: frozenset[str]


@dataclass(frozen=True)
class ItemCuts(LinkDuals):
    """Lengths of links, and for each group of items weighted cuts that the items must enter.

    A cut holds a destination of its group and no source, so every byte of the group enters it.  Data goes in hops
    between ranks and switches that multicast.  A hop enters some cuts, whose weights sum to no more than its shortest
    way past other switches, at the lengths.  So each byte of group d takes links of a length of at least the sum of d's
    weights, and ``1 / x`` is at least ``sum of w(d) weights(d)`` over ``sum of b(e) length(e)``.  This is weak duality
    for the program of `collopt.formulations.multicast`.

    Attributes
    ----------
    links : tuple of LinkValue
        Length of each link; those that are not there have length 0.
    cuts : tuple of tuple of ItemCut
        Those of each group, in the order of `Demands.groups`.
    """

    dual_name: ClassVar[str] = "length"
    field: ClassVar[str] = "item_cuts"

    cuts: tuple[tuple[ItemCut, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = as_parts(self.cuts, "item cuts", "lists of cuts, one per group of items")
        object.__setattr__(self, "cuts", tuple(tuple(map(_as_cut, as_parts(row, "cuts", "cuts"))) for row in groups))

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless the lengths and the nodes of the cuts fit the topology."""
        value_by_link(self.links, {(link.tail, link.head) for link in topology.links}, "link")
        ends = set(hop_ends(topology))
        for cut in (cut for row in self.cuts for cut in row):
            if unknown := sorted(cut.nodes - ends):
                raise CertificateError(
                    f"the bound's cut names {shown(unknown[0])}, which is neither a rank of {topology} nor a switch "
                    "that multicasts"
                )

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up weights of cuts, and the worth of all links; see `Witness.crossing`."""
        if not isinstance(collective, Demands):
            raise CertificateError(f"cuts of items do not bound {shown(str(collective))}; expected Demands")
        if weights or len(self.cuts) != len(collective.groups):
            expected = f"expected {len(collective.groups)}, and no weights"
            raise CertificateError(f"the bound has cuts for {len(self.cuts)} groups of items; {expected}")
        amount = Fraction(0)
        for number, (group, row) in enumerate(zip(collective.groups, self.cuts, strict=True)):
            for cut in row:
                if cut.nodes.intersection(group.sources) or not cut.nodes.intersection(group.destinations):
                    raise CertificateError(
                        f"a cut of group {number} is {shown(sorted(cut.nodes))}; expected one of its destinations "
                        "inside, and no source"
                    )
                amount += group.weight * cut.weight
        self._check_hops(topology)
        return Crossing(amount, self.value(topology))

    def _check_hops(self, topology: Topology) -> None:
        """Raise `CertificateError` if the cuts of a group that a hop enters weigh more than its length."""
        values = [*(link.dual for link in self.links), *(cut.weight for row in self.cuts for cut in row)]
        scale = lcm(*{value.denominator for value in values})
        if sum(values) * scale >= EXACT_FLOATS:
            raise CertificateError("the bound's lengths and weights sum to 2^53 or more of their common unit")
        ends = hop_ends(topology)
        limits = hop_lengths(topology, {link[:2]: int(link.dual * scale) for link in self.links})
        place = {node: number for number, node in enumerate(ends)}
        for number, row in enumerate(self.cuts):
            inside = np.zeros((len(row), len(ends)), dtype=np.int64)
            for position, cut in enumerate(row):
                inside[position, [place[node] for node in cut.nodes]] = 1
            weights = np.array([int(cut.weight * scale) for cut in row], dtype=np.int64)
            entered = ((1 - inside) * weights[:, None]).T @ inside
            if (entered > limits).any():
                tail, head = np.argwhere(entered > limits)[0].tolist()
                raise CertificateError(
                    f"the cuts of group {number} weigh {entered[tail, head]} of 1/{scale} on the hop from "
                    f"{ends[tail]!r} to {ends[head]!r}; expected at most its length, {limits[tail, head]:.0f}"
                )

    def dual_reasons(self, links: str, amount: str, collective: Collective) -> tuple[str, ...]:  # noqa: ARG002
        """Explain the lengths, and what items use of them."""
        count = count_text(sum(map(len, self.cuts)), "cut")
        return (
            f"Assign the dual lengths below to {links}, and length 0 to all others.",
            f"Items must enter {count}: each holds a destination of its item, and no source.",
            "On every hop the cuts of an item that it enters weigh no more than its shortest way past switches.",
            f"So all items together take bandwidth times length of {amount} per unit of rate. {WITHOUT_CODING}",
        )

    def reason(self, topology: Topology, collective: AnyCollective) -> str:
        """State the sums that the bound compares."""
        amount, value = self.crossing(topology, collective)
        offered = f"the {exact(value)} of all links"
        return f"at the dual lengths, items take at least {exact(amount)} per unit of rate of {offered}"

    def to_json(self) -> dict[str, Any]:
        """Rows of both ends of a link and its length, and for each group ``[weight, nodes]`` of its cuts."""
        cuts = [[[str(cut.weight), sorted(cut.nodes)] for cut in row] for row in self.cuts]
        return {"links": value_rows(self.links), "cuts": cuts}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Build it from such rows."""
        rows = (tuple(ItemCut(Fraction(weight), frozenset(nodes)) for weight, nodes in row) for row in value["cuts"])
        return cls(as_values(value["links"]), tuple(rows))


def hop_ends(topology: Topology) -> tuple[str, ...]:
    """Nodes at which data is copied: ranks, and switches that multicast, in the order of the topology's nodes."""
    copying = (node for node in topology.switch_nodes if node in topology.multicast)
    return (*topology.compute_nodes, *copying)


def hop_lengths(topology: Topology, lengths: Mapping[tuple[str, ...], int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Shortest way of each hop between `hop_ends` past other switches, infinite where there is none.

    Shapes: returns float64 (ends, ends), of whole numbers; the way of an end to itself counts 0.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    tails, heads, _, _ = topology.arrays
    costs = np.array([lengths.get(link[:2], 0) for link in topology.links], dtype=np.float64)
    size, index = len(topology.nodes), topology.node_index
    ends: IntArray = np.array([index[node] for node in hop_ends(topology)], dtype=np.int64)
    # Links out of an end begin at its copy, which no link enters, so that no way passes an end.
    begin = np.arange(size)
    begin[ends] = size + np.arange(len(ends))
    graph = csr_array((costs, (begin[tails], heads)), shape=(size + len(ends),) * 2)
    ways: np.ndarray[Any, np.dtype[np.float64]] = dijkstra(graph, indices=begin[ends])[:, ends]
    np.fill_diagonal(ways, 0)
    return ways


def _as_cut(value: object) -> ItemCut:
    if not isinstance(value, tuple) or len(value) != 2 or type(value[0]) not in (int, Fraction) or value[0] < 0:
        raise CertificateError(f"the bound's cuts contain {shown(value)}; expected (weight, nodes), the weight exact")
    return ItemCut(Fraction(value[0]), as_node_set(value[1], "cut"))


def leaving(demands: Demands, nodes: Iterable[str]) -> int:
    """Units of the items that have all sources among some nodes, and a destination outside."""
    inside = set(nodes)
    return sum(
        group.weight
        for group in demands.groups
        if inside.issuperset(group.sources) and not inside.issuperset(group.destinations)
    )
