"""Directed links: records, columns, validation, merging, arrays for the solvers; and ranks by number or name."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError, TopologyError, UnsupportedError
from ...support.arrays import LONG, IntArray, places_of
from ...support.quantities import as_bandwidth, as_latency
from ...support.validation import as_integers, as_list, as_name, is_whole, shown

INT64_MAX = 2**63 - 1


_NUMBERING = re.compile(r"[\d._:,()\[\] -]*$")  # the numbering at the end of node names


class Link(NamedTuple):
    """A directed link.

    Attributes
    ----------
    tail, head : str
        The nodes that the link leaves and enters.
    bandwidth : Fraction
        GB/s (1e9 bytes per second) in this direction.
    latency : Fraction
        Microseconds.
    """

    tail: str
    head: str
    bandwidth: Fraction
    latency: Fraction = Fraction(0)


class LinkArrays(NamedTuple):
    """The links of a topology as arrays, in the order of `Topology.links`.

    Attributes
    ----------
    tails, heads : ndarray of int64, shape (links,)
        Node indices as in `Topology.nodes`: compute nodes first, so a rank is its node's index.
    capacities : ndarray of int64, shape (links,)
        Bandwidths in multiples of `unit`; their greatest common divisor is 1.
    unit : Fraction
        GB/s per unit of capacity.
    """

    tails: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int64]
    capacities: npt.NDArray[np.int64]
    unit: Fraction


class LinkColumns(NamedTuple):
    """The links of a topology as columns, int64 (links,), in the order of `Topology.links`."""

    tails: IntArray
    heads: IntArray
    kinds: IntArray  # numbered by their first links
    rates: tuple[tuple[Fraction, Fraction], ...]  # bandwidth, GB/s, and latency, µs, of each kind; no two are equal

    def links(self, nodes: Sequence[str]) -> tuple[Link, ...]:
        """Return the links, between nodes of these names."""
        columns = (column.tolist() for column in self[:3])
        return tuple(
            Link(nodes[tail], nodes[head], *self.rates[kind]) for tail, head, kind in zip(*columns, strict=True)
        )

    def equal(self, other: LinkColumns) -> bool:
        """Return whether these are the same links in the same order."""
        return self.rates == other.rates and all(map(np.array_equal, self[:3], other[:3]))


def as_link(entry: object) -> Link:
    """Return ``(tail, head, bandwidth[, latency])`` as a `Link` whose entries are not validated yet."""
    if not isinstance(entry, tuple) or len(entry) not in (3, 4):
        raise TopologyError(f"link {shown(entry)} is not a tuple (tail, head, bandwidth[, latency])")
    return Link(*entry)


def merged_links(links: Iterable[Link], nodes: Collection[str]) -> tuple[Link, ...]:
    """Validate links between known nodes, and merge parallel ones: sum of bandwidths, larger latency."""
    merged: dict[tuple[str, str], Link] = {}
    for entry in map(as_link, as_list(links, "the links")):
        tail, head = as_name(entry[0]), as_name(entry[1])
        where = f"link ({tail!r}, {head!r})"
        for node in (tail, head):
            if node not in nodes:
                raise TopologyError(f"{where} names the unknown node {node!r}; list it under compute or switches")
        if tail == head:
            raise TopologyError(f"{where} is a self-loop; remove it, data never travels from a node to itself")
        link = Link(tail, head, as_bandwidth(entry[2], where), as_latency(entry[3], where))
        if twin := merged.get((tail, head)):
            total = as_bandwidth(twin.bandwidth + link.bandwidth, where)
            link = Link(tail, head, total, max(twin.latency, link.latency))
        merged[tail, head] = link
    return tuple(merged.values())


def link_columns(links: Sequence[Link], index: Mapping[str, int]) -> LinkColumns:
    """Return valid links as columns."""
    numbers: dict[tuple[Fraction, Fraction], int] = {}
    rows = [
        (index[link.tail], index[link.head], numbers.setdefault((link.bandwidth, link.latency), len(numbers)))
        for link in links
    ]
    tails, heads, kinds = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
    return LinkColumns(tails, heads, kinds, tuple(numbers))


def checked_columns(columns: LinkColumns, nodes: Sequence[str]) -> LinkColumns:
    """Validate columns as `merged_links` does links, refuse parallel links, and number kinds by their first links."""
    rates: dict[tuple[Fraction, Fraction], int] = {}
    places = []
    for number, row in enumerate(as_list(columns.rates, "the rates")):
        if not isinstance(row, tuple) or len(row) != 2:
            raise TopologyError(f"the rates of kind {number} are {shown(row)}; expected a tuple (bandwidth, latency)")
        where = f"links of kind {number}"
        rate = as_bandwidth(row[0], where), as_latency(row[1], where)
        places.append(rates.setdefault(rate, len(rates)))
    # Columns in range, of one length.
    limits = {"tails": len(nodes), "heads": len(nodes), "kinds": len(places)}
    checked = [_column(column, name, limit) for column, (name, limit) in zip(columns[:3], limits.items(), strict=True)]
    tails, heads, kinds = checked
    if not len(tails) == len(heads) == len(kinds):
        raise TopologyError(
            f"there are {len(tails)} tails, {len(heads)} heads and {len(kinds)} kinds; expected one each"
        )
    # No self-loops, no two links with the same ends.
    keys = tails * len(nodes) + heads
    problems = {"is a self-loop; remove it, data never travels from a node to itself": keys[tails == heads]}
    keys.sort()
    problems["is listed twice; add up the bandwidths of parallel links"] = keys[1:][keys[1:] == keys[:-1]]
    for problem, offenders in problems.items():
        if len(offenders):
            tail, head = divmod(int(offenders[0]), len(nodes))
            raise TopologyError(f"link ({nodes[tail]!r}, {nodes[head]!r}) {problem}")
    return LinkColumns(tails, heads, *_numbered_by_use(kinds, places, tuple(rates)))


def _numbered_by_use(
    kinds: IntArray, places: list[int], rates: tuple[tuple[Fraction, Fraction], ...]
) -> tuple[IntArray, tuple[tuple[Fraction, Fraction], ...]]:
    """Number kinds by their first links; `places` has the place of each in `rates`."""
    if places != list(range(len(rates))):
        kinds = np.array(places, dtype=np.int64)[kinds]
    first = np.full(len(rates), len(kinds))
    first[kinds[::-1]] = np.arange(len(kinds) - 1, -1, -1)
    used = [kind for kind in np.argsort(first).tolist() if first[kind] < len(kinds)]
    if used != list(range(len(rates))):
        first[used] = np.arange(len(used))
        kinds = first[kinds]
    return kinds, tuple(rates[kind] for kind in used)


def _column(values: object, name: str, size: int) -> IntArray:
    column = as_integers(values, f"the {name}", "a whole number for each link")
    if column.ndim != 1:
        raise TopologyError(f"the {name} have the shape {column.shape}; expected one number for each link")
    if len(column) and not 0 <= column.min() <= column.max() < size:
        outside = column[(column < 0) | (column >= size)][0]
        raise TopologyError(f"the {name} hold {outside}; expected numbers from 0 to {size - 1}")
    return column.copy() if column is values else column


def link_arrays(columns: LinkColumns) -> LinkArrays:
    """Scale bandwidths to int64 in an exact common unit; `CapacityOverflowError` if there is none."""
    tails, heads, kinds, rates = columns
    scale = lcm(*(bandwidth.denominator for bandwidth, _ in rates))
    scaled = [int(bandwidth * scale) for bandwidth, _ in rates]
    common = gcd(*scaled) or 1
    counts = np.bincount(kinds, minlength=len(rates)).tolist()
    if sum(count * value for count, value in zip(counts, scaled, strict=True)) // common > INT64_MAX:
        raise CapacityOverflowError(
            "the bandwidths share no unit that fits int64; round them to fewer digits before planning"
        )
    capacities = np.array([value // common for value in scaled], dtype=np.int64)
    return LinkArrays(tails, heads, capacities[kinds], Fraction(common, scale))


class LinkLookup:
    """Links by their ends: `tails` and `heads` between `size` nodes, int64 (links,)."""

    def __init__(self, tails: IntArray, heads: IntArray, size: int) -> None:
        self._ends, self._size = (tails, heads), size

    @cached_property
    def _sorted(self) -> tuple[IntArray, IntArray]:
        """Both ends of each link as one number, sorted, and the places of the links."""
        keys = self._ends[0] * self._size + self._ends[1]
        order = np.argsort(keys)
        return keys[order], order

    @cached_property
    def _around(self) -> list[tuple[IntArray, IntArray]]:
        """Places of links by the node that they leave, and by that which they enter; where each node's begin."""
        orders = [np.argsort(ends, kind="stable") for ends in self._ends]
        bounds = np.arange(self._size + 1)
        return [(order, np.searchsorted(ends[order], bounds)) for order, ends in zip(orders, self._ends, strict=True)]

    def place(self, tail: int, head: int) -> int | None:
        """Return the place of the link between two nodes; None if there is none."""
        keys, order = self._sorted
        position = int(keys.searchsorted(tail * self._size + head))
        return int(order[position]) if position < len(keys) and keys[position] == tail * self._size + head else None

    def places(self, tails: IntArray, heads: IntArray) -> IntArray:
        """Return the places of the links between pairs of nodes; -1 where there is none."""
        inside = (tails >= 0) & (tails < self._size) & (heads >= 0) & (heads < self._size)
        nowhere = self._size * self._size  # greater than any link's number
        ends = np.where(inside, tails * self._size + heads, nowhere)
        if len(ends) >= LONG:
            return places_of(self._ends[0] * self._size + self._ends[1], ends)
        keys, order = self._sorted
        positions = np.searchsorted(keys, ends)
        return np.append(order, -1)[np.where(np.append(keys, -1)[positions] == ends, positions, -1)]

    def at(self, node: int, *, entering: bool) -> list[int]:
        """Return the places of the links that leave, or enter, a node, in order."""
        order, starts = self._around[entering]
        places: list[int] = order[starts[node] : starts[node + 1]].tolist()
        return places

    def crossing(self, nodes: IntArray, *, entering: bool) -> IntArray:
        """Return the places of the links that leave, or enter, a set of nodes, in order."""
        inside = np.zeros(self._size, dtype=np.bool_)
        inside[nodes] = True
        # Links are looked at from the smaller side: an allreduce of N ranks can have N cuts.
        small = bool(2 * np.count_nonzero(inside) <= len(inside))
        near = np.flatnonzero(inside == small)
        order, starts = self._around[entering == small]
        counts = starts[near + 1] - starts[near]
        places = order[np.repeat(starts[near] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        return np.sort(places[inside[self._ends[entering != small][places]] != small])


BLOCK = 2**16  # links whose text is made at a time


def sorted_rows(columns: LinkColumns, nodes: Sequence[str]) -> Iterator[str]:
    """Yield the JSON text of rows (tail, head, bandwidth, latency), sorted and joined by commas, in pieces."""
    quoted = list(map(json.JSONEncoder().encode, nodes))
    rates = [f'"{bandwidth}","{latency}"' for bandwidth, latency in columns.rates]
    place = np.empty(len(nodes), dtype=np.int64)
    place[sorted(range(len(nodes)), key=nodes.__getitem__)] = np.arange(len(nodes))
    order = np.argsort(place[columns.tails] * len(nodes) + place[columns.heads])
    for start in range(0, len(order), BLOCK):
        rows = zip(*(column[order[start : start + BLOCK]].tolist() for column in columns[:3]), strict=True)
        yield "," * (start > 0) + ",".join(
            [f"[{quoted[tail]},{quoted[head]},{rates[kind]}]" for tail, head, kind in rows]
        )


def rank_number(compute_nodes: Sequence[str], rank: object) -> int | None:
    """Return the number of a rank given by number or name; None if there is no such rank."""
    if isinstance(rank, str):
        return compute_nodes.index(rank) if rank in compute_nodes else None
    return int(rank) if is_whole(rank) and 0 <= rank < len(compute_nodes) else None


def as_root(compute_nodes: Sequence[str], root: object) -> int:
    """Return the number of the root rank, given by number or name, or raise `UnsupportedError`."""
    number = rank_number(compute_nodes, root)
    if number is None:
        expected = f"0..{len(compute_nodes) - 1} or a name such as {compute_nodes[0]!r}"
        raise UnsupportedError(f"root {shown(root)} is not a rank; expected {expected}")
    return number


def node_kind(node: str, default: str = "") -> str:
    """Return the kind of a node: the end of its name, after the last slash and without its number."""
    return _NUMBERING.sub("", node.rpartition("/")[2]) or default


def grouped_links(
    ranks: Sequence[str], switches: Sequence[str], links: Sequence[Link]
) -> dict[str, tuple[str, tuple[Link, ...]]]:
    """Return kinds and links of the classes of a network by their names; see `link_classes`."""
    kinds = {node: node_kind(node, "rank") for node in ranks} | {node: node_kind(node, "switch") for node in switches}
    order = {node: number for number, node in enumerate(kinds)}
    groups: dict[tuple[str, Fraction], list[Link]] = {}
    for link in links:
        ends = sorted((link.tail, link.head), key=order.__getitem__)
        groups.setdefault(("-".join(kinds[end] for end in ends), link.bandwidth), []).append(link)
    all_ends = [ends for ends, _ in groups]
    return {
        ends if all_ends.count(ends) == 1 else f"{ends}:{bandwidth}": (ends, tuple(members))
        for (ends, bandwidth), members in groups.items()
    }
