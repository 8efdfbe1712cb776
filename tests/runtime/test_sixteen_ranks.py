"""Plans on 4 to 16 processes beside torch's own collectives: boxes, rails, tori and the direct-connect testbed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runtime_steps import TESTBED
from runtime_tasks import Case
from test_distributed import wrong_cases

import collopt
from collopt.planners.direct_connect.bfb import plan_bfb
from collopt.runtime.execution.execute import program_of
from collopt.topologies import Topology, dgx_a100, dgx_h100, rail

ROOT = 5
COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all")
MIB = 2**20

pytestmark = pytest.mark.slow


def test_ranks_replace_switches_that_add_and_copy() -> None:
    """Ranks do the work of two NVSwitches between eight ranks each."""
    topology = replace(dgx_h100(boxes=2), limits=())
    plans = {name: collopt.plan(topology, name) for name in ("allreduce", "allgather", "reduce_scatter")}
    assert all(len(plan.trees.forests[0].switches) == 2 for plan in plans.values())
    cases = [
        Case(name, program_of(plan), elements * 16, dtype)
        for name, plan in plans.items()
        for elements, dtype in ((1, "int32"), (1001, "bfloat16"))
    ]
    assert wrong_cases(cases) == []


# The collectives share the processes of a test, since starting sixteen takes longer than running most cases.
@pytest.mark.parametrize("network", [rail(2, 4), dgx_a100(boxes=2)], ids=str)
def test_every_collective_agrees_with_torch_from_one_element_to_16_mebibytes(network: Topology) -> None:
    """Some numbers of elements do not divide by ranks or chunks."""
    cases = []
    for collective in COLLECTIVES:
        options = {"root": ROOT} if collective in ("broadcast", "reduce") else {}
        program = program_of(collopt.plan(network, collective, **options))
        unit = {"all_to_all": network.num_ranks**2, "allgather": network.num_ranks, "reduce_scatter": network.num_ranks}
        for elements, dtype in (
            (1, "int32"),
            (1001, "bfloat16"),
            (65537, "int64"),
            (16 * MIB // 4 // network.num_ranks, "int32"),
        ):
            cases.append(Case(collective, program, elements * unit.get(collective, 1), dtype))
    assert any(case.elements % case.program.layout.chunks for case in cases)
    assert wrong_cases(cases) == []


@pytest.mark.parametrize("name", list(TESTBED)[::3])
def test_networks_of_the_testbed_agree_with_torch(name: str) -> None:
    """Networks of degree 4 have 4 to 12 ranks, whose shards do not divide by their chunks."""
    cases = []
    for collective in ("allgather", "reduce_scatter", "allreduce"):
        plan = plan_bfb(TESTBED[name], collective)
        unit = 1 if collective == "allreduce" else plan.topology.num_ranks
        cases.append(Case(collective, program_of(plan), 10007 * unit, "float32"))
    assert wrong_cases(cases) == []
