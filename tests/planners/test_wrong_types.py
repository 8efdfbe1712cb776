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
from collopt.planners import bfb_cost, bfb_schedule, lp_bound, plan_bfb, register_planner
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
    "bound, no topology": (lambda: collopt.bound(None, "allgather"), UnsupportedError, "topology is None"),
    "bound, no root": (lambda: collopt.bound(RING, "broadcast", root=[0]), UnsupportedError, r"root \[0\]"),
    "bound, no weights": (lambda: collopt.bound(RING, "allgather", weights=3), UnsupportedError, "weights is 3"),
    "bound_trees, no collective": (lambda: bound_trees(RING, "gossip"), UnsupportedError, "'gossip'"),
    "plan_trees, no topology": (lambda: plan_trees(3, "allreduce"), UnsupportedError, "topology is 3"),
    "plan, no count": (
        lambda: collopt.plan(RING, "allgather", trees_per_root="2"),
        UnsupportedError,
        "trees_per_root is '2'",
    ),
    "plan, a keyword misspelled": (
        lambda: collopt.plan(RING, "allgather", planer="ring"),
        UnsupportedError,
        "'planer' .did you mean planner",
    ),
    "plan_bfb, an array": (lambda: plan_bfb(RING, np.array([1, 2])), UnsupportedError, r"array\(\[1, 2\]\)"),
    "bfb_schedule, no network": (lambda: bfb_schedule(None), UnsupportedError, "network is None"),
    "bfb_cost, no graph": (lambda: bfb_cost([1]), UnsupportedError, r"is \[1\]"),
    "allreduce_bound, no topology": (lambda: allreduce_bound("ring"), UnsupportedError, "topology is 'ring'"),
    "compare, no collective": (lambda: collopt.compare(RING, "gossip"), UnsupportedError, "'gossip'"),
    "compare, no planner": (
        lambda: collopt.compare(RING, "allgather", planners=["rings"]),
        UnsupportedError,
        "'rings'; did you mean ring",
    ),
    "compare, an array": (
        lambda: collopt.compare(RING, "allgather", bounds=np.array(["strength"])),
        UnsupportedError,
        "bounds is array",
    ),
    "compare, one size": (lambda: collopt.compare(RING, "allgather", sizes="1M"), UnsupportedError, "sizes is '1M'"),
    "compare, nothing": (
        lambda: collopt.compare(RING, "allgather", planners=[], bounds=[]),
        UnsupportedError,
        "planner or a bound",
    ),
    "bound_sizes, one size": (lambda: collopt.bound_sizes(RING, "allgather", "1M"), ColloptError, "'1M'"),
    "bound, costs alone": (lambda: collopt.bound(RING, "allgather", costs="fused"), UnsupportedError, "give size"),
    "sensitivity, no step": (lambda: collopt.sensitivity(RING, "allgather", step=0), ColloptError, "step is 0"),
    "sensitivity, no function": (
        lambda: collopt.sensitivity(RING, "allgather", together=3),
        UnsupportedError,
        "together is 3",
    ),
    "lp_bound, no collective": (lambda: lp_bound(RING, "all_to_all"), UnsupportedError, "all_to_all"),
    "scan, no topology": (lambda: collopt.scan_trees_per_root(3, "allgather"), UnsupportedError, "topology is 3"),
    "scan, a number": (lambda: collopt.scan_trees_per_root(RING, "allgather", 3), ColloptError, "counts are 3"),
    "scan, texts": (lambda: collopt.scan_trees_per_root(RING, "allgather", ["1"]), UnsupportedError, "is '1'"),
    "scan, no counts": (lambda: collopt.scan_trees_per_root(RING, "allgather", []), UnsupportedError, "counts"),
    "scan, no size": (
        lambda: collopt.scan_trees_per_root(RING, "allgather", [1], size=None),
        UnsupportedError,
        "size None",
    ),
    "scan, an option of the network": (
        lambda: collopt.scan_trees_per_root("dgx-a100", "allgather", [1], boxes=2),
        UnsupportedError,
        r"boxes is an option of the network; write scan_trees_per_root\(collopt.topology\('dgx-a100', boxes=2\), ",
    ),
    "plan, an option of another network": (
        lambda: collopt.plan(RING, "allgather", boxes=2),
        UnsupportedError,
        "boxes is an option of networks by name or file",
    ),
    "topology, an option of a graph": (
        lambda: collopt.topology(RING.to_networkx(), bandwidth=25),
        UnsupportedError,
        "'bandwidth' of .* collopt.Topology.from_networkx",
    ),
    "topology, an option misspelled": (lambda: collopt.topology("ring", nodes=4), TopologyError, "did you mean n"),
    "register_planner, no name": (lambda: register_planner(None, "allgather"), UnsupportedError, "name is None"),
    "register_planner, nothing": (lambda: register_planner("mine", None), UnsupportedError, "collectives is None"),
    "estimate, no size": (lambda: made().estimate(None), UnsupportedError, "size None"),
    "estimate, no slices": (lambda: made().estimate("1M", "2"), UnsupportedError, "slices is '2'"),
    "verify, no topology": (lambda: made().verify(3), TopologyError, "topology is 3"),
    "export, a list": (lambda: made().export(["xml"], "x"), UnsupportedError, "no export format"),
    "export, no option": (lambda: made().to_msccl_xml("x", color=1), UnsupportedError, "'color'"),
    "save, no path": (lambda: made().save(3), UnsupportedError, "path is 3"),
    "save, an empty path": (lambda: made().save(""), UnsupportedError, "path is ''"),
    "load, no path": (lambda: collopt.load_plan(None), UnsupportedError, "path is None"),
    "a plan of something": (lambda: replace(made(), schedule="trees").verify(), CertificateError, "is 'trees'"),
    "loads of something": (lambda: verified_loads("trees", RING), CertificateError, "is 'trees'"),
    "in_network, no forest": (lambda: in_network("trees", RING), UnsupportedError, "forest is 'trees'"),
    "trees that are a number": (lambda: Forest.from_paths(3, 1, 3), UnsupportedError, "trees 3"),
    "trees that are numbers": (lambda: Forest.from_paths(3, 1, [1, 2]), UnsupportedError, "not of the form"),
    "a path beyond the ranks": (lambda: Forest.from_paths(2, 1, [(0, 1, [(0, 5)])]), UnsupportedError, "end at ranks"),
    "a word for a weight": (lambda: Forest.from_paths(2, 1, [(0, "one", [(0, 1)])]), UnsupportedError, "whole numbers"),
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
