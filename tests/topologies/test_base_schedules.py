"""The stored schedules of Diamond and the modified de Bruijn graphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from collopt.errors import UnsupportedError
from collopt.topologies import (
    DirectGraph,
    Topology,
    base_schedule_rows,
    diamond,
    modified_de_bruijn,
)
from collopt.topologies.direct_connect.optimal_broadcasts import base_schedule_names, base_transpose_names
from graph_symmetry import is_reverse_symmetric


class Stored(NamedTuple):
    """A family's graph or its transpose, and the steps that Table 9 prints for it."""

    graph: DirectGraph
    steps: int
    chunks: int
    loads: list[int]


def transpose(topology: Topology) -> DirectGraph:
    """The family's graph with all arcs reversed."""
    return topology.direct_graph().transpose()


FORWARD = [
    Stored(diamond().direct_graph(), 3, 2, [2, 2, 3]),
    Stored(modified_de_bruijn(2, 3).direct_graph(), 4, 2, [1, 2, 2, 2]),
    Stored(modified_de_bruijn(2, 4).direct_graph(), 5, 2, [1, 2, 3, 4, 5]),
    Stored(modified_de_bruijn(3, 2).direct_graph(), 3, 3, [2, 2, 4]),
    Stored(modified_de_bruijn(4, 2).direct_graph(), 3, 4, [2, 5, 8]),
]
BACKWARD = [
    Stored(transpose(diamond()), 3, 2, [2, 2, 3]),
    Stored(transpose(modified_de_bruijn(2, 4)), 5, 2, [2, 2, 3, 4, 4]),
    Stored(transpose(modified_de_bruijn(3, 2)), 3, 3, [2, 2, 4]),
    Stored(transpose(modified_de_bruijn(4, 2)), 3, 4, [2, 5, 8]),
]
STORED = FORWARD + BACKWARD


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.graph.name)
def test_graphs_are_those_of_the_families(stored: Stored) -> None:
    """Arc by arc, and by name."""
    ours, graph = base_schedule_rows(stored.graph.name).graph, stored.graph
    assert (ours.name, ours.num_nodes) == (graph.name, graph.num_nodes)
    assert np.array_equal(ours.tails, graph.tails)
    assert np.array_equal(ours.heads, graph.heads)


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.graph.name)
def test_every_node_receives_every_chunk_once_from_one_that_has_it(stored: Stored) -> None:
    """Over arcs of the graph, and not before the sender received it itself."""
    schedule = base_schedule_rows(stored.graph.name)
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


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.graph.name)
def test_all_links_carry_as_much_in_every_step(stored: Stored) -> None:
    """So the total is the bandwidth bound: (N - 1) P chunks into each node over d links."""
    schedule = base_schedule_rows(stored.graph.name)
    nodes = schedule.graph.num_nodes
    for step, load in enumerate(stored.loads, start=1):
        tails, heads = schedule.rows[schedule.rows[:, 4] == step, 2:4].T
        assert set(np.unique(tails * nodes + heads, return_counts=True)[1].tolist()) == {load}
    assert schedule.graph.degree * sum(stored.loads) == (nodes - 1) * stored.chunks


def test_the_names_are_those_of_the_graphs() -> None:
    """All five, and the transposes beside them; none of the rows can be written to."""
    assert list(base_schedule_names()) == [stored.graph.name for stored in FORWARD]
    assert list(base_transpose_names()) == [stored.graph.name for stored in BACKWARD]
    assert not any(base_schedule_rows(stored.graph.name).rows.flags.writeable for stored in STORED)


def test_exactly_the_graphs_that_no_renumbering_reverses_have_a_schedule_of_the_transpose() -> None:
    """For the others, their own schedule serves both ways."""
    needed = [stored.graph.transpose().name for stored in FORWARD if not is_reverse_symmetric(stored.graph)]
    assert list(base_transpose_names()) == needed


@pytest.mark.parametrize("name", ["Kautz(2, 1)", "diamond", "DBJMod(2, 3)^T", "Diamond^T^T", "", None, ["Diamond"]])
def test_other_names_are_refused(name: object) -> None:
    """With those that there are."""
    with pytest.raises(UnsupportedError, match=r"there is no stored schedule of .*; expected one of Diamond, DBJMod"):
        base_schedule_rows(name)  # type: ignore[arg-type]
