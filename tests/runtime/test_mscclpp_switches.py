"""MSCCL++ plans that add and copy at switches: what is written runs, and what is changed in it is noticed."""

from __future__ import annotations

import copy
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mscclpp_plans import Document, operations, run_document, to_execution_plan

from collopt.errors import ColloptError, ProgramError, TooLargeError, UnsupportedError
from collopt.runtime import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock, lower, read_mscclpp
from collopt.runtime.mscclpp.execution_plan import ExecutionPlan, document_of
from collopt.runtime.mscclpp.export import export_mscclpp_json, mscclpp_notes
from collopt.runtime.mscclpp.interpret import run_execution_plan
from collopt.runtime.mscclpp.lint import lint_plan
from collopt.runtime.mscclpp.lower import PlanOptions, is_star_schedule, star_plan
from collopt.runtime.mscclpp.transfers import switch_groups
from collopt.schedules import ALLGATHER, ALLREDUCE, BROADCAST, Allreduce, Forest
from sample_sizes import examples
from switched_forests import random_switched_forest, switched_forest, switched_plan, switched_schedule

PLACEMENTS = ("out-of-place", "in-place")


def written(plan: ExecutionPlan) -> Counter[str]:
    """Names of all operations."""
    return Counter(
        each.name for gpu in plan.gpus for block in gpu.thread_blocks for one in block for each in (one, *one.body)
    )


def traffic(plan: ExecutionPlan) -> int:
    """Chunks that leave GPUs: a store to a switch channel leaves once, whoever receives it."""
    flat = [each for gpu in plan.gpus for block in gpu.thread_blocks for one in block for each in (one, *one.body)]
    return sum(each.targets[0].count for each in flat if each.name in ("put", "pws", "gstore"))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize(("collective", "name"), [("allreduce", "glres"), ("allgather", "gstore")])
def test_eight_ranks_of_one_box(tmp_path: Path, collective: str, name: str, instances: int, placement: str) -> None:
    """Each adds up or stores its shard once, between two barriers; lint accepts the file and the data is right."""
    plan = switched_plan(collective, 1, 8)
    export_mscclpp_json(plan, tmp_path / "plan.json", placement=placement, instances=instances)
    read = read_mscclpp(tmp_path / "plan.json")
    assert written(read) == {
        name: 8 * instances, "signal": 16 * instances, "wait": 16 * instances, "nop": 16 * instances
    }  # fmt: skip
    assert (read.in_place, len(read.gpus[0].thread_blocks)) == (placement == "in-place", instances)
    run_execution_plan(read, interleavings=20)
    assert lint_plan(tmp_path / "plan.json").runs


@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
def test_the_release_stores_nothing(tmp_path: Path, collective: str) -> None:
    """For 0.9.0, ranks send each copy; it adds up at switches all the same."""
    export_mscclpp_json(switched_plan(collective, 1, 4), tmp_path / "plan.json", version="0.9.0")
    names = written(read_mscclpp(tmp_path / "plan.json"))
    assert (names["gstore"], names["put"], names["glres"]) == ((0, 12, 0) if collective == "allgather" else (0, 0, 4))
    assert lint_plan(tmp_path / "plan.json", "0.9.0").runs
    with pytest.raises(UnsupportedError, match=r"version is '0.8'; expected"):
        export_mscclpp_json(switched_plan(collective, 1, 4), tmp_path / "plan.json", version="0.8")


@pytest.mark.parametrize("ranks", [2, 9, 17, 18, 33])
def test_barriers_fit_the_channels_of_a_thread_block(ranks: int) -> None:
    """Of all pairs for up to 17 ranks, in rounds for more."""
    schedule = switched_schedule("allreduce", 1, ranks)
    plan = star_plan(schedule, ALLREDUCE, "many", PlanOptions())
    assert max(len(gpu.peers["memory"]) for gpu in plan.gpus) <= 16
    run_execution_plan(plan, interleavings=2)


