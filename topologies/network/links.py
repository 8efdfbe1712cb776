"""Directed links: records, validation, merging, arrays for the solvers; and lookup of ranks by number or name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError, TopologyError, UnsupportedError
from ...support.quantities import as_bandwidth, as_latency
from ...support.validation import as_list, as_name, is_whole, shown

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


def as_link(entry: object) -> Link:
    """Return ``(tail, head, bandwidth[, latency])`` as a `Link` whose entries are not validated yet."""
    if not isinstance(entry, tuple) or len(entry) not in (3, 4):
        raise TopologyError(f"link {shown(entry)} is not a tuple (tail, head, bandwidth[, latency])")
    return Link(*entry)


def merged_links(links: Iterable[Link], known: Mapping[str, str]) -> tuple[Link, ...]:
    """Validate links between known nodes, and merge parallel ones: sum of bandwidths, larger latency."""
    merged: dict[tuple[str, str], Link] = {}
    for entry in map(as_link, as_list(links, "the links")):
        tail, head = as_name(entry[0]), as_name(entry[1])
        where = f"link ({tail!r}, {head!r})"
        for node in (tail, head):
            if node not in known:
                raise TopologyError(f"{where} names the unknown node {node!r}; list it under compute or switches")
        if tail == head:
            raise TopologyError(f"{where} is a self-loop; remove it, data never travels from a node to itself")
        link = Link(tail, head, as_bandwidth(entry[2], where), as_latency(entry[3], where))
        if twin := merged.get((tail, head)):
            total = as_bandwidth(twin.bandwidth + link.bandwidth, where)
            link = Link(tail, head, total, max(twin.latency, link.latency))
        merged[tail, head] = link
    return tuple(merged.values())


def link_arrays(links: Sequence[Link], index: Mapping[str, int]) -> LinkArrays:
    """Scale bandwidths to int64 in an exact common unit; `CapacityOverflowError` if there is none."""
    scale = lcm(*(link.bandwidth.denominator for link in links)) if links else 1
    scaled = [int(link.bandwidth * scale) for link in links]
    common = gcd(*scaled) if scaled else 1
    if sum(scaled) // max(common, 1) > INT64_MAX:
        raise CapacityOverflowError(
            "the bandwidths share no unit that fits int64; round them to fewer digits before planning"
        )
    return LinkArrays(
        np.array([index[link.tail] for link in links], dtype=np.int64),
        np.array([index[link.head] for link in links], dtype=np.int64),
        np.array([value // common for value in scaled], dtype=np.int64),
        Fraction(common, scale),
    )


def links_by_node(nodes: Iterable[str], pairs: Iterable[tuple[str, Link]]) -> Mapping[str, tuple[Link, ...]]:
    """Group (node, link) pairs by node."""
    groups: dict[str, list[Link]] = {node: [] for node in nodes}
    for node, link in pairs:
        groups[node].append(link)
    return {node: tuple(links) for node, links in groups.items()}


def rank_number(compute_nodes: Sequence[str], rank: object) -> int | None:
    """Return the number of a rank given by number or name; None if there is no such rank."""
    if isinstance(rank, str):
        return compute_nodes.index(rank) if rank in compute_nodes else None
    return int(rank) if is_whole(rank) and 0 <= rank < len(compute_nodes) else None


def as_root(compute_nodes: Sequence[str], root: object) -> int:
    """Return the number of the root rank, given by number or name, or raise `UnsupportedError`."""
    number = rank_number(compute_nodes, root)
    if number is None:
        raise UnsupportedError(
            f"root {shown(root)} is not a rank; expected 0..{len(compute_nodes) - 1} or a compute node's name"
        )
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
    alike = [ends for ends, _ in groups]
    return {
        ends if alike.count(ends) == 1 else f"{ends}:{bandwidth}": (ends, tuple(found))
        for (ends, bandwidth), found in groups.items()
    }
