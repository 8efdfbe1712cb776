"""Reshardings between boxes of DGX H100: gap, seconds and the factor over copies one by one, at up to 512 GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable

import collopt
from collopt import Demands, Item


def gpu(box: int, number: int) -> str:
    """Name a GPU."""
    return f"box{box}/gpu{number}"


def to_engines(boxes: int) -> Demands:
    """Tensor parallelism over 8 in half of the boxes, for engines of 4 in the others."""
    half = boxes // 2
    return Demands(
        Item(
            f"shard{shard}",
            1,
            [gpu(box, shard) for box in range(half)],
            [gpu(box, first + shard // 2) for box in range(half, boxes) for first in (0, 4)],
        )
        for shard in range(8)
    )


def to_copies(boxes: int) -> Demands:
    """Tensor parallelism over 8 in half of the boxes, for a full copy on each GPU of one other box."""
    half, all_eight = boxes // 2, [gpu(boxes // 2, number) for number in range(8)]
    return Demands(Item(f"s{shard}", 1, [gpu(box, shard) for box in range(half)], all_eight) for shard in range(8))


def to_two_readers(boxes: int) -> Demands:
    """A shard on each GPU of half of the boxes, for two GPUs of another box each."""
    half = boxes // 2
    return Demands(
        Item(f"s{box}-{shard}", 1, [gpu(box, shard)], [gpu(half + box, shard), gpu(half + box, (shard + 1) % 8)])
        for box in range(half)
        for shard in range(8)
    )


def skewed(boxes: int) -> Demands:
    """Eight experts of the first box for one GPU of each other box, the first of four times the size."""
    others = range(1, boxes)
    return Demands(
        Item(f"e{one}", 1 if one else 4, [gpu(0, one)], [gpu(box, one) for box in others]) for one in range(8)
    )


def unsharded(boxes: int) -> Demands:
    """Parts on each GPU of half of the boxes (FSDP), for tensor parallelism over 8 in each of the others."""
    half = boxes // 2
    return Demands(
        Item(f"part{part}", 1, [gpu(*divmod(part, 8))], [gpu(box, part // half) for box in range(half, boxes)])
        for part in range(8 * half)
    )


CASES: list[tuple[str, int, Callable[[int], Demands]]] = [
    ("TP 8 x 2 to TP 4 x 4", 4, to_engines),
    ("TP 8 x 2 to 8 full copies", 4, to_copies),
    ("shards to two readers", 4, to_two_readers),
    ("skewed experts", 4, skewed),
    ("TP 8 x 8 to TP 4 x 16", 16, to_engines),
    ("FSDP 64 to TP 8 x 8", 16, unsharded),
    ("TP 8 x 32 to TP 4 x 64", 64, to_engines),
    ("FSDP 256 to TP 8 x 32", 64, unsharded),
]


def measure() -> list[dict[str, object]]:
    """One row for each case, without multicast by switches."""
    rows = []
    for name, boxes, items in CASES:
        network, demands = collopt.topology("dgx-h100", boxes=boxes).without_abilities(), items(boxes)
        start = time.perf_counter()
        plan = collopt.plan(network, demands)
        seconds = time.perf_counter() - start
        copies = collopt.planners.PLANNERS["item-copies"]
        forest = copies(network, demands).algbw if boxes < 64 else None
        rows.append(
            {
                "benchmark": "demands",
                "case": f"{name}, {network.num_ranks} GPUs",
                "rate_gbps": float(plan.algbw),
                "gap": float(plan.gap),
                "trees": plan.schedule.num_trees,
                "wall_s": round(seconds, 2),
                "copies_ratio": None if forest is None else round(float(plan.algbw / forest), 2),
            }
        )
    return rows
