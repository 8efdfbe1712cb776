"""Wrong arguments for direct-connect graphs: one sentence of ours, never a bare error of Python's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, repeat
from typing import Any

import numpy as np
import pytest

from collopt.errors import ColloptError, TopologyError, UnsupportedError
from collopt.support.validation import as_integers
from collopt.topologies import (
    DirectGraph,
    Topology,
    automorphisms,
    bidirectional,
    build,
    cartesian_power,
    cartesian_product,
    circulant,
    complete,
    degree_expansion,
    isomorphism,
    line_graph,
    parallel,
    reverse_symmetry,
)
from collopt.topologies.direct_connect.arcs import offset_names
from collopt.topologies.symmetry.isomorphism import as_permutation

K3 = complete(3).graph
assert K3 is not None
RING = [(0, 1), (1, 2), (2, 0)]


class Rude:
    """A stranger that cannot be shown."""

    def __repr__(self) -> str:
        """Fail."""
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "call",
    [
        reverse_symmetry,
        automorphisms,
        bidirectional,
        cartesian_product,
        line_graph,
        lambda thing: cartesian_power(thing, 2),
        lambda thing: degree_expansion(thing, 2),
        lambda thing: parallel(thing, 2),
        lambda thing: isomorphism(thing, K3),
        lambda thing: isomorphism(K3, thing),
    ],
)
def test_what_is_no_graph_is_refused(call: Callable[[Any], object]) -> None:
    """By every function of graphs, in the same words."""
    for thing in (None, 3, "K(3)", [], {}, np.array([1, 2]), complete(3), Rude()):
        with pytest.raises(UnsupportedError, match=r"^the graph is .*; expected a DirectGraph"):
            call(thing)


CALLS: dict[str, tuple[Callable[[], object], type[ColloptError], str]] = {
    **{
        f"{value!r} nodes": (lambda value=value: DirectGraph(value, [0], [0], "x"), TopologyError, "num_nodes is ")  # type: ignore[misc]
        for value in (-1, 0, float("nan"), "abc", 2.5, True, None, 10**30)
    },
    "ends that are floats": (
        lambda: DirectGraph(2, np.array([0.0]), np.array([1]), "x"),
        TopologyError,
        r"the tails are array\(\[0\.\]\); expected a whole number for each arc",
    ),
    "ends beyond 64 bits": (
        lambda: DirectGraph(2, np.array([0]), np.array([2**64 - 1], dtype=np.uint64), "x"),
        TopologyError,
        "the heads are ",
    ),
    "ends that are no nodes": (
        lambda: DirectGraph(2, np.array([0, 1]), np.array([1, 2]), "pair"),
        TopologyError,
        r"pair has the arc \(1, 2\); expected node numbers from 0 to 1",
    ),
    "fewer heads than tails": (
        lambda: DirectGraph(2, np.array([0, 1]), np.array([1]), "pair"),
        TopologyError,
        r"pair has tails of shape \(2,\) and heads of shape \(1,\)",
    ),
    "arcs of different lengths": (
        lambda: DirectGraph.from_arcs(2, [(0, 1), (1,)], "x"),  # type: ignore[list-item]
        TopologyError,
        r"the arcs are \(\(0, 1\), \(1,\)\); expected pairs \(tail, head\) of whole numbers",
    ),
    "no arcs": (lambda: DirectGraph.from_arcs(2, None, "x"), TopologyError, "the arcs are None; expected a list"),  # type: ignore[arg-type]
    "arcs of booleans": (
        lambda: DirectGraph.from_arcs(2, [(True, 0), (0, 1)], "x"),
        TopologyError,
        r"the arcs are \(\(True, 0\), \(0, 1\)\); expected pairs",
    ),
    "arcs of triples": (lambda: DirectGraph.from_arcs(2, [(0, 1, 1)], "x"), TopologyError, "expected pairs"),  # type: ignore[list-item]
    "arcs without end": (
        lambda: DirectGraph.from_arcs(2, cycle([(0, 1), (1, 0)]), "x"),
        TopologyError,
        "the arcs are more than 1048576; expected a list of at most that many",
    ),
    **{
        f"a graph called {value!r}": (
            lambda value=value: DirectGraph.from_arcs(3, RING, value),  # type: ignore[misc]
            TopologyError,
            "the graph's name is .*; expected printable text",
        )
        for value in (None, float("nan"), "a\nb", b"x")
    },
    "network of None": (lambda: Topology.from_graph(None), TopologyError, "the graph is None; expected a DirectGraph"),  # type: ignore[arg-type]
    "another name": (lambda: K3.renamed(None), TopologyError, "the graph's name is None"),  # type: ignore[arg-type]
    "a rank too many": (
        lambda: Topology.from_graph(K3, names=list("abcd")),
        TopologyError,
        r"the names are \['a', 'b', 'c', 'd'\]; expected one for each of the 3 nodes of ",
    ),
    "ranks too few": (
        lambda: Topology.from_graph(K3, names=["a"]),
        TopologyError,
        r"the names are \['a'\]; expected one for each",
    ),
    "ranks of no name": (
        lambda: Topology.from_graph(K3, names=True),
        TopologyError,
        "the names are True; expected a list",
    ),  # type: ignore[arg-type]
    **{
        f"the mapping {mapping!r}": (
            lambda mapping=mapping: as_permutation(mapping, 3),  # type: ignore[misc]
            UnsupportedError,
            "the mapping is .*; expected each number from 0 to 2 once",
        )
        for mapping in (None, "abc", [0, 1], [0, 1, 2, 3], [0, 1, 1], [0.0, 1.0, 2.0], [False, True, 2], [[0, 1, 2]])
    },
    "a circulant of offsets without end": (
        lambda: circulant(10, repeat(1)),  # type: ignore[arg-type]
        TopologyError,
        r"^the offsets are more than \d+; expected a list",
    ),
    "a name of digits": (lambda: build(10**5000), TopologyError, "called an integer of more than 4300 digits"),  # type: ignore[arg-type]
    "arcs of which there are none": (
        lambda: DirectGraph.from_arcs(2, iter(()), "x"),
        TopologyError,
        r"the arcs are \(\); expected pairs",
    ),
    "offsets in an array without dimensions": (
        lambda: circulant(10, np.array(3)),  # type: ignore[arg-type]
        TopologyError,
        r"the offsets are array\(3\); expected a list",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_arguments_are_refused(case: str) -> None:
    """In one line that shows the value."""
    make, kind, message = CALLS[case]
    with pytest.raises(kind, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_whole_numbers_of_any_kind_make_a_graph() -> None:
    """Lists, and arrays of other integers, sorted and made int64."""
    graph = DirectGraph(np.int32(3), [2, 0, 1], np.array([0, 1, 2], dtype=np.uint8), "")  # type: ignore[arg-type]
    assert type(graph.num_nodes) is int
    assert graph.tails.dtype == graph.heads.dtype == np.int64
    assert list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)) == RING
    assert [link[:2] for link in Topology.from_graph(graph, names=["x", "y", "z"]).links] == [
        ("x", "y"),
        ("y", "z"),
        ("z", "x"),
    ]
    assert as_integers([np.int8(1), 2], "x", "y").tolist() == [1, 2]


def test_names_list_few_offsets_and_count_many() -> None:
    """So that a message with the name in it can still be read."""
    assert offset_names(range(1, 33)).endswith(", 31, 32}")
    assert offset_names(range(2, 513)) == "{2, 3, 4, ... 511 offsets}"
