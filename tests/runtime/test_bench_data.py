"""The data of benchmarks: known beforehand, exact, and different wherever they may be mistaken for each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from collopt.runtime.execution.workload import (
    PERIOD,
    Workload,
    fill_incorrect,
)
from collopt.runtime.measuring.bench_report import DATATYPES
from collopt.runtime.programs.layout import Layout

ELEMENTS = 3 * PERIOD + 17


def workload(collective: str, rank: int, ranks: int = 3, *, op: str = "sum", dtype: str = "int64") -> Workload:
    """What is asked of a rank, about `ELEMENTS` in each part."""
    parts = {"allgather": ranks, "reduce_scatter": ranks, "all_to_all": ranks**2}.get(collective, 1)
    shards = [0, 1, *[0] * (ranks - 2)] if collective in ("broadcast", "reduce") else ()
    layout = Layout.of(collective, ranks, parts, shards)
    return Workload(layout, ranks, rank, ELEMENTS * parts, dtype, op)


def the_input(asked: Workload) -> torch.Tensor:
    """What a rank has."""
    tensor = torch.empty(asked.input_elements, dtype=getattr(torch, asked.dtype))
    asked.fill_input(tensor)
    return tensor


def the_output(asked: Workload) -> torch.Tensor:
    """What a rank should get."""
    return asked.make_expected(torch.empty(asked.output_elements, dtype=getattr(torch, asked.dtype)))  # type: ignore[no-any-return]


def inputs(collective: str, **options: str) -> list[torch.Tensor]:
    """What three ranks have."""
    return [the_input(workload(collective, rank, **options)) for rank in range(3)]  # type: ignore[arg-type]


def test_another_seed_means_other_data_and_every_rank_has_its_own() -> None:
    """Data differ even where the seed of one rank is the number of another."""
    asked = [replace(workload("allreduce", rank), seed=seed) for rank in range(3) for seed in range(3)]
    assert len({the_input(each).numpy().tobytes() for each in asked}) == len(asked)
    seeded = [replace(workload("allreduce", rank), seed=2) for rank in range(3)]
    assert torch.equal(the_output(seeded[0]), sum(map(the_input, seeded)))  # type: ignore[arg-type]


def test_what_is_expected_is_what_the_collectives_mean() -> None:
    """Expected outputs follow from all inputs by the definitions of the collectives."""
    gathered = torch.cat(inputs("allgather"))
    exchanged = [tensor.view(3, ELEMENTS) for tensor in inputs("all_to_all")]
    for rank in range(3):
        assert torch.equal(the_output(workload("allgather", rank)), gathered)
        assert torch.equal(the_output(workload("broadcast", rank)), inputs("broadcast")[1])
        assert torch.equal(the_output(workload("allreduce", rank)), sum(inputs("allreduce")))
        part = slice(rank * ELEMENTS, (rank + 1) * ELEMENTS)
        assert torch.equal(the_output(workload("reduce_scatter", rank)), sum(inputs("reduce_scatter"))[part])  # type: ignore[index]
        mine = torch.cat([tensor[rank] for tensor in exchanged])
        assert torch.equal(the_output(workload("all_to_all", rank)), mine)
    assert torch.equal(the_output(workload("reduce", 1)), sum(inputs("reduce")))
    assert [workload("reduce", rank).has_output for rank in range(3)] == [False, True, False]
    assert [workload("broadcast", rank).has_input for rank in range(3)] == [False, True, False]


def test_unequal_parts_come_from_where_they_stand() -> None:
    """The part of rank s for rank r begins after its parts for ranks before r."""
    layout = Layout.of("all_to_allv", 3, 10, [0, 2, 1, 3, 1, 0, 0, 1, 2])
    asked = [Workload(layout, 3, rank, 10 * 999, "int64") for rank in range(3)]
    have = [the_input(each) for each in asked]
    assert [len(tensor) for tensor in have] == [3 * 999, 4 * 999, 3 * 999]
    assert torch.equal(the_output(asked[0]), have[1][: 3 * 999])
    second = torch.cat([have[0][: 2 * 999], have[1][3 * 999 :], have[2][:999]])
    assert torch.equal(the_output(asked[1]), second)
    assert torch.equal(the_output(asked[2]), torch.cat([have[0][2 * 999 :], have[2][999:]]))


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce", "broadcast", "reduce"])
def test_together_the_smaller_tensor_is_its_part_of_the_larger(collective: str) -> None:
    """Input and output share memory as collectives in place have it."""
    asked = workload(collective, 2)
    output, mine = asked.make_tensors(True, torch.device("cpu"))
    assert (len(output), len(mine)) == (asked.output_elements, asked.input_elements)
    parted = collective in ("allgather", "reduce_scatter")
    whole, part = (mine, output) if collective == "reduce_scatter" else (output, mine)
    assert part.data_ptr() - whole.data_ptr() == (2 * ELEMENTS * 8 if parted else 0)
    apart = asked.make_tensors(False, torch.device("cpu"))
    assert [len(tensor) for tensor in apart] == [len(output), len(mine)]


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", DATATYPES.values())
@pytest.mark.parametrize("ranks", [5, 300])
def test_every_order_gives_the_same_bits(op: str, dtype: str, ranks: int) -> None:
    """Sums in the type itself are equal forwards and in pairs, also with more ranks than int8 can count."""
    function = {"sum": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum}[op]
    kind = getattr(torch, dtype)
    parts = []
    for rank in range(ranks):
        parts.append(torch.empty(100, dtype=kind))
        workload("allreduce", rank, ranks, op=op, dtype=dtype).fill_input(parts[-1])
    asked = replace(workload("allreduce", 0, ranks, op=op, dtype=dtype), elements=100)
    wanted = asked.make_expected(parts[0])
    one_by_one = parts[0].clone()
    for part in parts[1:]:
        one_by_one = function(one_by_one, part)
    while len(parts) > 1:
        parts = [function(*parts[at : at + 2]) if at + 1 < len(parts) else parts[at] for at in range(0, len(parts), 2)]
    assert torch.equal(one_by_one, wanted)
    assert torch.equal(parts[0], wanted)


@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_a_contribution_that_is_missing_or_counted_twice_is_seen(op: str, dtype: str) -> None:
    """A missing or doubled contribution of any rank changes more than a third of the elements."""
    function = {"sum": torch.add, "prod": torch.mul}[op]
    parts = [the_input(workload("allreduce", rank, op=op, dtype=dtype)) for rank in range(3)]
    asked = workload("allreduce", 0, op=op, dtype=dtype)
    for missing in range(3):
        result = torch.full_like(parts[0], 0 if op == "sum" else 1)
        for part in parts[:missing] + parts[missing + 1 :]:
            result = function(result, part)
        assert asked.count_wrong(result, the_output(asked)) > ELEMENTS / 3
        twice = function(the_output(asked), parts[missing])
        assert asked.count_wrong(twice, the_output(asked)) > ELEMENTS / 3


@pytest.mark.parametrize("dtype", DATATYPES.values())
def test_what_was_there_before_is_wrong_everywhere(dtype: str) -> None:
    """Every element differs from the expected one before a call, so no output is right by chance."""
    asked = workload("allreduce", 0, dtype=dtype, op="prod")
    expected = the_output(asked)
    output = torch.empty_like(expected)
    fill_incorrect(output, expected)
    assert asked.count_wrong(output, expected) == ELEMENTS
    assert asked.count_wrong(expected, expected) == 0


def test_averages_may_be_rounded_in_any_way_and_no_further() -> None:
    """Division before or after the sum is right, a relative error of 1e-5 is wrong."""
    asked = workload("allreduce", 0, op="avg", dtype="float32")
    parts = [the_input(workload("allreduce", rank, op="avg", dtype="float32")) for rank in range(3)]
    expected = the_output(asked)
    before = sum(part * np.float32(1 / 3) for part in parts)
    after = sum(parts) / 3
    assert asked.count_wrong(before, expected) == asked.count_wrong(after, expected) == 0
    assert asked.count_wrong(expected * (1 + 1e-5), expected) == ELEMENTS
    assert asked.count_wrong(expected * float("nan"), expected) == ELEMENTS
