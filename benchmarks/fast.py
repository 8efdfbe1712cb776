"""FAST: how long it takes to plan an all-to-allv, matrix in, whole schedule out, on one core after warm-up.

Percentiles are of many calls, each with a matrix of its own.  The peer decomposes the same server matrix by SciPy's
maximum matching, anew for each stage, and does nothing else: FAST's planning is many times shorter with all that it
does.  Completion times are simulated on FAST's NVIDIA testbed and over the optimum of its Theorem 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from all_to_allv_baselines import spread_out
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from collopt.planners.all_to_all.fast import schedule_all_to_allv
from collopt.schedules.stages.schedule import AllToAllvSchedule
from collopt.schedules.stages.two_tier_cost import H200, PIPELINES
from collopt.solvers.steps.birkhoff import embed

IntArray = npt.NDArray[np.int64]

GPUS = 8
CALLS = {2: 1000, 4: 1000, 8: 1000, 12: 500, 16: 500, 40: 50, 128: 5}
"""Servers, and how often each is planned."""
LARGE = (128, 256, 512)
MAX_SERVERS_FOR_PEER = 16
MAX_SERVERS_FOR_TIMES = 40
MEAN_BYTES = 50_000_000
SKEW = 0.8


def uniform(servers: int, random: np.random.Generator) -> IntArray:
    """Cells from 0 to twice the mean, all equally likely."""
    return random.integers(0, 2 * MEAN_BYTES, (servers * GPUS, servers * GPUS))


def zipf(servers: int, random: np.random.Generator) -> IntArray:
    """Cells of every rank by Zipf's law, in an order of its own."""
    ranks = servers * GPUS
    shares = 1 / np.arange(1, ranks + 1) ** SKEW
    shares *= MEAN_BYTES * ranks / shares.sum()
    return np.array([random.permutation(shares) for _ in range(ranks)]).astype(np.int64)


TRAFFIC: dict[str, Callable[[int, np.random.Generator], IntArray]] = {"uniform": uniform, "zipf 0.8": zipf}


def recomputed(schedule: AllToAllvSchedule) -> float:
    """CPU seconds of a Birkhoff decomposition that looks for every matching anew."""
    tiles = schedule.traffic.reshape(schedule.servers, GPUS, schedule.servers, GPUS).sum(axis=(1, 3)) // GPUS
    np.fill_diagonal(tiles, 0)
    left = np.empty_like(tiles)
    start = time.process_time()
    bound = embed(tiles, left)
    rows = np.arange(len(left))
    while bound:
        match = maximum_bipartite_matching(csr_array(left > 0), perm_type="column")
        weight = int(left[rows, match].min())
        left[rows, match] -= weight
        bound -= weight
    return time.process_time() - start


def planning(servers: int, name: str, stages: str) -> tuple[dict[str, object], AllToAllvSchedule]:
    """Percentiles of many calls, and the last one's schedule."""
    random = np.random.default_rng(servers)
    matrices = [TRAFFIC[name](servers, random) for _ in range(min(CALLS[servers], 20))]
    calls = CALLS[servers] if stages == "plain" else max(5, CALLS[servers] // 10)
    times = []
    for call in range(calls + 1):
        matrix = matrices[call % len(matrices)]
        start = time.perf_counter()
        schedule = schedule_all_to_allv(matrix, servers=servers, gpus_per_server=GPUS, stages=stages)
        times.append((time.perf_counter() - start) * 1e6)
    p50, p90, p99 = np.percentile(times[1:], [50, 90, 99]).tolist()
    row: dict[str, object] = {
        "benchmark": "fast",
        "case": f"{servers} servers, {name}, {stages}",
        "p50_us": p50,
        "p90_us": p90,
        "p99_us": p99,
        "steps": schedule.num_stages,
    }
    return row, schedule


def over_optimum(schedule: AllToAllvSchedule) -> dict[str, object]:
    """Simulated times over the optimum: of FAST's own pipeline, as it is run here by default, and SpreadOut."""
    shape = {"servers": schedule.servers, "gpus_per_server": schedule.gpus_per_server}
    papers = schedule_all_to_allv(schedule.traffic, **shape, stages="plain", max_stage_bytes=2**62)
    chosen = schedule_all_to_allv(schedule.traffic, **shape)
    optimum = schedule.optimum(H200)
    return {
        "fast_factor": float(papers.completion_time(H200, PIPELINES[1]) / optimum),
        "by_stage_factor": float(chosen.completion_time(H200) / optimum),
        "scratch_percent": float(100 * chosen.scratch_bytes.max() / schedule.traffic.sum(axis=1).mean()),
        "spread_out_factor": float(spread_out(schedule.traffic, **shape).completion_time(H200) / optimum),
    }


def large(servers: int, name: str) -> dict[str, object]:
    """Plan once, in CPU seconds, by default: planning time counts against the time that better stages would save."""
    matrix = TRAFFIC[name](servers, np.random.default_rng(0))
    start = time.process_time()
    schedule = schedule_all_to_allv(matrix, servers=servers, gpus_per_server=GPUS)
    row = {"benchmark": "fast", "case": f"{servers} servers, {name}, chosen", "plan_cpu_s": time.process_time() - start}
    optimum = schedule.optimum(H200)
    return row | {
        "steps": schedule.num_stages,
        "optimum_s": float(optimum) / 1e6,
        "by_stage_factor": float(schedule.completion_time(H200) / optimum),
        "scratch_percent": float(100 * schedule.scratch_bytes.max() / matrix.sum(axis=1).mean()),
    }


def measure() -> list[dict[str, object]]:
    """Plan at every size; ratios are those of the peer to the median call."""
    recomputed(planning(2, "uniform", "plain")[1])
    rows = []
    for servers in CALLS:
        for name in TRAFFIC:
            for stages in ("plain", "fewest"):
                row, schedule = planning(servers, name, stages)
                schedule.verify()
                if stages == "plain" and servers <= MAX_SERVERS_FOR_PEER:
                    row["ratio"] = recomputed(schedule) / (float(str(row["p50_us"])) * 1e-6)
                if stages == "plain" and servers <= MAX_SERVERS_FOR_TIMES:
                    row |= over_optimum(schedule)
                rows.append(row)
    return rows + [large(servers, name) for servers in LARGE for name in TRAFFIC]


if __name__ == "__main__":
    for each in measure():
        print({name: round(value, 3) if isinstance(value, float) else value for name, value in each.items()})
