"""What a sweep over many sizes tells a listener while it works."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from collopt.planners import sweep_topologies
from collopt.planners.plans.stages import on_stage


def test_a_sweep_tells_how_far_it_is() -> None:
    """In the thread that asked, whoever works on the sizes."""
    for threads in (None, ThreadPoolExecutor(2)):
        heard: list[str] = []
        with on_stage(heard.append):
            sweep_topologies(range(2, 132), 2, executor=threads)
        assert heard == [*(f"sizes from number {first} of 130" for first in (1, 65, 129))]
        if threads is not None:
            threads.shutdown()
