"""`Demands`: any items of data, the ranks that have each of them, and the ranks that need it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np

from ..errors import BoundError, FileFormatError, TopologyError, UnsupportedError
from ..support.arrays import IntArray
from ..support.files import check_header, name_of, read_json, write_whole
from ..support.quantities import SUFFIXES, as_amount, as_bytes
from ..support.validation import as_list, as_name, as_whole, hint, shown
from ..topologies import Topology
from .collective import DEMANDS, MAX_UNITS, Collective

DEMANDS_FORMAT = "collopt-demands"
DEMANDS_VERSION = 1
FIELDS = ("name", "size", "sources", "destinations", "layer")
MAX_ITEMS = 2**20


@dataclass(frozen=True)
class Item:
    """Data that some ranks have and others need.

    Attributes
    ----------
    name : str
        Such as that of a tensor.
    size : Fraction
        In one unit for all items, such as bytes, or a share of the whole; given as a number, or text such as ``"64M"``.
    sources : tuple of str
        Names of the ranks that have it; a destination may receive it from any of them.
    destinations : tuple of str
        Names of the ranks that need it; those that have it already are left out.
    layer : int
        Place in the order of need, from 0, for plans with ``order="layers"``.
    """

    name: str
    size: Any
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    layer: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise UnsupportedError(f"the name of an item is {shown(self.name)}; expected printable text")
        object.__setattr__(self, "size", _as_size(self.size, self.name))
        for field in ("sources", "destinations"):
            object.__setattr__(self, field, _as_ranks(getattr(self, field), f"{field} of item {self.name!r}"))
        as_whole(self.layer, f"the layer of item {self.name!r}", low=0)
        if not self.sources:
            raise UnsupportedError(f"item {self.name!r} has no source; name the ranks that have it")
        having = set(self.sources)
        needs = tuple(rank for rank in self.destinations if rank not in having)
        object.__setattr__(self, "destinations", needs)


class Group(NamedTuple):
    """Items with the same sources, destinations and layer, which are planned as one."""

    weight: int  # units of all of its items
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    layer: int
    items: tuple[int, ...]  # places of its items in `Demands.items`, in the order of their data


class Ends(NamedTuple):
    """Numbers of the ranks that have the items of a group, and of those that need them."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