def test_a_broadcast_in_one_box_and_unequal_shards() -> None:
    """Ranks without a shard take part in the barriers only."""
    trees = [(1, 1, [(1, 3), (3, 0), (3, 2)])]
    forest = Forest.from_paths(3, 1, trees, root_weights=[0, 1, 0], switches=[3])
    plan = star_plan(forest, BROADCAST, "one", PlanOptions(), instances=2)
    assert written(plan)["gstore"] == 2
    both = [(0, 3, [(0, 3), (3, 1), (3, 2)]), (1, 1, [(1, 3), (3, 0), (3, 2)])]
    halves = [
        Forest.from_paths(3, 1, both, root_weights=[3, 1, 0], direction=way, switches=[3])
        for way in ("reduce", "broadcast")
    ]
    schedule = Allreduce(*halves)
    assert is_star_schedule(schedule, ALLREDUCE)
    assert not is_star_schedule(halves[1], ALLGATHER)
    assert [gpu.input_chunks for gpu in star_plan(schedule, ALLREDUCE, "two", PlanOptions()).gpus] == [4] * 3


def test_a_barrier_of_too_many_ranks_is_refused() -> None:
    """Its rounds need more channels than a thread block has."""
    with pytest.raises(TooLargeError, match="a barrier of 257 ranks takes 18 channels"):
        star_plan(switched_forest(1, 257), ALLGATHER, "many", PlanOptions())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("slice_bytes", [None, 4096])
