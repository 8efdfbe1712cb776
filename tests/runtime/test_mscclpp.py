"""MSCCL++ plans from programs: what is written comes back, and moves the right data."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import permutations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mscclpp_plans import TWO_BOXES, small_plan, to_execution_plan
from runtime_forests import COLLECTIVES, forests, random_schedule, ring_forest, weighted_forest

import collopt
from collopt.errors import ProgramError, TooLargeError, UnsupportedError
from collopt.runtime import lower
from collopt.runtime.lowering.devices import boxes_of
from collopt.runtime.mscclpp import interpret as machine
from collopt.runtime.mscclpp.execution_plan import ExecutionPlan, Gpu, Operation, Place, to_mscclpp_text
from collopt.runtime.mscclpp.export import export_mscclpp_json
from collopt.runtime.mscclpp.interpret import run_execution_plan
from collopt.runtime.mscclpp.reader import read_mscclpp
from collopt.schedules import REDUCE
from collopt.topologies import Topology, dgx1_v100, dgx_h100, generalized_kautz, hypercube, ring
from sample_sizes import examples
from slow_cases import slow_where

PLACEMENTS = ("out-of-place", "in-place")


def flat(plan: ExecutionPlan) -> list[Operation]:
    """All operations of a plan, those in pipelines too."""
    return [
        inner
        for gpu in plan.gpus
        for block in gpu.thread_blocks
        for operation in block
        for inner in (operation, *operation.body)
    ]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("boxes", [None, TWO_BOXES])
@pytest.mark.parametrize("slice_bytes", [None, 4096])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_written_comes_back_and_runs(
    tmp_path: Path, collective: str, slice_bytes: int | None, boxes: list[int] | None, placement: str
) -> None:
    """Every collective over memory and port channels, in slices and as a whole, in place and out of place."""
    plan = small_plan(collective, slice_bytes=slice_bytes, boxes=boxes, placement=placement)
    path = tmp_path / "plan.json"
    path.write_text(to_mscclpp_text(plan))
    assert read_mscclpp(path) == plan
    report = run_execution_plan(plan, interleavings=3, slices=2)
    moved = [operation for operation in flat(plan) if operation.name in ("put", "pws")]
    times = 1 if slice_bytes is None else 2  # Everything that moves data is in pipelines, or nothing.
    assert report.puts == times * sum(len(operation.sources) for operation in moved) > 0
    assert report.chunks_put == times * sum(place.count for operation in moved for place in operation.sources)
    kinds = {operation.channel_type for operation in flat(plan)}
    assert ("port" in kinds) == (boxes is not None)
    assert any(operation.name == "pipeline" for operation in flat(plan)) == (slice_bytes is not None)


@pytest.mark.parametrize(
    ("collective", "topology"),
    slow_where(
        product(
            (*COLLECTIVES, "all_to_all"),
            (ring(5), hypercube(3), generalized_kautz(2, 9), dgx1_v100(), dgx_h100(), dgx_h100(boxes=2)),
        ),
        lambda case: case[0] != "allgather" and case[1].name.startswith("dgx"),
    ),
    ids=lambda value: getattr(value, "name", None),
)
def test_plans_of_real_networks_run(tmp_path: Path, topology: Topology, collective: str) -> None:
    """The files of whole plans move the right data; boxes are told by the names of the ranks."""
    root = {"root": 1} if collective in ("broadcast", "reduce") else {}
    plan = collopt.plan(topology, collective, **root)
    path = tmp_path / "plan.json"
    plan.export("mscclpp-json", path)
    read = read_mscclpp(path)
    run_execution_plan(read, interleavings=1, seed=7)
    boxes = boxes_of(topology)
    for rank, gpu in enumerate(read.gpus):
        assert all(boxes[peer] == boxes[rank] for peer in gpu.peers["memory"])
        assert all(boxes[peer] != boxes[rank] for peer in gpu.peers["port"])
        assert all(sum(1 + len(each.body) for each in block) <= 64 for block in gpu.thread_blocks)


@given(forest=forests(max_ranks=5, max_trees=4), seed=st.integers(0, 1000), slices=st.integers(1, 4))
@settings(max_examples=examples(25))
def test_any_forest_runs_in_slices(forest: Any, seed: int, slices: int) -> None:
    """Weights that differ are cut into steps of equal size."""
    size = 1 if forest.num_ranks % 2 else 2
    boxes = [rank // size for rank in range(forest.num_ranks)]
    plan = to_execution_plan(lower(forest, "allgather", max_steps=3), boxes=boxes)
    run_execution_plan(plan, interleavings=2, seed=seed, slices=slices)


def test_slices_need_steps_of_one_size() -> None:
    """The executor would write past the end of a smaller step, so larger ones are cut."""
    program = lower(weighted_forest([2, 2, 2], 3, 1), "allgather", max_steps=4)
    plan = to_execution_plan(program, slice_bytes=4096)
    assert len({place.count for operation in flat(plan) for place in operation.sources}) == 1
    as_a_whole = to_execution_plan(program, slice_bytes=None)
    assert len(flat(as_a_whole)) < len(flat(plan))


@pytest.mark.parametrize("collective", ["reduce_scatter", "allreduce"])
def test_thread_blocks_are_merged_until_they_fit(collective: str) -> None:
    """A GPU that runs two thread blocks at once gets two, and the plan still runs."""
    program = lower(random_schedule(collective, 3, 1, 2), collective)
    plan = to_execution_plan(program, max_thread_blocks=2, slice_bytes=None)
    assert max(len(gpu.thread_blocks) for gpu in plan.gpus) == 2
    run_execution_plan(plan, interleavings=4)


def test_all_to_all_is_never_in_place() -> None:
    """Its output holds other chunks than its input."""
    program = lower(collopt.plan(ring(3), "all_to_all").schedule, "all_to_all")
    assert str(to_execution_plan(program).collective) == "all_to_all"
    with pytest.raises(UnsupportedError, match="whose output is never its input"):
        to_execution_plan(program, placement="in-place")


def test_the_machine_runs_no_more_than_memory_holds() -> None:
    """Slices are numbers in memory."""
    with pytest.raises(UnsupportedError, match="chunks in 1000000000 slices are more than 67108864 numbers"):
        run_execution_plan(small_plan("allgather"), slices=10**9)


@pytest.mark.parametrize(
    ("ports", "error", "words"),
    [(2**14 - 2, AssertionError, "it is made"), (2**14 - 1, TooLargeError, "16385 GPUs, blocks and port channels")],
)
def test_the_machine_runs_no_more_processes_than_clocks_have_room_for(
    monkeypatch: pytest.MonkeyPatch, ports: int, error: type[Exception], words: str
) -> None:
    """They are a GPU, its thread block, and port channels."""

    def make(*_: object) -> None:
        raise AssertionError("it is made")

    monkeypatch.setattr(machine, "_Machine", make)
    gpu = Gpu(2, 2, 0, {"memory": (), "port": (0,) * ports}, (), ((Operation("nop"),),))
    with pytest.raises(error, match=f"^{words}"):
        run_execution_plan(ExecutionPlan("alone", "allreduce", False, 32, 64, 1024, (gpu,)))


def test_an_input_that_changes_out_of_place_is_found() -> None:
    """The reader refuses such files; plans can be made without it."""
    given, kept = (Place(0, buffer, 0, 2) for buffer in ("input", "output"))
    steps = (
        Operation("copy", sources=(given,), targets=(kept,)),
        Operation("nop"),
        Operation("copy", sources=(Place(0, "output", 0, 1),), targets=(Place(0, "input", 1, 1),)),
    )
    for length, changed in ((2, False), (3, True)):
        gpu = Gpu(2, 2, 0, {"memory": (), "port": ()}, (), (steps[:length],))
        plan = ExecutionPlan("alone", "allreduce", False, 32, 64, 1024, (gpu,))
        with pytest.raises(ProgramError, match="rank 0 ends with a changed input") if changed else nullcontext():
            run_execution_plan(plan)


def test_names_tell_plans_apart() -> None:
    """The executor looks up what it has set up by name, so anything that differs makes another name."""
    program = lower(ring_forest(3), "allgather", name="ag")
    options: list[dict[str, Any]] = [
        {},
        {"slice_bytes": None},
        {"placement": "in-place"},
        {"boxes": [0, 1, 2]},
        {"max_bytes": 4096},
        {"threads_per_block": 512},
    ]
    names = [to_execution_plan(program, **each).name for each in options]
    assert len(set(names)) == len(options)
    assert all(name.startswith("ag-") for name in names)
    assert to_execution_plan(program).name == names[0]


def test_sizes_are_those_of_which_every_offset_fits() -> None:
    """From 16 bytes a chunk to buffers of 4 GiB, scratch included."""
    plan = small_plan("reduce_scatter", slice_bytes=None)
    chunks = plan.gpus[0].input_chunks
    largest = max(max(gpu.chunks.values()) for gpu in plan.gpus)
    assert plan.min_bytes == 16 * chunks
    assert plan.max_bytes // chunks * largest < 2**32
    assert (plan.max_bytes // chunks + 16) * largest >= 2**32
    gathered = small_plan("allgather", slice_bytes=None)
    assert gathered.min_bytes == 16 * gathered.gpus[0].output_chunks


def test_each_connection_has_channels_of_its_own() -> None:
    """Data and credits of one connection must not be taken for those of another."""
    plan = small_plan("allreduce", slice_bytes=None)
    for gpu in plan.gpus:
        used = Counter(
            channel
            for block in gpu.thread_blocks
            for channel in {channel for operation in block for channel in operation.channels}
        )
        assert set(used.values()) == {1}
        assert sorted(used) == list(range(len(gpu.peers["memory"])))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"placement": "both"}, "placement is 'both'"),
        ({"slice_bytes": 100}, "slice_bytes is 100; expected a multiple of 16"),
        ({"slice_bytes": True}, "slice_bytes is True"),
        ({"threads_per_block": 1000}, "threads_per_block is 1000; expected a multiple of 32"),
        ({"max_thread_blocks": 0}, "max_thread_blocks is 0"),
        ({"boxes": [0, 1]}, "boxes has 2 entries; expected one for each of 4 ranks"),
        ({"boxes": 2}, "boxes is 2; expected a number for each of 4 ranks"),
        (
            {"boxes": [0, 1, 0, 1]},
            "the ranks are in boxes [0, 1, 0, 1]; expected boxes of as many ranks",
        ),
        (
            {"boxes": [0, 0, 0, 1]},
            "the ranks are in boxes [0, 0, 0, 1]; expected boxes of as many ranks",
        ),
        ({"min_bytes": 1}, "min_bytes is 1; expected bytes from"),
        ({"max_bytes": 2**40}, "max_bytes is 1099511627776; expected"),
        ({"min_bytes": 4096, "max_bytes": 2048}, "max_bytes is 2048; expected at least min_bytes = 4096"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    """In one sentence with the value and what was expected."""
    with pytest.raises(UnsupportedError) as caught:
        small_plan("allgather", **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_does_not_fit_the_executor_is_refused() -> None:
    """Too many operations for one thread block, shards of several sizes, and what is not a plan."""
    with pytest.raises(UnsupportedError, match="operations, the MSCCL\\+\\+ executor takes 64"):
        to_execution_plan(lower(random_schedule("allreduce", 4, 9, 0), "allreduce"), max_thread_blocks=1)
    with pytest.raises(UnsupportedError, match="shards of one size"):
        to_execution_plan(lower(weighted_forest([1, 2], 1, 0), "allgather"))
    with pytest.raises(UnsupportedError, match="expected a Plan"):
        export_mscclpp_json(object(), "plan.json")  # type: ignore[arg-type]


def test_the_exporter_takes_steps_that_fit(tmp_path: Path) -> None:
    """As many thread blocks as it takes to keep each below 64 operations; the root is part of the name."""
    topology = Topology.from_links(
        [(f"box{box}/gpu0", f"box{other}/gpu0", 25) for box, other in permutations(range(3), 2)],
        compute=["box0/gpu0", "box1/gpu0", "box2/gpu0"],
        name="a [b] c",
    )
    schedule = random_schedule("reduce", 3, 20, 0, root=2)
    plan: Any = SimpleNamespace(collective=REDUCE, schedule=schedule, trees=schedule, topology=topology)
    export_mscclpp_json(plan, tmp_path / "plan.json")
    read = read_mscclpp(tmp_path / "plan.json")
    assert read.name.startswith("reduce-root2-a-b-c-")
    assert boxes_of(topology) == [0, 1, 2]