@dataclass(frozen=True, init=False, repr=False)
class Demands(Collective):
    """Items of data for ranks that need them, which `collopt.bound`, `plan` and others take as a collective.

    Rates count the bytes of all items that some rank needs, each of them once.  Items are copied on their way, and
    never reduced.

    Parameters
    ----------
    items : iterable of Item
        Or of tuples ``(name, size, sources, destinations)``.  Names are different.

    Examples
    --------
    Two halves of a tensor, each on one rank, for two others:

    >>> demands = Demands([("top", "1/2", ["a"], ["c", "d"]), ("bottom", "1/2", ["b"], ["c", "d"])])
    >>> demands
    <Demands: 2 items, 2 sources, 2 destinations>
    >>> demands.items[0].size, demands.total_weight
    (Fraction(1, 2), 2)
    """

    items: tuple[Item, ...] = ()

    def __init__(self, items: Iterable[Item | Sequence[Any]]) -> None:
        for name in ("name", "pattern", "phases", "input", "output", "takes_traffic", "traffic"):
            object.__setattr__(self, name, getattr(DEMANDS, name))
        object.__setattr__(self, "items", tuple(map(_as_item, _listed(items, "the items"))))
        names = sorted(item.name for item in self.items)
        if twice := next((name for name, after in pairwise(names) if name == after), ""):
            raise UnsupportedError(f"item {twice!r} is listed twice; give every item a name of its own")
        if not any(item.destinations for item in self.items):
            raise UnsupportedError("no rank needs anything that it does not have; expected an item with a destination")
        if self.total_weight > MAX_UNITS:
            raise UnsupportedError(
                "the sizes of all items count more than 2^53 of their common unit; round them to fewer digits"
            )

    def bus_factor(self, num_ranks: int, root: int | None = None) -> Fraction:  # noqa: ARG002
        """Return 1: bus bandwidth is that of the items."""
        return Fraction(1)

    @cached_property
    def _moved(self) -> tuple[Item, ...]:
        """Items that some rank needs."""
        return tuple(item for item in self.items if item.destinations)

    @cached_property
    def unit(self) -> Fraction:
        """Largest amount that divides the sizes of all items that some rank needs."""
        sizes = [item.size for item in self._moved]
        common = lcm(*(size.denominator for size in sizes))
        return Fraction(gcd(*(int(size * common) for size in sizes)), common)

    @property
    def total_weight(self) -> int:
        """Units of all items that some rank needs."""
        return int(sum(item.size for item in self._moved) / self.unit)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Items joined by their sources, destinations and layer, the first layer first."""
        joined: dict[tuple[tuple[str, ...], tuple[str, ...], int], list[int]] = {}
        for place in sorted(range(len(self.items)), key=lambda place: self.items[place].layer):
            if (item := self.items[place]).destinations:
                joined.setdefault((item.sources, item.destinations, item.layer), []).append(place)
        return tuple(
            Group(int(sum(self.items[place].size for place in places) / self.unit), *ends, tuple(places))
            for ends, places in joined.items()
        )

    def ends(self, topology: Topology) -> tuple[Ends, ...]:
        """Number the ranks of all groups on a topology.

        Raises `UnsupportedError` for a rank of any item that the topology does not have; `BoundError` for a destination
        that no source can reach.
        """
        numbers = {rank: number for number, rank in enumerate(topology.compute_nodes)}
        for item in self.items:
            if unknown := [name for name in (*item.sources, *item.destinations) if name not in numbers]:
                raise UnsupportedError(
                    f"item {item.name!r} names {unknown[0]!r}, which is not a rank of {topology}"
                    f"{hint(unknown[0], numbers)}; expected names such as {topology.compute_nodes[0]!r}"
                )
        ends = tuple(
            Ends(*(tuple(sorted(numbers[name] for name in names)) for names in group[1:3])) for group in self.groups
        )
        self._check_reach(topology, ends)
        return ends

    def among(self, ranks: Iterable[str]) -> Demands:
        """Return what is left to move where only some ranks are there; `BoundError` if an item lost all its sources."""
        left, items = set(ranks), []
        for item in self.items:
            sources, destinations = (
                tuple(rank for rank in side if rank in left) for side in (item.sources, item.destinations)
            )
            if destinations and not sources:
                raise BoundError(f"item {item.name!r} has no source left; expected one of {', '.join(item.sources)}")
            if destinations:
                items.append(replace(item, sources=sources, destinations=destinations))
        if not items:
            raise BoundError("no destination of any item is left")
        return Demands(items)

    def _check_reach(self, topology: Topology, ends: Sequence[Ends]) -> None:
        """Raise `BoundError` if no source of an item reaches one of its destinations."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order

        tails, heads, _, _ = topology.arrays
        graph = csr_array((np.ones(len(tails)), (tails, heads)), shape=(len(topology.nodes),) * 2)
        reached: dict[int, IntArray] = {}
        for group, (sources, destinations) in zip(self.groups, ends, strict=True):
            for source in sources:
                if source not in reached:
                    reached[source] = breadth_first_order(graph, source, return_predecessors=False)
            lost = set(destinations).difference(*(reached[source].tolist() for source in sources))
            if lost:
                item, rank = self.items[group.items[0]], topology.compute_nodes[min(lost)]
                raise BoundError(f"no source of item {item.name!r} reaches {rank!r} on {topology}; add links")

    def to_json(self) -> dict[str, Any]:
        """Return the document of these demands, as `save` writes it."""
        return {"format": DEMANDS_FORMAT, "version": DEMANDS_VERSION, "items": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        """Describe the items by texts, lists and integers."""
        return [
            {
                "name": item.name,
                "size": str(item.size),
                "sources": list(item.sources),
                "destinations": list(item.destinations),
                **({"layer": item.layer} if item.layer else {}),
            }
            for item in self.items
        ]

    @classmethod
    def from_json(cls, data: object, where: str = "the demands") -> Demands:
        """Read a document of `to_json`; `where` names it in errors, which are `FileFormatError`."""
        check_header(data, DEMANDS_FORMAT, DEMANDS_VERSION, where)
        assert isinstance(data, Mapping)
        if unknown := sorted(set(data) - {"format", "version", "items"}):
            raise FileFormatError(f"{where} has the field {shown(unknown[0])}; expected format, version and items")
        return cls.from_rows(data.get("items"), where)

    @classmethod
    def from_rows(cls, rows: object, where: str) -> Demands:
        """Read items as `rows` describes them; errors as of `from_json`."""
        if not isinstance(rows, list):
            raise FileFormatError(f"{where}: field items is {shown(rows)}; expected a list")
        for row in rows:
            if not isinstance(row, Mapping) or not set(FIELDS[:4]) <= set(row) <= set(FIELDS):
                raise FileFormatError(f"{where}: an item is {shown(row)}; expected an object with {', '.join(FIELDS)}")
        try:
            return cls(Item(**row) for row in rows)
        except UnsupportedError as error:
            raise FileFormatError(f"{where}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the demands as JSON; `load` reads them back."""
        items = ",\n".join(json.dumps(row, ensure_ascii=False) for row in self.rows())
        header = f'"format": "{DEMANDS_FORMAT}",\n"version": {DEMANDS_VERSION}'
        write_whole(path, f'{{\n{header},\n"items": [\n{items}\n]\n}}\n')

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Demands:
        """Read demands from a JSON file; `FileFormatError` for anything else."""
        return cls.from_json(read_json(path, DEMANDS_FORMAT, DEMANDS_VERSION), name_of(path))

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Copy and pickle by construction."""
        return type(self), (self.items,)

    def __hash__(self) -> int:
        """Hash the items."""
        return hash(self.items)

    def __repr__(self) -> str:
        """Count items, sources and destinations."""
        sources, destinations = ({rank for item in self.items for rank in getattr(item, side)} for side in FIELDS[2:4])
        return f"<Demands: {len(self.items)} items, {len(sources)} sources, {len(destinations)} destinations>"


def _listed(values: object, what: str, high: int = MAX_ITEMS) -> tuple[Any, ...]:
    """Read a collection; `UnsupportedError` for text, or anything without entries."""
    try:
        if isinstance(values, (str, Mapping)):
            raise TopologyError(f"{what} are {shown(values)}; expected a list")
        return as_list(values, what, high=high)
    except TopologyError as error:
        raise UnsupportedError(str(error)) from None


def _as_item(value: object) -> Item:
    if isinstance(value, Item):
        return value
    fields = _listed(value, "the fields of an item", len(FIELDS))
    if not 4 <= len(fields) <= len(FIELDS):
        raise UnsupportedError(f"an item is {shown(value)}; expected an Item, or its {', '.join(FIELDS)}")
    return Item(*fields)


def _as_size(value: object, name: str) -> Fraction:
    """Read a size exactly: a number, or bytes with a suffix."""
    try:
        if isinstance(value, str) and value.strip().upper().rstrip("IB")[-1:] in SUFFIXES[1:]:
            size = Fraction(as_bytes(value))
        else:
            size = as_amount(value)
    except (TopologyError, UnsupportedError):
        size = Fraction(0)
    if size <= 0:
        raise UnsupportedError(
            f"the size of item {name!r} is {shown(value)}; expected a positive number, or bytes such as '64M'"
        )
    return size


def _as_ranks(values: object, what: str) -> tuple[str, ...]:
    """Read names of ranks, sorted; each may occur once."""
    try:
        names = sorted(map(as_name, _listed(values, f"the {what}")))
    except TopologyError as error:
        raise UnsupportedError(f"the {what}: {error}") from None
    if len(set(names)) < len(names):
        twice = next(name for name, after in pairwise(names) if name == after)
        raise UnsupportedError(f"the {what} list rank {twice!r} twice; name every rank once")
    return tuple(names)
