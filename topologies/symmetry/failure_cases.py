"""All single failures of a network and named ones, in cases of failures that are alike by symmetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import TopologyError
from ...support.quantities import Exact
from ...support.validation import as_options, hint, shown
from ..network.failures import Failure, Fault, as_left
from ..network.links import node_kind
from ..network.topology import Topology, as_topology

if TYPE_CHECKING:
    from .failure_orbits import Symmetries

FAILURE_KINDS = ("link", "nic", "gpu", "switch")
MAX_FAILURES = 2**18  # of one kind


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
    >>> [(str(case.failure), case.kind, len(case.members)) for case in failure_cases(dgx_a100(boxes=2), ["nic", "gpu"])]
    [('box0/nic0', 'nic', 16), ('box0/gpu0', 'gpu', 16)]
    """
    from .failure_orbits import Symmetries

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
