"""Single failures of a network and named ones, in cases of failures that are alike by symmetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray, components
from ...support.quantities import Exact
from ...support.validation import as_options, hint, shown
from ..network.failures import Failure, Fault, as_left
from ..network.links import node_kind
from ..network.topology import Topology, as_topology
from .refinement import ColoredNetwork, refined
from .translations import nested_turns, translations, two_copies

FAILURE_KINDS = ("link", "nic", "gpu", "switch")
MAX_FAILURES = 2**18  # of one kind
MAX_TIES = 64  # nodes told apart, one after the other, to find one map
MAX_WORK = 5 * 10**7  # links that all searches for maps may look at: half a minute
Value = TypeVar("Value")


class FailureCase(NamedTuple):
    """The `members` are failures of one `kind` that are alike; the first stands for all.

    Kinds are such as ``"nic"``, ``"link x 1/2"`` or ``"nic + nic"``, and ``"chosen"`` for what was named.
    """

    kind: str
    members: tuple[Failure, ...]

    @property
    def failure(self) -> Failure:
        """The failure that stands for all."""
        return self.members[0]


def failure_cases(
    topology: Topology,
    kinds: Iterable[str] = FAILURE_KINDS,
    *,
    derate: Iterable[Exact] = (),
    pairs: Iterable[str] = (),
    symmetries: Symmetries | None = None,
) -> tuple[FailureCase, ...]:
    """Divide failures of a network into cases of those that are alike.

    Parameters
    ----------
    topology : Topology
        The intact network.
    kinds : iterable of {"link", "nic", "gpu", "switch"}
        Which single failures.  A link fails in both directions.  NICs are the switches named so, or where there are
        none the narrowest links of ranks to switches; the others are ``"switch"``.
    derate : iterable of number
        Each link is also a case with this part of its bandwidth left.
    pairs : iterable of str
        Two kinds, such as ``"nic+nic"``, for all pairs of them; or a failure as `Failure.read` reads it.
    symmetries : Symmetries, optional
        Symmetries of the network; the search adds to them.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> [(str(case.failure), len(case.members)) for case in failure_cases(dgx_a100(boxes=2), ["nic", "gpu"])]
    [('box0/nic0', 16), ('box0/gpu0', 16)]
    """
    as_topology(topology, TopologyError)
    group = symmetries or Symmetries(topology)
    if not group.generators:
        group.find()
    cases: list[FailureCase] = []
    listed: set[Failure] = set()
    for kind, failures in _failures(
        topology, kinds, [as_left(factor) for factor in as_options(derate, "the factors of derate")], pairs
    ):
        fresh = [failure for failure in dict.fromkeys(failures) if failure not in listed]
        listed.update(fresh)
        cases += _cases(kind, fresh, group)
    return tuple(cases)


def _cases(kind: str, failures: Sequence[Failure], symmetries: Symmetries) -> Iterator[FailureCase]:
    by_width: dict[int, list[Failure]] = {}
    for failure in failures:
        by_width.setdefault(len(failure.faults), []).append(failure)
    for same_width in by_width.values():
        labels = symmetries.orbits(np.array([symmetries.row(failure) for failure in same_width]))
        members: dict[int, list[Failure]] = {}
        for failure, label in zip(same_width, labels.tolist(), strict=True):
            members.setdefault(label, []).append(failure)
        yield from (FailureCase(kind, tuple(case)) for case in members.values())


def _failures(
    topology: Topology, kinds: Iterable[str], derate: Sequence[Fraction], pairs: Iterable[str]
) -> Iterator[tuple[str, Iterable[Failure]]]:
    """Yield failures by their kind."""
    faults = _faults_by_kind(topology)
    for kind in as_options(kinds, "the kinds of failures"):
        if kind not in FAILURE_KINDS:
            expected = f"{hint(kind, FAILURE_KINDS)}; expected some of {', '.join(FAILURE_KINDS)}"
            raise TopologyError(f"there is no kind of failure {shown(kind)}{expected}")
        yield kind, (Failure((fault,)) for fault in faults[kind])
    for left in derate:
        yield f"link x {left}", (Failure((fault._replace(factor=left),)) for fault in faults["link"])
    named = []
    for pair in as_options(pairs, "the pairs of failures"):
        words = [word.strip() for word in pair.split("+")] if isinstance(pair, str) else []
        if len(words) != 2 or not set(words) <= set(FAILURE_KINDS):
            named.append(Failure.read(topology, pair))
            continue
        here, there = (faults[word] for word in words)
        if prod(map(len, (here, there))) > MAX_FAILURES:
            raise TopologyError(f"{topology} has too many pairs {shown(pair)}; name those that matter")
        both = combinations(here, 2) if here is there else product(here, there)
        yield " + ".join(words), (Failure.of(topology, faults_of_pair) for faults_of_pair in both)
    yield "chosen", named


def _faults_by_kind(topology: Topology) -> dict[str, list[Fault]]:
    """List the parts of a network that can fail."""
    nodes, ranks, columns = topology.nodes, topology.num_ranks, topology.columns
    ends = np.unique(np.sort([columns.tails, columns.heads], axis=0), axis=1)
    links = [Fault((nodes[tail], nodes[head])) for tail, head in ends.T.tolist()]
    is_nic = {node: node_kind(node, "switch").startswith("nic") for node in topology.switch_nodes}
    nics = [Fault((node,)) for node in topology.switch_nodes if is_nic[node]]
    if not nics:
        narrowest: dict[int, Fraction] = {}
        rates = [columns.rates[kind][0] for kind in columns.kinds.tolist()]
        ports = list(zip(columns.tails.tolist(), columns.heads.tolist(), rates, strict=True))
        ports = [port for port in ports if port[0] < ranks <= port[1]]
        for tail, _, rate in ports:
            narrowest[tail] = min(rate, narrowest.get(tail, rate))
        nics = [Fault((nodes[tail], nodes[head])) for tail, head, rate in ports if rate == narrowest[tail]]
    return {
        "link": links,
        "nic": nics,
        "gpu": [Fault((node,)) for node in topology.compute_nodes],
        "switch": [Fault((node,)) for node in topology.switch_nodes if not is_nic[node]],
    }


class Symmetries:
    """Symmetries of a network, and their action on failures.

    A part of a failure is one number: of its remaining share, and of both ends of its link, or its node twice.  A
    failure is a sorted row of parts.  Each of `generators` has the images of the nodes, int64 (nodes,); one that is no
    symmetry raises `TopologyError`.  Every symmetry has to fix the rank `fixed`, as the root of a broadcast.
    """

    def __init__(self, topology: Topology, generators: Sequence[IntArray] = (), fixed: int | None = None) -> None:
        self._topology, self._size = topology, len(topology.nodes)
        self._network = ColoredNetwork.of(topology)
        if fixed is not None:
            self._network.colors[fixed] = self._network.colors.max() + 1
        self.generators = list(generators)
        self._factors: dict[object, int] = {}
        self._work = 0
        for row, mapping in enumerate(self.generators):
            if not np.array_equal(np.sort(mapping), np.arange(self._size)) or not self._network.has_symmetry(mapping):
                raise TopologyError(f"symmetry {row} of the failures does not take {topology} to itself")

    def find(self) -> None:
        """Look for generators: turns of equal parts of a switched network, translations of a direct one."""
        ranks = self._topology.num_ranks
        if self._topology.switch_nodes:
            self.generators += [turn.mapping for turn in nested_turns(self._network, ranks)]
        else:
            self.generators += translations(self._network, ranks)

    def row(self, failure: Failure) -> tuple[int, ...]:
        """Number the parts of a failure."""
        index, size = self._topology.node_index, self._size
        rows = []
        for nodes, left in failure.faults:
            kind, ends = self._factors.setdefault(left, len(self._factors)), sorted(index[node] for node in nodes)
            rows.append((kind * size + ends[0]) * size + ends[-1])
        return tuple(sorted(rows))

    def orbits(self, rows: IntArray) -> IntArray:
        """Number orbits of failures, int64 (failures, parts), by failures that are alike; finds further generators."""
        # Failures that the known generators exchange.
        labels = np.arange(len(rows))
        for mapping in self.generators:
            labels = self._merged(rows, labels, mapping)
        # Cells: failures whose parts have nodes of the same colors; others are never alike.
        kinds, tails, heads = self._ends(rows)
        colors = self._colors
        ends = np.sort([colors[tails], colors[heads]], axis=0) + 1
        signatures = np.sort(
            (kinds * (self._size + 1) + ends[0]) * (self._size + 1) + ends[1] * (tails != heads), axis=1
        )
        cells = np.unique(signatures, axis=0, return_inverse=True)[1].ravel()
        # In each cell, search for a symmetry that takes a failure to a representative of another orbit.
        first: dict[int, list[int]] = {}
        for item, cell in enumerate(cells.tolist()):
            if self._work > MAX_WORK:
                break
            representatives = first.setdefault(cell, [])
            if any(labels[item] == labels[like] for like in representatives):
                continue
            for like in representatives:
                if (symmetry := self._mapping(rows[like], rows[item])) is not None:
                    self.generators.append(symmetry)
                    labels = self._merged(rows, labels, symmetry)
                    break
            else:
                representatives.append(item)
        return labels

    def known_image(self, failure: Failure, values: Mapping[tuple[int, ...], Value]) -> tuple[Value, IntArray] | None:
        """Find one of the known failures, by `row`, that is like this one, and a symmetry that takes it to this one."""
        images = [mapping.tolist() for mapping in self.generators]
        start = self.row(failure)
        before: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {}
        for row in (queue := [start]):
            if row in values:
                mapping = np.arange(self._size)
                last = row
                while last != start:
                    last, number = before[last]
                    mapping = mapping[self.generators[number]]
                inverse = np.argsort(mapping)
                assert self._network.has_symmetry(inverse), "products of symmetries are symmetries"
                return values[row], inverse
            for number, image in enumerate(images):
                moved = self._moved(row, image)
                if moved != start and moved not in before:
                    before[moved] = row, number
                    queue.append(moved)
        return None

    def _moved(self, row: tuple[int, ...], image: list[int]) -> tuple[int, ...]:
        size, moved = self._size, []
        for part in row:
            kind, ends = divmod(part, size * size)
            tail, head = sorted((image[ends // size], image[ends % size]))
            moved.append((kind * size + tail) * size + head)
        return tuple(sorted(moved))

    def _ends(self, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the number of the remaining share of each part, and its two nodes."""
        kinds, ends = np.divmod(rows, self._size**2)
        return kinds, *np.divmod(ends, self._size)

    def _images(self, rows: IntArray, mapping: IntArray) -> IntArray:
        kinds, tails, heads = self._ends(rows)
        ends = np.sort([mapping[tails], mapping[heads]], axis=0)
        return np.sort((kinds * self._size + ends[0]) * self._size + ends[1], axis=-1)

    def _merged(self, rows: IntArray, labels: IntArray, mapping: IntArray) -> IntArray:
        """Give failures and their images, where these are among them, the same label."""
        both = np.concatenate([rows, self._images(rows, mapping)])
        numbers = np.unique(both, axis=0, return_inverse=True)[1].ravel()
        place = np.full(len(both), -1)
        place[numbers[: len(rows)]] = np.arange(len(rows))
        images = place[numbers[len(rows) :]]
        there = images >= 0
        return components(len(rows), np.column_stack([labels[there], labels[images[there]]]))[labels]

    @cached_property
    def _colors(self) -> IntArray:
        return refined(self._network, self._network.colors)

    @cached_property
    def _both(self) -> ColoredNetwork:
        return two_copies(self._network, [])

    def _mapping(self, here: IntArray, there: IntArray) -> IntArray | None:
        """Search for a symmetry that takes one failure to another; nodes stay where they are if they can."""
        # In each copy of the network, its failure gets colors of its own.
        size = self._size
        colors = np.tile(self._colors, 2)
        top = colors.max() + 1
        for side, (kinds, tails, heads) in enumerate((self._ends(here), self._ends(there))):
            colors[[tails + side * size, heads + side * size]] = top + 2 * kinds + (tails != heads)
        # Refine, try the mapping that colors suggest, and tell one more node apart.
        for _ in range(MAX_TIES):
            self._work += len(self._both.tails)
            colors = refined(self._both, colors)
            ours, theirs = colors[:size], colors[size:]
            if (np.sort(ours) != np.sort(theirs)).any():
                return None
            mapping = np.arange(size)
            moving = np.flatnonzero(ours != theirs)
            mapping[moving[np.argsort(ours[moving], kind="stable")]] = moving[np.argsort(theirs[moving], kind="stable")]
            if (self._images(here, mapping) == there).all() and self._network.has_symmetry(mapping):
                return mapping
            tied = np.bincount(ours)[ours] > 1
            if not tied.any():
                return None
            moved = moving[tied[moving]]
            node = moved[0] if len(moved) else np.flatnonzero(tied)[0]
            colors[[node, size + mapping[node]]] = colors.max() + 1
        return None
