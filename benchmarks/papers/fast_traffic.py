"""Traffic of the FAST paper's evaluation, and simulated times on it of FAST, of its own pipeline and of its peers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median

import numpy as np
import numpy.typing as npt
from all_to_allv_baselines import BASELINES

from collopt.planners.all_to_all.fast import schedule_all_to_allv
from collopt.schedules.stages.schedule import AllToAllvSchedule
from collopt.schedules.stages.two_tier_cost import PIPELINES, TwoTierModel

IntArray = npt.NDArray[np.int64]
GPUS = 8
SIZES = 128
"""Sizes that a cell may have under Zipf's law; the paper does not say how many, or what Zipf's law orders."""
CALLS = 20
TOKENS, TOKEN_BYTES = 4096, 8192
"""Of a GPU in the traffic of a mixture of experts; the paper gives neither batch nor hidden size."""


def random_cells(servers: int, megabytes: float) -> IntArray:
    """Cells uniform from 0 to twice the mean; MB per GPU."""
    random = np.random.default_rng(servers)
    return _scaled(random.random((servers * GPUS, servers * GPUS)), megabytes)


def zipf_drawn(servers: int, megabytes: float, skew: float) -> IntArray:
    """Sizes of 1 to 128 units, each drawn with a probability of 1 / size^skew: "Zipfian-distributed sizes"."""
    random, sizes = np.random.default_rng(int(megabytes)), np.arange(1, SIZES + 1)
    chances = 1 / sizes**skew
    shape = (servers * GPUS, servers * GPUS)
    return _scaled(random.choice(sizes, size=shape, p=chances / chances.sum()).astype(float), megabytes)


def zipf_rows(servers: int, megabytes: float, skew: float) -> IntArray:
    """Every GPU divides what it sends by Zipf's law, in an order of its own."""
    random, ranks = np.random.default_rng(servers), servers * GPUS
    shares = 1 / np.arange(1, ranks + 1) ** skew
    return _scaled(np.array([random.permutation(shares) for _ in range(ranks)]), megabytes)


def routed(gpus: int, choices: int, skew: float) -> IntArray:
    """Tokens of a mixture of experts, one on each GPU, to experts that are popular by Zipf's law, a copy for each."""
    random = np.random.default_rng(gpus)
    popularity = -skew * np.log(random.permutation(np.arange(1, gpus + 1)))
    scores = popularity + random.gumbel(size=(gpus, TOKENS, gpus))
    chosen = (-scores).argsort(axis=2)[:, :, :choices].reshape(gpus, -1)
    return TOKEN_BYTES * np.array([np.bincount(each, minlength=gpus) for each in chosen])


def _scaled(cells: npt.NDArray[np.float64], megabytes: float) -> IntArray:
    return (cells * (megabytes * 1e6 * len(cells) / cells.sum())).astype(np.int64)


def planned(matrix: IntArray) -> AllToAllvSchedule:
    """The schedule that runs here: short stages, each balanced in the step before it."""
    return schedule_all_to_allv(matrix, servers=len(matrix) // GPUS, gpus_per_server=GPUS)


def as_in_the_paper(matrix: IntArray) -> AllToAllvSchedule:
    """Whole matchings; with the pipeline "balance first" this is section 4.3."""
    shape = {"servers": len(matrix) // GPUS, "gpus_per_server": GPUS}
    return schedule_all_to_allv(matrix, **shape, stages="plain", max_stage_bytes=2**62)


def ours_us(matrix: IntArray, model: TwoTierModel) -> float:
    """Simulated time of what runs here."""
    return float(planned(matrix).completion_time(model))


def papers_us(matrix: IntArray, model: TwoTierModel) -> float:
    """Simulated time of FAST with its own pipeline."""
    return float(as_in_the_paper(matrix).completion_time(model, PIPELINES[1]))


def optimum_us(matrix: IntArray, model: TwoTierModel) -> float:
    """The time of Theorem 1."""
    return float(planned(matrix).optimum(model))


def peer_us(matrix: IntArray, model: TwoTierModel, peer: str) -> float:
    """Simulated time of a schedule of `all_to_allv_baselines`."""
    shape = {"servers": len(matrix) // GPUS, "gpus_per_server": GPUS}
    return float(BASELINES[peer](matrix, **shape).completion_time(model))


def extremes(values: Iterable[float]) -> tuple[float, float]:
    """The least and the most."""
    found = list(values)
    return min(found), max(found)


def planning_us(servers: int) -> float:
    """Median time of a call."""
    matrix, times = random_cells(servers, 400), []
    for _ in range(CALLS):
        start = time.perf_counter()
        planned(matrix)
        times.append((time.perf_counter() - start) * 1e6)
    return median(times[1:])


Zipf = Callable[[int, float, float], IntArray]
READINGS: dict[str, Zipf] = {"sizes drawn": zipf_drawn, "shares of a GPU": zipf_rows}
"""What "Zipfian-distributed sizes" may mean."""
