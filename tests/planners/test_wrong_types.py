"""Things of the wrong type handed to public functions: one of our sentences, never a bare error of Python's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import collopt
from collopt.errors import CertificateError, ColloptError, TopologyError, UnsupportedError
from collopt.planners.direct_connect.bfb import bfb_cost, bfb_schedule, plan_bfb
from collopt.planners.trees.forestcoll import bound_trees, plan_trees
from collopt.planners.trees.strength import allreduce_bound
from collopt.schedules import Forest, in_network, verified_loads
from collopt.topologies import ring

RING = ring(3)


@cache
def made() -> collopt.Plan:
    """Some plan; made when a test needs it, since planning at import costs every process that collects the tests."""
    return collopt.plan(RING, "allgather")


CALLS: dict[str, tuple[Callable[[], object], type[ColloptError], str]] = {
    "bound, no topology": (lambda: collopt.bound(None, "allgather"), UnsupportedError, "the topology is None"),
    "bound, no root": (lambda: collopt.bound(RING, "broadcast", root=[0]), UnsupportedError, r"root \[0\]"),
    "bound, no weights": (lambda: collopt.bound(RING, "allgather", weights=3), UnsupportedError, "weights is 3"),
    "bound_trees, no topology": (lambda: bound_trees(None, "allgather"), UnsupportedError, "the topology is None"),
    "bound_trees, no collective": (lambda: bound_trees(RING, "gossip"), UnsupportedError, "the collective 'gossip'"),
    "plan_trees, no topology": (lambda: plan_trees(3, "allreduce"), UnsupportedError, "the topology is 3"),
    "plan_trees, no collective": (lambda: plan_trees(RING, None), UnsupportedError, "the collective None"),
    "plan_trees, no count": (
        lambda: plan_trees(RING, "allgather", trees_per_root="2"),
        UnsupportedError,
        "trees_per_root is '2'; expected a whole number",
    ),
    "plan_bfb, an array": (
        lambda: plan_bfb(RING, np.array([1, 2])),
        UnsupportedError,
        r"the collective array\(\[1, 2\]\); expected one of",
    ),
    "bfb_schedule, no network": (lambda: bfb_schedule(None), UnsupportedError, "the network is None"),
    "bfb_cost, no graph": (lambda: bfb_cost([1]), UnsupportedError, r"is \[1\]; expected"),
    "allreduce_bound, no topology": (lambda: allreduce_bound("ring"), UnsupportedError, "the topology is 'ring'"),
    "scan, no topology": (
        lambda: collopt.scan_trees_per_root(3, "allgather"),
        UnsupportedError,
        "the topology is 3",
    ),
    "scan, a number": (lambda: collopt.scan_trees_per_root(RING, "allgather", 3), UnsupportedError, "counts is 3"),
    "scan, a text": (lambda: collopt.scan_trees_per_root(RING, "allgather", "12"), UnsupportedError, "counts is '12'"),
    "scan, texts": (
        lambda: collopt.scan_trees_per_root(RING, "allgather", ["1"]),
        UnsupportedError,
        "trees_per_root is '1'; expected a whole number",
    ),
    "scan, no size": (
        lambda: collopt.scan_trees_per_root(RING, "allgather", [1], size=None),
        UnsupportedError,
        "size None is not understood",
    ),
    "scan, an option too many": (
        lambda: collopt.scan_trees_per_root(RING, "allgather", [1], trees_per_root=1),
        UnsupportedError,
        "there is no option 'trees_per_root' here; expected one of root, weights",
    ),
    "scan, an option of the network": (
        lambda: collopt.scan_trees_per_root("dgx-a100", "allgather", [1], boxes=2),
        UnsupportedError,
        r"boxes is an option of the network; write scan_trees_per_root\(collopt.topology\('dgx-a100', boxes=2\), ",
    ),
    "plan, an option of a file": (
        lambda: collopt.plan(Path("machine.xml"), "allgather", fabric="rail"),
        UnsupportedError,
        r"fabric is an option of the network; write plan\(collopt.topology\('machine.xml', fabric='rail'\), ",
    ),
    "plan, an option of another network": (
        lambda: collopt.plan(RING, "allgather", boxes=2),
        UnsupportedError,
        "boxes is an option of networks by name or file, not of <Topology 'ring-",
    ),
    "estimate, no size": (lambda: made().estimate(None), UnsupportedError, "size None is not understood"),
    "estimate, no slices": (lambda: made().estimate("1M", "2"), UnsupportedError, "slices is '2'"),
    "verify, no topology": (lambda: made().verify(3), TopologyError, "the topology is 3; expected the Topology"),
    "export, no format": (lambda: made().export(3, "x"), UnsupportedError, "no export format 3"),
    "export, a list": (lambda: made().export(["xml"], "x"), UnsupportedError, "no export format"),
    "save, no path": (lambda: made().save(3), UnsupportedError, "the path is 3; expected a file's name"),
    "save, none": (lambda: made().save(None), UnsupportedError, "the path is None; expected a file's name"),
    "load, no path": (lambda: collopt.load_plan(3), UnsupportedError, "the path is 3; expected a file's name"),
    "load, none": (lambda: collopt.load_plan(None), UnsupportedError, "the path is None; expected a file's name"),
    "a plan of something": (
        lambda: replace(made(), schedule="trees").verify(),
        CertificateError,
        "the plan's schedule is 'trees'; expected trees",
    ),
    "loads of something": (
        lambda: verified_loads("trees", RING),
        CertificateError,
        "the schedule is 'trees'; expected trees",
    ),
    "in_network, no forest": (lambda: in_network("trees", RING), UnsupportedError, "the forest is 'trees'"),
    "trees that are a number": (lambda: Forest.from_paths(3, 1, 3), UnsupportedError, "the trees 3 are not"),
    "trees that are numbers": (lambda: Forest.from_paths(3, 1, [1, 2]), UnsupportedError, "are not of the form"),
    "a path beyond the ranks": (
        lambda: Forest.from_paths(2, 1, [(0, 1, [(0, 5)])]),
        UnsupportedError,
        "expected whole numbers, and paths that end at ranks",
    ),
    "a weight that is a word": (
        lambda: Forest.from_paths(2, 1, [(0, "one", [(0, 1)])]),
        UnsupportedError,
        "expected whole numbers",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_types_are_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line that shows the value, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    make, kind, message = CALLS[case]
    with pytest.raises(kind, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
def test_things_are_shown_in_one_short_line(collective: str) -> None:
    """However many ranks there are."""
    made = collopt.plan(collopt.topologies.dgx_a100(boxes=8), collective)
    for thing in (made, made.bound, made.schedule, made.schedule.forests[0]):
        assert repr(thing).startswith(f"<{type(thing).__name__}")
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 150
