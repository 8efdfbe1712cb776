"""Scenes: what the viewer of pages is given, against the topology, the bound, the plan and its simulation."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import collopt
from collopt.planners import Plan
from collopt.report.pages.scene import scene
from collopt.report.tables import step_run
from collopt.topologies import Topology, dgx_a100, dgx_h100, kautz, ring, torus

PLANS = [
    (ring(4, bandwidth=25, latency=1), "allgather", "auto"),
    (ring(4, bandwidth=25), "reduce_scatter", "auto"),
    (dgx_a100(boxes=2), "allreduce", "double-binary-tree"),
    (dgx_h100(), "allreduce", "auto"),
    (torus(3, 3), "all_to_all", "auto"),
    (kautz(2, 1), "allreduce", "bfb"),
]


@pytest.mark.parametrize(("topology", "collective", "planner"), PLANS)
def test_moves_are_those_of_the_simulation(topology: Topology, collective: str, planner: str) -> None:
    """Every link is busy for as long, no two pieces are on it at once, and each belongs to a part that uses it."""
    plan = collopt.plan(topology, collective, planner=planner)
    drawn = scene(plan, ["64M"])
    (run,) = drawn["runs"]
    assert run["start"] == sorted(run["start"])
    whole = step_run(plan, "64M")
    assert run["done"] == pytest.approx(whole.microseconds, abs=1e-3)
    busy = defaultdict[int, float](float)
    ends = defaultdict[int, float](float)
    for link, start, length, count in zip(run["link"], run["start"], run["length"], run["count"], strict=True):
        assert start >= ends[link] - count - 2  # times are rounded
        ends[link] = start + length * count
        busy[link] += length * count * run["unit"]
    wanted = whole.link_busy["busy_us"].to_numpy()
    found = np.array([busy[link] for link in range(topology.num_links)])
    assert found == pytest.approx(wanted, rel=1e-2, abs=1e-2 * wanted.max())
    members = [set(links) for links in drawn["parts"]["links"]]
    assert {part for part in run["part"] if part >= 0} <= set(range(len(members)))
    assert all(link in members[part] for link, part in zip(run["link"], run["part"], strict=True) if part >= 0)
    assert any(part >= 0 for part in run["part"])


def test_parts_carry_their_share_of_the_data() -> None:
    """How long each tree keeps a link busy is its weight times the size over the bandwidth."""
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")
    drawn = scene(plan, ["64M"])
    (run,), forest = drawn["runs"], plan.trees.forests[0]
    busy = defaultdict[tuple[int, int], float](float)
    for link, part, length, count in zip(run["link"], run["part"], run["length"], run["count"], strict=True):
        busy[part, link] += length * count * run["unit"]
    whole = forest.trees_per_root * forest.total_weight
    for (part, _), time in busy.items():
        assert time == pytest.approx(int(forest.weights[part]) / whole * 2**26 / 25e3, rel=1e-3)
    assert {part for part, _ in busy} == set(range(forest.num_trees))


def test_scenes_hold_what_is_known() -> None:
    """A topology has nodes and links, a bound also a cut, a plan also loads, parts and runs; all for JSON."""
    network = dgx_a100(boxes=2)
    bare = scene(network)
    assert bare["nodes"]["name"] == list(network.nodes)
    assert bare["nodes"]["label"][:2] == ["gpu0", "gpu1"]
    assert bare["kinds"] == ["gpu-nvswitch", "gpu-nic", "nic-ib"]
    assert (sum(bare["nodes"]["inside"]), sum(bare["links"]["share"]), bare["counted"]) == (0, 0, "")
    limit = collopt.bound(network, "allgather")
    cut = scene(limit)
    crossing = limit.witness.link_weights(network, "allgather")
    for link, share in zip(network.links, cut["links"]["share"], strict=True):
        assert bool(share) == (link[:2] in crossing)
    assert sum(cut["links"]["share"]) == pytest.approx(1, abs=1e-5)
    assert cut["counted"] == "link out of the cut"
    assert (cut["links"]["use"], cut["parts"], cut["runs"]) == ([], None, [])
    drawn = scene(plan_of(network))
    assert drawn["links"]["use"] == collopt.report.link_table(plan_of(network))["utilization"].round(6).tolist()
    for key in ("nodes", "counted", "kinds"):
        assert drawn[key] == cut[key]


def plan_of(network: Topology) -> Plan:
    """An allgather."""
    return collopt.plan(network, "allgather")


def test_large_runs_have_fewer_slices_and_no_parts() -> None:
    """Half as many slices come first, then moves that do not say whose data it is; at last there are none."""
    plan = plan_of(dgx_a100(boxes=2))
    runs = [scene(plan, ["64M"], most)["runs"][0] for most in (10**6, 20_000, 10_000, 5_000, 10)]
    assert [run["note"].split()[2] for run in runs] == ["8", "4", "8", "4", "1"]
    assert [len(set(run.get("part", []))) > 1 for run in runs] == [True, True, False, False, False]
    assert "link" not in runs[-1]
    assert "moves are too many for this page" in runs[-1]["note"]
