"""Loads the kernels of dispatches when it is imported: once, before processes are forked that need them."""

from __future__ import annotations

import numpy as np

from collopt.planners import count_dispatch, schedule_dispatch
from collopt.runtime.all_to_allv.dispatch_rounds import rank_hops
from collopt.runtime.all_to_allv.steps import Exchange, rank_steps
from collopt.solvers.steps.dispatch import sorted_by_mask

_, tokens, begins = sorted_by_mask(np.array([[1, 0]], dtype=np.uint8), 2)
rank_steps(Exchange(np.ones((4, 4), dtype=np.int64).tobytes(), 2, 2, 4), 0)
counts = count_dispatch([np.array([[0, 1]])] * 4, np.arange(4), servers=4, gpus_per_server=1)
assert len(schedule_dispatch(counts, relay_rounds=1).routes)
plan = schedule_dispatch(
    count_dispatch([np.zeros((1, 1), dtype=np.int64)] * 4, np.arange(4), servers=2, gpus_per_server=2)
)
rank_hops(plan.rounds[0], 0, tokens, begins, np.repeat([[0, 1, 0, 0]], 4, axis=0))
