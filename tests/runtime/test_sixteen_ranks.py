"""Plans of two boxes of eight GPUs, of rails and of a torus, on as many processes beside torch's own collectives."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from sixteen_tasks import ROOT, Case, compared

import collopt
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import Topology, dgx_a100, dgx_h100, rail, torus

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all")
SHARED_OUT = ("allgather", "reduce_scatter", "all_to_all")
"""Collectives whose size is given by that of a shard or a part."""
PRELOAD = ("torch", "torch.distributed", "collopt.runtime.execution.execute")
TIMEOUT_S = 550
MIB_ELEMENTS = 2**20 // 4

pytestmark = pytest.mark.slow


def wrong_cases(cases: list[Case]) -> list[str]:
    """Return the names of the cases in which some rank's output is not torch's."""
    ranks = cases[0].program.num_ranks
    results = run_ranks(partial(compared, cases=cases), ranks, timeout_s=TIMEOUT_S, preload=PRELOAD)
    assert all(set(answer) == {case.name for case in cases} for answer in results)
    return [
        f"rank {rank}: {name}" for rank, answer in enumerate(results) for name, right in answer.items() if not right
    ]


@pytest.mark.parametrize("boxes", [1, 2])
def test_ranks_replace_switches_that_add_and_copy(boxes: int) -> None:
    """Ranks do the work of NVSwitches in one box of eight and in two."""
    topology = replace(dgx_h100(boxes), limits=())
    plans = {name: collopt.plan(topology, name) for name in ("allreduce", "allgather", "reduce_scatter")}
    assert all(len(plan.trees.forests[0].switches) == boxes for plan in plans.values())
    cases = [
        Case(f"{name} {dtype}", program_of(plan), elements, dtype)
        for name, plan in plans.items()
        for elements, dtype in ((1, "int32"), (1000, "float32"), (1001, "bfloat16"))
    ]
    assert wrong_cases(cases) == []


# The collectives share the processes of a test, since starting sixteen takes longer than running most cases.
@pytest.mark.parametrize(
    ("network", "mebibytes"), [(rail(2, 4), 1), (torus(4, 4), 1), (dgx_a100(boxes=2), 16)], ids=str
)
def test_every_collective_agrees_with_torch_from_one_element_to_mebibytes(network: Topology, mebibytes: int) -> None:
    """Integers agree bit for bit, sums of floats within the bound of their order; no number of chunks divides some."""
    cases = []
    for collective in COLLECTIVES:
        options = {"root": ROOT} if collective in ("broadcast", "reduce") else {}
        program = program_of(collopt.plan(network, collective, **options))
        largest = mebibytes * MIB_ELEMENTS // (network.num_ranks if collective in SHARED_OUT else 1)
        sizes = {
            "int32": (1, 7, 1000, 65537, largest), "float32": (7, 65537), "uint8": (1000,), "int64": (1000,),
            "bfloat16": (1001,), "float64": (1000,),
        }  # fmt: skip
        cases += [Case(network.name, program, elements, dtype) for dtype, row in sizes.items() for elements in row]
    assert any(case.elements % case.program.layout.chunks for case in cases)
    assert wrong_cases(cases) == []
