"""All-to-alls of unequal parts through the torch backend, with processes: in FAST's stages between boxes."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import uneven_tasks

from collopt.runtime.all_to_allv.steps import Exchange, rank_steps
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.runtime.plan_cache import BackendSettings, PlanCache
from collopt.topologies import dgx_h100, ring

PRELOAD = ("torch", "torch.distributed", "uneven_tasks", "collopt.runtime.all_to_allv.steps")


@pytest.mark.slow
def test_parts_that_differ_agree_with_torch() -> None:
    """On eight ranks exchanges of one tensor or a list, waited for or not, run in FAST's stages."""
    rank_steps(Exchange(np.ones((8, 8), dtype=np.int64).tobytes(), 4, 2, 4), 0)
    task = partial(uneven_tasks.exchange, boxes=4, gpus=2)
    for rank, each in enumerate(run_ranks(task, 8, timeout_s=280, preload=PRELOAD)):
        assert [name for name, right in each.agrees.items() if not right] == []
        assert len(each.agrees) == 32
        assert each.planned == {"all_to_allv": 64}
        assert each.fallback == {}
        assert each.refused.startswith("ProgramError: rank 1 has 0 rows for rank 6, which expects 1"), rank


def test_boxes_are_runs_of_ranks() -> None:
    """A network with several boxes gives their sizes, and another network the reason for having none."""
    cache = PlanCache(BackendSettings(topology=uneven_tasks.network(2, 4)), 8)
    assert cache.boxes == ((4, 4), ())
    assert "ring-8 has not several boxes" in str(PlanCache(BackendSettings(topology=ring(8, bandwidth=1)), 8).boxes)
    assert "is not known" in str(PlanCache(BackendSettings(topology=ring(8, bandwidth=1)), 4).boxes)
    network = dgx_h100(boxes=2).without_node("box0/nic3").derate("box1/gpu0", "box1/nic0", "1/2")
    found = PlanCache(BackendSettings(topology=network), 16).boxes
    assert found == ((8, 8), ((1, 1, 1, 0, 1, 1, 1, 1), (Fraction(1, 2), 1, 1, 1, 1, 1, 1, 1)))
    smaller = PlanCache(BackendSettings(topology=dgx_h100(boxes=2).without_node("box1/gpu7")), 15).boxes
    assert smaller == ((8, 7), ())
