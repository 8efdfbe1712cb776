"""Trees that branch at switches, for runtimes without switches: ranks send each copy, or the plan is another."""

from __future__ import annotations

from pathlib import Path

import pytest

import collopt
from collopt.errors import BoundError, UnsupportedError
from collopt.runtime import lower, run_program
from collopt.runtime.lowering.trees import from_rank_to_rank, without_switches
from switched_forests import switched_boxes, switched_schedule


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
def test_formats_without_switches_have_a_plan_without(
    tmp_path: Path,
    form: str,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log says what that costs; where there is none, nothing is written."""
    network = switched_boxes(1, 4)
    plan = collopt.plan(network, "allreduce")
    collopt.plan(network, "allreduce", planner=plan.planner, in_network=False).export(
        form, tmp_path / "plain", **options
    )
    plan.export(form, tmp_path / "file", **options)
    assert "in_network=False (--no-in-network), 266.67 GB/s (800/3) instead of 400.00 GB/s" in caplog.text
    written = sorted(path.name for path in tmp_path.iterdir())
    assert len(written) == (2 if form == "msccl-xml" else 8)
    for name in written:
        if name.startswith("file"):
            assert (tmp_path / name).read_bytes() == (tmp_path / name.replace("file", "plain")).read_bytes()
    monkeypatch.setattr("collopt.runtime.lowering.trees.make_plan", refusing)
    with pytest.raises(UnsupportedError, match=r"branch at switches, .* there is no plan without: rank 2 is lost"):
        plan.export(form, tmp_path / "other", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == written


def refusing(*_: object, **__: object) -> None:
    """Refuse to plan."""
    raise BoundError("rank 2 is lost")


def test_a_plan_without_has_the_problem_and_options_of_the_other(caplog: pytest.LogCaptureFixture) -> None:
    """Root and trees per root are the same, a plan without such switches is itself, and so may be its rate."""
    plan = collopt.plan(switched_boxes(2, 3), "broadcast", root=3, trees_per_root=1)
    plain = without_switches(plan, "this")
    assert plain.schedule.problem(plain.collective) == {"root": 3}
    assert plain.options == {"trees_per_root": 1, "in_network": 0}
    assert without_switches(plain, "this") is plain
    assert "at the same rate" in caplog.text


def test_a_plan_for_a_size_is_replaced_by_the_fastest_for_it() -> None:
    """The one for endless data may be far slower."""
    network = switched_boxes(1, 4)
    plain = without_switches(collopt.plan(network, "allreduce", size="64K"), "this")
    fastest = collopt.plan(network, "allreduce", size="64K", in_network=False)
    assert plain.provenance["planned_for"] == "65536 bytes"
    assert (plain.provenance["predicted_us"], plain.planner) == (fastest.provenance["predicted_us"], fastest.planner)
