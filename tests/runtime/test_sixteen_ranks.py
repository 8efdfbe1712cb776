"""Plans of two boxes of eight GPUs, and of a torus of sixteen, on as many processes beside torch's own collectives."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from sixteen_tasks import ROOT, Case, compared

import collopt
from collopt.runtime import Program
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import Topology, dgx_a100, dgx_h100, rail, torus

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all")
SHARED_OUT = ("allgather", "reduce_scatter", "all_to_all")
"""Collectives whose size is given by that of a shard or a part."""
NETWORKS = {"two boxes": dgx_a100(boxes=2), "torus": torus(4, 4), "two rails": rail(2, 4)}
PRELOAD = ("torch", "torch.distributed", "collopt.runtime.execution.execute")
TIMEOUT_S = 550
MIB = 2**20


def planned(topology: Topology, collective: str) -> Program:
    """The program of a plan, from or to the root where there is one."""
    options = {"root": ROOT} if collective in ("broadcast", "reduce") else {}
    return program_of(collopt.plan(topology, collective, **options))


def wrong(cases: list[Case], timeout_s: float = TIMEOUT_S) -> list[str]:
    """Names of the cases in which some rank's output was not torch's."""
    results = run_ranks(
        partial(compared, cases=cases), cases[0].program.num_ranks, timeout_s=timeout_s, preload=PRELOAD
    )
    assert all(set(answer) == {case.name for case in cases} for answer in results)
    return [
        f"rank {rank}: {name}" for rank, answer in enumerate(results) for name, right in answer.items() if not right
    ]


@pytest.mark.slow
@pytest.mark.parametrize("boxes", [1, 2])
def test_ranks_take_the_place_of_switches_that_add_and_copy(boxes: int) -> None:
    """Eight ranks around an NVSwitch, and two boxes of them: what comes out is what torch's collectives give."""
    topology = replace(dgx_h100(boxes), limits=())
    plans = {name: collopt.plan(topology, name) for name in ("allreduce", "allgather", "reduce_scatter")}
    assert all(len(made.trees.forests[0].switches) == boxes for made in plans.values())
    cases = [
        Case(f"{name} {dtype}", program_of(made), elements, dtype)
        for name, made in plans.items()
        for elements, dtype in ((1, "int32"), (1000, "float32"), (1001, "bfloat16"))
    ]
    assert wrong(cases) == []


@pytest.mark.slow
def test_eight_ranks_agree_with_torch_on_every_collective() -> None:
    """Two boxes of four: one element, and numbers of them that no number of chunks divides."""
    cases = [
        Case("two rails", planned(NETWORKS["two rails"], collective), elements, dtype)
        for collective in COLLECTIVES
        for elements, dtype in ((1, "int32"), (7, "float32"), (1000, "uint8"), (1001, "bfloat16"))
    ]
    assert any(case.elements % case.program.layout.chunks for case in cases)
    assert wrong(cases) == []


# The collectives share the processes of a test: to start sixteen takes longer than to run most cases.
@pytest.mark.slow
@pytest.mark.parametrize("network", ["two boxes", "torus"])
def test_sixteen_ranks_agree_with_torch_from_one_element_to_a_mebibyte(network: str) -> None:
    """Every collective; integers bit for bit, sums of floats within what their order can change."""
    cases = []
    for collective in COLLECTIVES:
        program = planned(NETWORKS[network], collective)
        parts = 16 if collective in SHARED_OUT else 1
        mebibyte = MIB // 4 // parts
        cases += [
            Case(network, program, elements, dtype)
            for dtype in ("int32", "float32")
            for elements in (1, 7, 1000, 65537, mebibyte)
        ]
        cases += [Case(network, program, 1000, dtype) for dtype in ("uint8", "int64", "bfloat16", "float64")]
    assert wrong(cases) == []


@pytest.mark.slow
def test_sixteen_ranks_agree_with_torch_on_16_mebibytes() -> None:
    """Two boxes of eight; each rank's output, or its input where that is the larger, has the 16 MiB."""
    cases = []
    for collective in COLLECTIVES:
        elements = 16 * MIB // 4 // (16 if collective in SHARED_OUT else 1)
        cases.append(Case("two boxes", planned(NETWORKS["two boxes"], collective), elements, "int32"))
    assert wrong(cases) == []
