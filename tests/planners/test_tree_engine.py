"""The fast way, the general way behind it, and what a plan says of both."""

from __future__ import annotations

import pytest

import collopt
from collopt.errors import SolverError
from collopt.planners import tree_engine
from collopt.planners.trace import on_stage
from collopt.topologies import Topology, dgx_a100, dragonfly, mi250, ring

STAGES = ["bottleneck", "tight sets", "switch removal", "tree packing", "tree lowering", "verification"]


@pytest.mark.parametrize("topology", [dgx_a100(boxes=2), mi250(boxes=2), dragonfly(2, 2, 1)], ids=lambda t: t.name)
@pytest.mark.parametrize("broken", ["trim_to_tight_sets", "remove_switches", "pack_forest"])
def test_the_general_way_takes_over(topology: Topology, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in the fast way, the plan is as good, and says why it was made the other way."""
    original = getattr(tree_engine, broken)
    calls = []

    def fail_once(*arguments: object) -> object:
        calls.append(broken)
        if len(calls) == 1:
            raise SolverError("on purpose")
        return original(*arguments)

    monkeypatch.setattr(tree_engine, broken, fail_once)
    plan = collopt.plan(topology, "allgather")
    assert plan.gap == 0
    assert plan.provenance["refused"] == "on purpose"
    assert "exact_edge_splitting_s" in plan.provenance


def test_provenance_has_the_time_of_every_stage() -> None:
    """And how many sets were tight; nothing was refused."""
    plan = collopt.plan(mi250(boxes=2), "allgather")
    assert all(plan.provenance[f"{stage.replace(' ', '_')}_s"] >= 0 for stage in STAGES)
    assert plan.provenance["tight_sets"] == 16
    assert "refused" not in plan.provenance


def test_stages_are_announced_as_they_start() -> None:
    """What a progress display shows; outside the context nobody is told."""
    heard: list[str] = []
    with on_stage(heard.append):
        collopt.plan(ring(3), "allgather")
    assert heard == STAGES
    collopt.plan(ring(3), "allgather")
    assert heard == STAGES


def test_trees_of_the_reference_clusters_are_low() -> None:
    """No throughput is given up for it: MI250 at k = 83, and stars across a thousand A100."""
    small = collopt.plan(mi250(boxes=2), "allgather")
    assert small.gap == 0
    assert small.schedule.trees_per_root == 83
    assert small.heights.highest <= 10
    assert small.heights.mean <= 7
    large = collopt.plan(dgx_a100(boxes=128), "allgather")
    assert large.gap == 0
    assert large.heights.highest <= 4
