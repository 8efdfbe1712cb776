"""Numbers of hops: 1 is what is sent first, in tables, on pages and in time lines alike."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import collopt
from collopt import Plan, topologies
from collopt.report import step_table, tree_table
from collopt.report.pages.scene import parts, scene

TORUS = topologies.torus(3, 3, bandwidth=25, latency=1)


PLANS = [
    *(pytest.param(TORUS, name, "auto", id=name) for name in ("allgather", "reduce_scatter", "broadcast", "reduce")),
    pytest.param(TORUS, "allreduce", "auto", id="allreduce"),
    pytest.param(topologies.dgx_a100(boxes=2), "allreduce", "auto", id="switches"),
    *(
        pytest.param(replace(topologies.dgx_h100(boxes=2), limits=()), name, "auto", id=f"{name}-branching")
        for name in ("allgather", "reduce_scatter", "allreduce")
    ),
    pytest.param(topologies.dgx_h100(boxes=2), "allreduce", "auto", id="looped"),
    pytest.param(topologies.rail(3, sharp=True), "allreduce", "auto", id="two-tiers"),
    # One tree spreads what trees of two heights add up.
    pytest.param(topologies.kautz(2, 2, bandwidth=25), "allreduce", "allreduce-lp", id="uneven"),
]


def made(topology: collopt.Topology, collective: str, planner: str) -> Plan:
    """Make a plan, with rank 1 as the root where there is one."""
    options = {"root": 1} if collective in ("broadcast", "reduce") else {}
    return collopt.plan(topology, collective, planner=planner, **options)


@pytest.mark.parametrize(("topology", "collective", "planner"), PLANS)
def test_a_hop_comes_right_after_the_last_that_it_waits_for(
    topology: collopt.Topology, collective: str, planner: str
) -> None:
    """Away from a root, what brings data to the sender; towards it, all that bring sums to the sender.

    What a switch sends is part of the same hop as the last of what it receives.
    """
    table, switches = tree_table(made(topology, collective, planner)), set(topology.switch_nodes)
    for (phase, root, _), rows in table.groupby(["phase", "root", "tree"]):
        came: dict[str, int] = {}
        for row in rows.to_dict("records"):
            came[row["head"]] = max(came.get(row["head"], 0), row["hop"])
        first = rows["hop"].min()
        for row in rows.to_dict("records"):
            assert row["hop"] == came.get(row["tail"], first - 1) + (row["tail"] not in switches)
        starting = rows[rows["hop"] == first]
        leaves = set(rows["tail"]) - set(rows["head"])
        assert set(starting["tail"]) - switches == (leaves if phase == "reduce" else {root})
        assert first == 1 or (phase == "broadcast" and collective == "allreduce")


@pytest.mark.parametrize(("topology", "collective", "planner"), PLANS)
def test_tables_pages_and_time_lines_agree(topology: collopt.Topology, collective: str, planner: str) -> None:
    """A link carries the same hops in the panel of trees as in the time line, and in the tables behind them."""
    plan = made(topology, collective, planner)
    number = topology.node_index
    taken = parts(plan)
    assert not taken.left_out
    panel = {
        (tail, head, hop)
        for part in taken.shown
        for tail, head, hop in zip(part.ends[::2], part.ends[1::2], part.ranks, strict=True)
    }
    table = {
        (number[tail], number[head], row["hop"])
        for row in tree_table(plan).to_dict("records")
        for nodes in [[row["tail"], *row["via"].split(), row["head"]]]
        for path in ([nodes, nodes[::-1]] if row["looped"] else [nodes])
        for tail, head in pairwise(path)
    }
    rows = step_table(plan, "1M")
    timed = {(number[tail], number[head], step) for tail, head, step in rows[["tail", "head", "step"]].values}
    assert panel == table == timed
    drawn = scene(plan, ["1M"])
    moves, links = drawn["runs"][0], drawn["links"]
    played = {
        (links["tail"][link], links["head"][link], step)
        for link, step in zip(moves["link"], moves["step"], strict=True)
    }
    assert played
    assert played <= timed
    assert min(rows[rows["start_us"] == 0]["step"]) == 1
