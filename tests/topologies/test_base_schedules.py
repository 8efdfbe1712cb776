"""The stored schedules of Diamond and the modified de Bruijn graphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from collopt.errors import UnsupportedError
from collopt.topologies import (
    DirectGraph,
    Topology,
    base_schedule_names,
    base_schedule_rows,
    diamond,
    modified_de_bruijn,
)


class Stored(NamedTuple):
    """A family's graph, and the steps that Table 9 prints for it."""

    topology: Topology
    steps: int
    chunks: int
    loads: list[int]


STORED = [
    Stored(diamond(), 3, 2, [2, 2, 3]),
    Stored(modified_de_bruijn(2, 3), 4, 2, [1, 2, 2, 2]),
    Stored(modified_de_bruijn(2, 4), 5, 2, [1, 2, 3, 4, 5]),
    Stored(modified_de_bruijn(3, 2), 3, 3, [2, 2, 4]),
    Stored(modified_de_bruijn(4, 2), 3, 4, [2, 5, 8]),
]


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.topology.name)
def test_graphs_are_those_of_the_families(stored: Stored) -> None:
    """Arc by arc, and by name."""
    ours, graph = base_schedule_rows(stored.topology.name).graph, DirectGraph.of(stored.topology)
    assert (ours.name, ours.num_nodes) == (graph.name, graph.num_nodes)
    assert np.array_equal(ours.tails, graph.tails)
    assert np.array_equal(ours.heads, graph.heads)


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.topology.name)
def test_every_node_receives_every_chunk_once_from_one_that_has_it(stored: Stored) -> None:
    """Over arcs of the graph, and not before the sender received it itself."""
    schedule = base_schedule_rows(stored.topology.name)
    graph = schedule.graph
    assert (schedule.num_steps, schedule.chunks) == (stored.steps, stored.chunks)
    assert schedule.rows.shape == (graph.num_nodes * (graph.num_nodes - 1) * stored.chunks, 5)
    arcs = set(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    since = {(source, chunk, source): 0 for source in range(graph.num_nodes) for chunk in range(stored.chunks)}
    for source, chunk, tail, head, step in sorted(schedule.rows.tolist(), key=lambda row: row[-1]):
        assert (tail, head) in arcs
        assert since[source, chunk, tail] < step
        assert (source, chunk, head) not in since
        since[source, chunk, head] = step
    assert len(since) == graph.num_nodes**2 * stored.chunks
    assert max(since.values()) == stored.steps


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.topology.name)
def test_all_links_carry_as_much_in_every_step(stored: Stored) -> None:
    """So the total is the bandwidth bound: (N - 1) P chunks into each node over d links."""
    schedule = base_schedule_rows(stored.topology.name)
    nodes = schedule.graph.num_nodes
    for step, load in enumerate(stored.loads, start=1):
        tails, heads = schedule.rows[schedule.rows[:, 4] == step, 2:4].T
        assert set(np.unique(tails * nodes + heads, return_counts=True)[1].tolist()) == {load}
    assert schedule.graph.degree * sum(stored.loads) == (nodes - 1) * stored.chunks


def test_the_names_are_those_of_the_graphs() -> None:
    """All five, and the rows cannot be written to."""
    assert list(base_schedule_names()) == [stored.topology.name for stored in STORED]
    assert not any(base_schedule_rows(name).rows.flags.writeable for name in base_schedule_names())


@pytest.mark.parametrize("name", ["Kautz(2, 1)", "diamond", "", None, ["Diamond"]])
def test_other_names_are_refused(name: object) -> None:
    """With those that there are."""
    with pytest.raises(UnsupportedError, match=r"there is no stored schedule of .*; expected one of Diamond, DBJMod"):
        base_schedule_rows(name)  # type: ignore[arg-type]
