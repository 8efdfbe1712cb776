"""Trees and steps alike: their loads, checked, and how fast loads let them be."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from collopt.errors import CertificateError
from collopt.schedules import Allreduce, Forest, Schedule, StepAllreduce, StepSchedule, rate_of_loads, verified_loads
from collopt.topologies import Topology

PAIR = Topology.from_links([("a", "b", 10), ("b", "a", 5)], compute=["a", "b"])
FOREST = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])


def exchange(chunks: int, steps: int) -> StepSchedule:
    """Both ranks send their shard in as many pieces as there are steps."""
    size = chunks // steps
    cuts = [(step, size * step, size * (step + 1)) for step in range(steps)]
    sends = [(step, rank, low, high, (rank, 1 - rank)) for step, low, high in cuts for rank in range(2)]
    return StepSchedule.from_sends(2, chunks, sends)


STEPS = exchange(4, 2)
BOTH = StepAllreduce(replace(exchange(3, 1), direction="reduce"), STEPS)


@pytest.mark.parametrize(
    ("schedule", "loads", "rate"),
    [
        (FOREST, [1, 1], Fraction(1, 5)),
        (Allreduce(replace(FOREST, direction="reduce"), FOREST), [2, 2], Fraction(2, 5)),
        (STEPS, [[2, 2], [2, 2]], Fraction(1, 5)),
        (BOTH, [[3, 3], [2, 2], [2, 2]], Fraction(2, 5)),
    ],
    ids=["forest", "allreduce", "steps", "allreduce in steps"],
)
def test_loads_and_rate_of_every_kind(schedule: Schedule, loads: list[object], rate: Fraction) -> None:
    """A shard over 5 GB/s takes 1/5 ns per byte, however it is cut; both parts of an allreduce take as long again."""
    found = verified_loads(schedule, PAIR)
    assert found.tolist() == loads == schedule.link_loads(PAIR).tolist()
    assert found.dtype == np.int64
    assert rate_of_loads(found, schedule, PAIR) == rate
    assert schedule.root_weights.tolist() == [1, 1]
    assert schedule.total_weight == schedule.num_ranks == 2


def test_what_is_no_schedule_is_refused() -> None:
    """By the checker of its kind; anything else as no trees."""
    with pytest.raises(CertificateError, match="rank 1 never gets chunk 2 of the shard of rank 0"):
        verified_loads(
            StepSchedule.from_sends(2, 4, [*list(STEPS.sends())[:2], *list(STEPS.sends())[3:], (1, 0, 3, 4, (0, 1))]),
            PAIR,
        )
    with pytest.raises(CertificateError, match="the schedule is 3; expected trees, steps or a flow"):
        verified_loads(3, PAIR)  # type: ignore[arg-type]


def test_sizes_are_told_for_both_parts_where_they_differ() -> None:
    """And in the singular where there is one."""
    assert STEPS.size_text == "2 steps, 4 chunks per shard"
    assert exchange(1, 1).size_text == "1 step, 1 chunk per shard"
    assert BOTH.size_text == "1 step, 3 chunks per shard, then 2 steps, 4 chunks per shard"
    assert StepAllreduce(replace(STEPS, direction="reduce"), STEPS).size_text == "4 steps, 4 chunks per shard"
