"""`collopt find`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from cli_calls import Cli, refusal
from collopt.errors import UnsupportedError
from collopt.planners import find_topologies, load_plan
from collopt.runtime.msccl.export import read_xml
from collopt.topologies import read_topology


def test_people_see_bounds_then_candidates_with_the_best_marked(cli: Cli) -> None:
    """Bounds precede candidates with exact numbers, and a star marks the best."""
    answer = cli("find", 64, "--degree", 4, "--no-all-to-all")
    assert (answer.status, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[:5] == [
        "64 nodes, 4 links each",
        "  bound on T_L        3 α",
        "  bound on T_B        0.9844 (63/64) M/B",
        "  bound on allreduce  225 µs for 1M, as reduce-scatter and allgather",
        "  T_B may be lower    at 3 α by 7.4% at most",
    ]
    assert lines[5].split() == ["T_L", "T_B", "exact", "allreduce", "1M", "topology"]
    assert [line.split()[:5] for line in lines[6:]] == [
        ["*1", "3", "α", "1.0625", "17/16"],
        ["2", "4", "α", "0.9844", "63/64"],
    ]


def test_all_to_all_is_bounded_from_both_sides(cli: Cli) -> None:
    """Equal bounds of an all-to-all are one figure."""
    answer = cli("find", 5, "--degree", 4, "--size", "64M", "--alpha", "2.5", "--bandwidth", 100)
    assert "bound on all-to-all  537 µs for 64M, 1 of a link's bandwidth per pair" in answer.out
    assert answer.out.splitlines()[-1].endswith(" 537 µs  K(5)")
    assert "T_B may be lower     nowhere" in answer.out


def test_more_links_than_neighbors_are_told(cli: Cli) -> None:
    """A note advises against parallel links."""
    note = "collopt: note: a node has at most 3 neighbors, so links are parallel; --degree 3 needs none\n"
    assert cli("find", 4, "--degree", 4, "--no-all-to-all").err.endswith(note)
    assert "parallel" not in cli("find", 4, "--degree", 3, "--no-all-to-all").err


def test_candidates_are_ranked_for_calls_of_several_collectives_and_sizes(cli: Cli) -> None:
    """Counts of the same call add up, and hosts and NICs may be slower than the ports."""
    calls = ("--call", "allreduce:64K:40", "--call", "allreduce:64K:2", "--call", "all_to_all:1M")
    data = cli("find", 32, *calls, "--host", "10.5", "--nics", 10, "--json").data
    assert (data["best"], data["node_bandwidth"]) == (1, 10)
    found = find_topologies(32, 4, node_bandwidth=10)
    assert found.best_mix({"allreduce": {"64K": 42}, "all_to_all": {2**20: 1}}) is found[0]
    assert found.best("all_to_all", size="64M") is found[1]
    first, second = (each.runtime("all_to_all", "64M", node_bandwidth=10) for each in found)
    assert found[0].time_of_calls({"all_to_all": {"64M": "1/2"}}, found.workload) == first / 2 > second / 2
    assert cli("find", 32, "--call", "all_to_all:64M", "--json").data["best"] == 2
    assert "all calls" in cli("find", 32, *calls).out
    assert " for 64K, as reduce-scatter and allgather" in cli("find", 32, *calls).out
    assert "expected COLLECTIVE:SIZE[:COUNT]" in refusal(cli("find", 32, "--call", "allreduce"))
    with pytest.raises(UnsupportedError, match="there are no calls"):
        found.best_mix({"allreduce": {}})


def test_a_candidate_can_be_saved_and_planned_on(cli: Cli, tmp_path: Path) -> None:
    """Links of a saved topology share the bandwidth of a node."""
    target = tmp_path / "found.json"
    answer = cli("find", 32, "--degree", 4, "--no-all-to-all", "--save", target, "--candidate", 1)
    links = "each link has 3.125 GB/s and 10.0 µs latency"
    assert (answer.status, answer.err) == (0, f"wrote MetaCirc(8, 4, 7; {{9, 10, 21, 28}}) to {target}; {links}\n")
    network = read_topology(target)
    assert (network.num_ranks, len(network.links)) == (32, 128)
    assert {(link.bandwidth, link.latency) for link in network.links} == {(3.125, 10)}


def test_a_found_schedule_becomes_a_plan_that_holds_what_was_promised(cli: Cli, tmp_path: Path) -> None:
    """Diamond's schedule is not breadth-first, so a planner would not find it on the topology's file."""
    files = {name: tmp_path / name for name in ("net.json", "plan.json", "plan.xml")}
    answer = cli("find", 8, "--degree", 2, "--candidate", 1, "--collective", "allgather", "--save", files["net.json"],
        "--plan", files["plan.json"], "--xml", files["plan.xml"]
    )  # fmt: skip
    assert "*1  3 α  0.8750  7/8 " in answer.out
    assert answer.err.count("each link has 6.250 GB/s and 10.0 µs latency") == 3
    plan = load_plan(files["plan.json"], read_topology(files["net.json"]))
    assert (plan.gap, plan.num_steps, plan.options) == (0, 3, {"construction": "Diamond"})
    assert str(read_xml(files["plan.xml"]).collective) == "allgather"


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_plans_of_candidates_take_the_time_that_the_table_states(collective: str) -> None:
    """Plans take the stated time also where the graph is not its own transpose."""
    for candidate in find_topologies(9, 2):
        made = candidate.plan(collective, bandwidth="6.25", latency=10)
        assert made.estimate("1M") == pytest.approx(float(candidate.runtime(collective, "1M")))


def test_booleans_are_those_of_json(cli: Cli) -> None:
    """CSV writes booleans as JSON does, and numbers with all digits; exact ones are text."""
    exact = cli("find", 32, "--degree", 4, "--json").data
    assert exact["bounds"]["bandwidth_factor_exact"] == "31/32"
    assert [row["bandwidth_factor_exact"] for row in exact["candidates"]] == ["31/32", "1"]
    rows = list(csv.DictReader(io.StringIO(cli("find", 8, "--degree", 2, "--csv").out)))
    same = cli("find", 8, "--degree", 2, "--json").data["candidates"]
    assert {row["breadth_first"] for row in rows} <= {"true", "false"}
    assert [list(row) for row in rows] == [list(row) for row in same]
    for row, other in zip(rows, same, strict=True):
        assert row == {name: value if isinstance(value, str) else json.dumps(value) for name, value in other.items()}
