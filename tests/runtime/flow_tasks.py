"""What the ranks of tests of all-to-all(v) plans do; a module of its own because the processes import it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
from runtime_flows import random_flow, ring_flow
from runtime_tasks import RANKS, join, message_of, same

from collopt.runtime import execute, lower
from collopt.schedules import FlowSchedule

IDLE = FlowSchedule.from_paths(
    np.diag([2, 2, 0, 0]) + 2 * np.eye(RANKS, k=3, dtype=np.int64), 1, [(2, (0, 2, 3), (0, 1))]
)
"""Rank 0 sends to rank 3 through rank 2, which has nothing itself."""


def plan_of(schedule: FlowSchedule) -> SimpleNamespace:
    """As a plan."""
    collective = "all_to_all" if len(np.unique(schedule.traffic)) == 1 else "all_to_allv"
    return SimpleNamespace(collective=collective, schedule=schedule)


def exchanges(rank: int, schedule: FlowSchedule, unit: int, dtype: torch.dtype, slices: int = 1) -> bool:
    """Run a plan on random bytes and compare every bit with torch's own."""
    parts = unit * schedule.traffic // np.gcd.reduce(schedule.traffic, axis=None)
    sends, takes = parts[rank].tolist(), parts[:, rank].tolist()
    width = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(rank)
    mine = torch.randint(0, 256, (sum(sends) * width,), dtype=torch.uint8, generator=generator)
    wanted = torch.empty(sum(takes) * width, dtype=torch.uint8)
    dist.all_to_all_single(wanted, mine, [width * size for size in takes], [width * size for size in sends])
    before, output = mine.clone(), ~wanted
    execute(plan_of(schedule), output.view(dtype), mine.view(dtype), slices=slices)
    return same(output, wanted) and same(mine, before)


def exchange_everything(rank: int, folder: str) -> dict[str, bool]:
    """Equal and unequal parts of all sizes and types, several times on one group."""
    join(rank, folder)
    flows = {
        "ring": ring_flow(RANKS),
        "random": random_flow(RANKS, 2, 3, most=None, chunks_per_unit=3),
        "unequal": random_flow(RANKS, 1, 4, most=6, chunks_per_unit=2),
        "many parts": random_flow(RANKS, 0, 5, most=40),
        "idle rank": IDLE,
    }
    return {
        f"{name} of {unit} {dtype} in {slices} slices": exchanges(rank, schedule, unit, dtype, slices)
        for name, schedule in flows.items()
        for unit, slices, dtype in (
            (0, 1, torch.float32),
            (1, 1, torch.int64),
            (7, 3, torch.int16),
            (1000, 2, torch.uint8),
            (5003, 1, torch.bfloat16),
        )
    }


def wrong_exchanges(rank: int, folder: str) -> dict[str, str]:
    """Calls that one rank, or all, get wrong; the group stays usable after each."""
    join(rank, folder)
    ring, unequal = plan_of(ring_flow(RANKS)), plan_of(random_flow(RANKS, 1, 4, most=6))
    eight, other = torch.zeros(8), rank == 2
    traffic = unequal.schedule.traffic
    row, column = int(traffic[rank].sum()), int(traffic[:, rank].sum())
    calls: dict[str, Callable[[], None]] = {
        "not a multiple": lambda: execute(ring, torch.zeros(7), torch.zeros(7)),
        "one rank's sizes": lambda: execute(ring, torch.zeros(12 if other else 8), eight),
        "sizes differ": lambda: execute(ring, torch.zeros(4 + 4 * other), torch.zeros(4 + 4 * other)),
        "unequal parts": lambda: execute(unequal, torch.zeros(2 * column), torch.zeros(row)),
        "overlap": lambda: execute(ring, eight, eight),
        "overlap of a part": lambda: execute(lower(ring.schedule, "all_to_all"), eight, eight[:4]),
        "no input": lambda: execute(ring, eight, None),
        "no output": lambda: execute(ring, None, eight),
        "idle rank": lambda: execute(
            plan_of(IDLE), torch.zeros(1 if rank == 2 else 3), torch.zeros((6, 3, 0, 0)[rank])
        ),
        "sizes around an idle rank": lambda: execute(
            plan_of(IDLE), torch.zeros((1, 2, 0, 3)[rank]), torch.zeros((2, 2, 0, 0)[rank])
        ),
        "after all that": lambda: execute(ring, torch.zeros(8), eight),
    }
    return {name: message_of(call) for name, call in calls.items()}
