"""Arguments of other types than they should be: refused in one sentence, never by an error of Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collopt.errors import ColloptError, TopologyError
from collopt.topologies import Link, Topology, build, read_topology, ring, write_topology

THINGS = [None, 3.5, b"x", [], {}, [[1]], object(), np.array([1, 2])]
RING = ring(3)
LINKS = [("a", "b", 1), ("b", "a", 1)]


@pytest.mark.parametrize(
    "call",
    [
        lambda thing: RING.link(thing, "gpu1"),
        lambda thing: RING.link("gpu0", thing),
        RING.out_links,
        RING.in_links,
        RING.egress,
        RING.ingress,
        lambda thing: RING.restrict([0, thing]),
        RING.without_node,
        lambda thing: RING.without_link(thing, "gpu1"),
        lambda thing: RING.without_link("gpu0", "gpu1", bidirectional=thing),
        lambda thing: RING.derate("gpu0", thing, "0.5"),
        lambda thing: RING.derate("gpu0", "gpu1", "0.5", bidirectional=thing),
        lambda thing: Topology.from_links(thing, compute="a"),
        lambda thing: Topology.from_links([thing], compute="ab"),
        lambda thing: Topology.from_links(LINKS, compute=thing),
        lambda thing: Topology.from_links(LINKS, compute=["a", "b", thing]),
        lambda thing: Topology.from_links(LINKS, compute="ab", bidirectional=thing),
        lambda thing: Topology.from_links(LINKS, compute="ab", switches=[thing]),
        lambda thing: Topology.from_links(LINKS, compute="ab", multicast=[thing]),
        lambda thing: Topology.from_links(LINKS, compute="ab", name=thing),
        lambda thing: Topology(thing, (), (Link("a", "b", 1),)),
        lambda thing: Topology(("a", "b"), (), (thing,)),
        build,
        lambda thing: build("ring", n=thing),
        lambda thing: build("ring", n=4, bidirectional=thing),
        lambda thing: write_topology(thing, "file.json"),
    ],
)
def test_what_has_another_type_is_refused(
    call: Callable[[Any], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no file is written."""
    monkeypatch.chdir(tmp_path)
    for thing in THINGS:
        with pytest.raises(TopologyError):
            call(thing)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["switches", "multicast", "aggregation"])
def test_lists_of_nodes_are_lists(option: str) -> None:
    """What cannot be gone through is named."""
    for thing in (None, 3.5, True, b"x"):
        with pytest.raises(TopologyError, match="expected a list"):
            Topology.from_links(LINKS, compute="ab", **{option: thing})
        with pytest.raises(TopologyError, match=r"ranks are .*; expected a list"):
            RING.restrict(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [None, 3, [], "a\0b"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    """For reading and for writing."""
    for call in (read_topology, lambda path: write_topology(RING, path)):
        with pytest.raises(ColloptError, match="path"):
            call(path)


def test_paths_may_be_bytes(tmp_path: Path) -> None:
    """As os.listdir can give them."""
    path = bytes(tmp_path / "ring.json")
    write_topology(RING, path)  # type: ignore[arg-type]
    assert read_topology(path) == RING  # type: ignore[arg-type]