@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
@pytest.mark.parametrize(("boxes", "gpus", "trees"), [(2, 2, 1), (2, 3, 2), (3, 2, 1)])
def test_boxes_store_once_what_their_switch_copies(
    boxes: int, gpus: int, trees: int, collective: str, slice_bytes: int | None, placement: str
) -> None:
    """Every root's data enters a box once, and leaves that rank once for all others there."""
    schedule, of = switched_schedule(collective, boxes, gpus, trees), [rank // gpus for rank in range(boxes * gpus)]
    program = lower(schedule, collective, max_steps=4)
    groups = switch_groups(schedule, of)
    plan = to_execution_plan(program, boxes=of, placement=placement, slice_bytes=slice_bytes, switch_groups=groups)
    assert written(plan)["gstore"] == boxes * gpus * trees * boxes
    run_execution_plan(plan, interleavings=6)
    alone = to_execution_plan(program, boxes=of, placement=placement, slice_bytes=slice_bytes)
    assert traffic(alone) - traffic(plan) == boxes * gpus * trees * boxes * (gpus - 2)


@settings(max_examples=examples(60))
@given(
    st.sampled_from([(1, 4, 1), (2, 2, 1), (2, 3, 2), (3, 2, 1)]),
    st.integers(0, 10_000),
    st.booleans(),
    st.sampled_from(PLACEMENTS),
    st.sampled_from([108, 3]),
    st.integers(1, 2),
)
def test_random_trees_run(
    shape: tuple[int, int, int], seed: int, sums: bool, placement: str, max_thread_blocks: int, instances: int
) -> None:
    """Whatever switches copy, wherever data enters a box, and however thread blocks are merged."""
    broadcast = random_switched_forest(*shape, seed)
    schedule = Allreduce(random_switched_forest(*shape, seed + 1, "reduce"), broadcast) if sums else broadcast
    program = lower(schedule, "allreduce" if sums else "allgather", max_steps=4, instances=instances)
    of = [rank // shape[1] for rank in range(shape[0] * shape[1])]
    options = {"placement": placement, "max_thread_blocks": max_thread_blocks, "slice_bytes": None}
    with suppress(TooLargeError):
        plan = to_execution_plan(program, boxes=of, switch_groups=switch_groups(schedule, of), **options)
        run_execution_plan(plan, interleavings=2, seed=seed)


def test_what_no_switch_can_store_is_sent() -> None:
    """Trees that leave a rank of the box to another path, groups of two boxes or of too many, reduce-scatters."""
    partial = Forest.from_paths(
        3, 1, [(0, 1, [(0, 3), (3, 1), (1, 3, 2)]), (1, 1, [(1, 3), (3, 0), (3, 2)]), (2, 1, [(2, 3), (3, 1), (3, 0)])],
        switches=[3],
    )  # fmt: skip
    plan = to_execution_plan(lower(partial, "allgather"), switch_groups=switch_groups(partial, [0] * 3))
    assert (written(plan)["gstore"], written(plan)["put"]) == (2, 2)
    assert switch_groups(switched_forest(1, 4), [0, 0, 1, 1]) == ()
    assert switch_groups(switched_forest(1, 18), [0] * 18) == ()
    assert switch_groups(switched_forest(2, 2, "reduce"), [0, 0, 1, 1]) == ()


Blocks = list[list[ThreadBlock]]


def step(kind: Any, source: tuple[Any, int] | None, target: tuple[Any, int] | None, *after: int) -> Instruction:
    """One step with one chunk, after the first steps of these thread blocks."""
    ends = [end and ChunkRange(*end) for end in (source, target)]
    return Instruction(kind, ends[0], ends[1], 1, tuple(Dependency(block, 0) for block in after))


def exchange(chunks: int = 1) -> Blocks:
    """Three ranks that send each other all chunks of their shard; the second receiver gets them in reverse order."""
    found = []
    for rank in range(3):
        blocks, orders = [], (range(chunks), range(chunks - 1, -1, -1))
        for peer, order in zip(((rank + 1) % 3, (rank + 2) % 3), orders, strict=True):
            blocks.append(ThreadBlock(peer, None, 0, tuple(step("send", ("input", at), None) for at in order)))
        for peer, order in zip(((rank - 1) % 3, (rank - 2) % 3), orders, strict=True):
            steps = tuple(step("recv", None, ("output", peer * chunks + at)) for at in order)
            blocks.append(ThreadBlock(None, peer, 0, steps))
        copied = tuple(step("copy", ("input", at), ("output", rank * chunks + at)) for at in range(chunks))
        found.append([*blocks, ThreadBlock(None, None, 0, copied)])
    return found


def stored(blocks: Blocks, chunks: int = 1, scratch: int = 0) -> tuple[int, int]:
    """Numbers of puts and stores of a program whose switch connects all three."""
    ranks = tuple(RankProgram(rank, chunks, 3 * chunks, scratch, tuple(own)) for rank, own in enumerate(blocks))
    program = Program("hand-made", ALLGATHER, 3, 3 * chunks, ranks)
    plan = to_execution_plan(program, slice_bytes=None, switch_groups=[(0, 1, 2)])
    run_execution_plan(plan, interleavings=4)
    return written(plan)["put"], written(plan)["gstore"]


def test_sends_in_opposite_orders_stay_apart() -> None:
    """No store can be the first for one receiver and the second for the other."""
    assert stored(exchange()) == (0, 3)
    assert stored(exchange(2), 2) == (12, 0)


def test_a_store_waits_until_all_may_be_overwritten() -> None:
    """Here rank 1 copies something into the target before."""
    blocks = exchange()
    (receive,) = blocks[1][2].instructions
    blocks[1][2] = ThreadBlock(None, 0, 0, (step("copy", ("input", 0), ("output", 0)), receive))
    assert stored(blocks) == (0, 3)


def test_only_outputs_are_stored_to() -> None:
    """Ranks that receive in scratch are sent to."""
    blocks = exchange()
    for rank, at in ((1, 2), (2, 3)):
        steps = step("recv", None, ("scratch", 0)), step("copy", ("scratch", 0), ("output", 0))
        blocks[rank][at] = ThreadBlock(None, 0, 0, steps)
    assert stored(blocks, scratch=1) == (2, 2)
    blocks[0].append(ThreadBlock(None, None, 0, (step("copy", ("input", 0), ("scratch", 0)),)))
    for at, peer in ((0, 1), (1, 2)):
        blocks[0][at] = ThreadBlock(peer, None, 0, (step("send", ("scratch", 0), None, 5),))
    assert stored(blocks, scratch=1) == (2, 2)


def test_a_store_is_not_made_where_its_own_copy_would_be_in_the_way() -> None:
    """Rank 0 gets its own shard back from rank 1."""
    blocks = exchange()
    blocks[0][4] = ThreadBlock(None, 1, 1, (step("recv", None, ("output", 0)),))
    blocks[1].append(ThreadBlock(0, None, 1, (step("send", ("output", 0), None, 2),)))
    assert stored(blocks) == (3, 2)


def test_copies_of_more_than_is_stored_stay() -> None:
    """Of two trees per root one is for the switch: its store would write what a larger copy writes too."""
    trees = []
    for root in range(3):
        one, other = (root + 1) % 3, (root + 2) % 3
        trees += [(root, 1, [(root, 3), (3, one), (3, other)]), (root, 1, [(root, 3, one), (one, 3, other)])]
    program = lower(Forest.from_paths(3, 2, trees, switches=[3]), "allgather")
    stores = [
        written(to_execution_plan(program, slice_bytes=slices, switch_groups=[(0, 1, 2)]))["gstore"]
        for slices in (None, 4096)
    ]
    assert stores == [0, 3]


@pytest.mark.parametrize(
    "paths", [[(0, 3), (3, 4), (4, 1), (4, 2)], [(0, 4, 3), (3, 1), (3, 2)], [(0, 3), (3, 1), (0, 4), (4, 2)]]
)
def test_trees_through_two_switches_are_no_stars(paths: list[tuple[int, ...]]) -> None:
    """One above the other, only passed, or side by side."""
    forest = Forest.from_paths(3, 1, [(0, 1, paths)], root_weights=[1, 0, 0], switches=[3, 4])
    assert not is_star_schedule(forest, BROADCAST)


def test_the_exporter_says_what_becomes_of_switches(tmp_path: Path) -> None:
    """Stores need a newer version, and sums of several boxes are made by ranks."""

    def notes(collective: str, boxes: int, gpus: int, **options: str) -> list[str]:
        plan = switched_plan(collective, boxes, gpus)
        plan.to_mscclpp_json(tmp_path / "plan.json", **options)
        return [note.partition(" in the plan")[0] for note in mscclpp_notes(plan, tmp_path / "plan.json")]

    sums, copied = "ranks add up what switches add up", "ranks send each copy that switches make"
    assert notes("allreduce", 1, 4) == []
    (stored,) = notes("allgather", 1, 4)
    assert "not in 0.9.0" in stored
    assert notes("allgather", 1, 4, version="0.9.0") == [copied]
    assert notes("allreduce", 2, 3) == [stored, sums]
    assert notes("allreduce", 2, 3, version="0.9.0") == [copied, sums]
    assert notes("reduce_scatter", 2, 2) == [sums]


def test_switches_that_do_not_add_what_is_asked_are_refused(tmp_path: Path) -> None:
    """With the way out."""
    for limits, words in (({"operators": ("max",)}, "operators max only"), ({"types": ("int8",)}, "types int8 only")):
        plan = switched_plan("allreduce", 1, 4, **limits)
        with pytest.raises(UnsupportedError, match=f"{words}.*--no-in-network"):
            export_mscclpp_json(plan, tmp_path / "plan.json")
    with pytest.raises(UnsupportedError, match="channels is 2; expected 1 for barriers"):
        export_mscclpp_json(switched_plan("allreduce", 1, 4), tmp_path / "plan.json", channels=2)


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    """Plans of one box and of two."""
    star, two = switched_schedule("allreduce", 1, 3), switched_schedule("allgather", 2, 3)
    of = [0, 0, 0, 1, 1, 1]
    boxes = to_execution_plan(lower(two, "allgather"), boxes=of, slice_bytes=None, switch_groups=switch_groups(two, of))
    return {
        "sum": document_of(star_plan(star, ALLREDUCE, "sum", PlanOptions())),
        "sum in place": document_of(star_plan(star, ALLREDUCE, "sum", PlanOptions(placement="in-place"))),
        "copies": document_of(star_plan(switched_forest(1, 3), ALLGATHER, "copies", PlanOptions())),
        "boxes": document_of(boxes),
    }


NAMES = ("sum", "sum in place", "copies", "boxes")


@pytest.mark.parametrize("name", NAMES)
def test_no_operation_can_be_left_out(documents: dict[str, Document], name: str) -> None:
    """Nor a sync beside a store or a sum."""
    for number, (held, position) in enumerate(operations(documents[name])):
        if held[position]["name"] == "nop" and name == "boxes":
            continue
        changed = copy.deepcopy(documents[name])
        ops, at = operations(changed)[number]
        del ops[at]
        with pytest.raises(ColloptError):
            run_document(changed)


@pytest.mark.parametrize("name", NAMES)
def test_no_chunk_can_be_another_one(documents: dict[str, Document], name: str) -> None:
    """Each source and target moved on by one chunk is refused or runs wrong."""
    for number, (held, position) in enumerate(operations(documents[name])):
        for side in ("src_buff", "dst_buff"):
            if side in held[position]:
                changed = copy.deepcopy(documents[name])
                ops, at = operations(changed)[number]
                ops[at][side][0]["index"] += 1
                with pytest.raises(ColloptError):
                    run_document(changed)


@pytest.mark.parametrize("name", ["sum", "copies"])
@pytest.mark.parametrize("end", [0, -1])
def test_barriers_are_needed(documents: dict[str, Document], name: str, end: int) -> None:
    """Without the first, a GPU may not have started; without the last, it may end too early."""
    changed = copy.deepcopy(documents[name])
    for gpu in changed["gpus"]:
        for block in gpu["threadblocks"]:
            at = [place for place, each in enumerate(block["ops"]) if each["name"] in ("signal", "wait")]
            for place in at[:2] if end == 0 else at[2:]:
                block["ops"][place] = {"name": "nop"}
    with pytest.raises(ProgramError, match="may not have started" if end == 0 else "may end before"):
        run_document(changed)


def test_relaxed_signals_are_named_as_the_cause(documents: dict[str, Document]) -> None:
    """A last barrier of relaxed signals waits, but for no stores; without any barrier, signals are not to blame."""
    changed = copy.deepcopy(documents["sum"])
    for gpu in changed["gpus"]:
        for block in gpu["threadblocks"]:
            signals = [operation for operation in block["ops"] if operation["name"] in ("signal", "wait")]
            for operation in signals[2:]:
                operation["name"] = f"rlx{operation['name']}"
    with pytest.raises(ProgramError, match=r"may end before .*; rlxsignal and rlxwait.* use signal and wait"):
        run_document(changed)
    for gpu in changed["gpus"]:
        for block in gpu["threadblocks"]:
            block["ops"] = [op if not op["name"].startswith("rlx") else {"name": "nop"} for op in block["ops"]]
    with pytest.raises(ProgramError, match="let it wait for that"):
        run_document(changed)


def test_a_sum_that_nothing_keeps_from_a_write_is_a_race() -> None:
    """Here rank 0 copies into its output while the others may be storing sums there."""
    document = document_of(star_plan(switched_schedule("allreduce", 1, 3), ALLREDUCE, "sum", PlanOptions()))
    block = document["gpus"][0]["threadblocks"][0]["ops"]
    place = {"type": "i", "index": 1, "size": 1}
    block.insert(3, {"name": "copy", "src_buff": [place], "dst_buff": [place | {"type": "o"}]})
    with pytest.raises(ProgramError, match=r"race: .* output chunk 1 of rank 0 .* nothing keeps them in order"):
        run_document(document)


def test_the_order_of_thread_blocks_shows_in_data_too(documents: dict[str, Document]) -> None:
    """A group that leaves out a rank adds up too little."""
    changed = copy.deepcopy(documents["sum"])
    for gpu in changed["gpus"][:2]:
        gpu["channels"][1]["rank_groups"][0].update(size=2, ranks=[0, 1])
    changed["gpus"][2]["channels"].pop(1)
    changed["gpus"][2]["threadblocks"][0]["channels"][1]["channel_ids"] = [0]
    changed["gpus"][2]["threadblocks"][0]["ops"] = [
        each if each["name"] != "glres" else {"name": "nop"} for each in changed["gpus"][2]["threadblocks"][0]["ops"]
    ]
    with pytest.raises(ProgramError, match="wrong data"):
        run_document(changed)


def test_a_sum_in_place_is_a_write_on_all_gpus(documents: dict[str, Document]) -> None:
    """Also on the first one, whose chunk it reads at the same place."""
    document = copy.deepcopy(documents["sum in place"])
    gpu = document["gpus"][0]
    gpu["scratch_chunks"] = 1
    ends = [{"type": letter, "index": at, "size": 1} for letter, at in (("i", 1), ("s", 0))]
    gpu["threadblocks"][0]["ops"].insert(3, {"name": "copy", "src_buff": ends[:1], "dst_buff": ends[1:]})
    with pytest.raises(ProgramError, match=r"race: .* chunk 1 of rank 0 .* nothing keeps them in order"):
        run_document(document)


def test_lint_knows_what_switch_plans_need(tmp_path: Path, documents: dict[str, Document]) -> None:
    """Data types, versions and memory."""
    found = {}
    for name in ("sum", "boxes"):
        (tmp_path / name).write_text(json.dumps(documents[name]))
        found[name] = " ".join(finding.message for finding in lint_plan(tmp_path / name).findings)
    assert "not 8-bit integers" in found["sum"]
    assert "invalid operation" not in found["sum"]
    assert "invalid operation for MSCCL++ 0.9.0" in found["boxes"]
    assert [lint_plan(tmp_path / name).version for name in ("sum", "boxes")] == ["0.9.0", "0.10.0"]
    assert [lint_plan(tmp_path / name, "0.9.0").runs for name in ("sum", "boxes")] == [True, False]
    assert all("need NVLS" in text for text in found.values())
