"""Trees that branch at switches, for runtimes without switch operations: ranks send each copy, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from collopt.errors import UnsupportedError
from collopt.runtime import lower, run_program
from collopt.runtime.lowering.trees import from_rank_to_rank
from switched_forests import switched_plan, switched_schedule


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.parametrize(("boxes", "gpus", "trees"), [(1, 4, 1), (2, 3, 2), (3, 2, 1)])
def test_programs_send_from_rank_to_rank(collective: str, boxes: int, gpus: int, trees: int) -> None:
    """A rank plays the switch, so the data is that of the same trees without it."""
    schedule = switched_schedule(collective, boxes, gpus, trees)
    program = lower(schedule, collective)
    run_program(program)
    assert program.num_instructions == lower(from_rank_to_rank(schedule), collective).num_instructions
    assert not any(len(forest.switches) for forest in from_rank_to_rank(schedule).forests)


@pytest.mark.parametrize(
    ("form", "options"), [("msccl-xml", {}), ("chakra-et", {"size": "1M"})], ids=["MSCCL XML", "Chakra"]
)
def test_formats_without_switches_refuse_them(tmp_path: Path, form: str, options: dict[str, str]) -> None:
    """With the way out."""
    plan = switched_plan("allreduce", 1, 4)
    with pytest.raises(UnsupportedError, match=r"branch at switches, .*in_network=False \(--no-in-network"):
        plan.export(form, tmp_path / "file", **options)
    assert not list(tmp_path.iterdir())
