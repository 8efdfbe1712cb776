"""Figures 12 to 14, 16 and 17 of the FAST paper: what it prints, measured on GPUs, beside simulated times.

A range is over transfers of 100 MB to 1 GB per GPU, on 4 servers of 8 GPUs, unless the case says something else.  The
paper's figures have no numbers; what it prints is in its text (sections 4.4, 5.1, 5.3 and 5.4).  Figure 15, a training
run, is not simulated.  Peers are simulated as `all_to_allv_baselines` says, without what their kernels cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median

import numpy as np
import numpy.typing as npt
from all_to_allv_baselines import BASELINES

from collopt.planners.pairs.fast import schedule_all_to_allv
from collopt.schedules.fast.two_tier_cost import H200, MI300X, TwoTierModel

IntArray = npt.NDArray[np.int64]

GPUS = 8
SHAPE = {"servers": 4, "gpus_per_server": GPUS}
PER_GPU = (100, 200, 400, 1000)
"""MB."""
SKEW, SKEWS = 0.8, (0.3, 0.5, 0.7, 0.9)
RATIOS = (2, 4, 9, 16, 36)
"""Scale-up over scale-out bandwidth of figure 17b."""
LARGE = (4, 8, 12, 16, 24, 40)
"""Servers of figure 17a."""
MEAN_BYTES = 50_000_000
PEERS = {
    "12a, H200, random, PXN": (H200, None, "pxn", "1.01-1.1"),
    "12a, H200, random, two-hop": (H200, None, "two-hop", "1.5-1.9"),
    "12a, H200, random, padded": (H200, None, "padded", "1.5-1.7"),
    "12b, H200, Zipf, PXN": (H200, SKEW, "pxn", "1.2-1.3"),
    "12b, H200, Zipf, two-hop": (H200, SKEW, "two-hop", "1.2-1.5"),
    "12b, H200, Zipf, padded": (H200, SKEW, "padded", "over 3"),
    "13a, MI300X, random, padded": (MI300X, None, "padded", "1.3-1.8"),
    "13a, MI300X, random, SpreadOut": (MI300X, None, "spread-out", "1.9-2.1"),
    "13a, MI300X, random, at once": (MI300X, None, "at-once", "1.1-10"),
    "13b, MI300X, Zipf, padded": (MI300X, SKEW, "padded", "2.9-3.8"),
    "13b, MI300X, Zipf, SpreadOut": (MI300X, SKEW, "spread-out", "2.5-2.8"),
    "13b, MI300X, Zipf, at once": (MI300X, SKEW, "at-once", "1.3-2.6"),
}
"""Model, skew, peer, and how many times FAST's bandwidth the paper prints."""
BY_SKEW = {"at-once": "1.6-10", "spread-out": "2.1-3.1", "padded": "2.1-4.5"}
PLANNING = {4: "25", 8: "221", 12: "805", 40: "77000"}
"""Servers, and the planning time of figure 16 in µs."""


def traffic(servers: int, skew: float | None, megabytes: float) -> IntArray:
    """Cells uniform from 0 to twice the mean, or by Zipf's law in an order of each rank's own; MB per GPU."""
    random, ranks = np.random.default_rng(servers), servers * GPUS
    cells = random.random((ranks, ranks))
    if skew is not None:
        shares = 1 / np.arange(1, ranks + 1) ** skew
        cells = np.array([random.permutation(shares) for _ in range(ranks)])
    return (cells * (megabytes * 1e6 * ranks / cells.sum())).astype(np.int64)


def fast_us(matrix: IntArray, model: TwoTierModel) -> float:
    """Simulated time of FAST."""
    servers = len(matrix) // GPUS
    return float(schedule_all_to_allv(matrix, servers=servers, gpus_per_server=GPUS).completion_time(model))


def gains(peer: str, model: TwoTierModel, matrices: Iterable[IntArray]) -> list[float]:
    """How many times FAST's time a peer takes."""
    return [
        float(BASELINES[peer](matrix, **SHAPE).completion_time(model)) / fast_us(matrix, model) for matrix in matrices
    ]


def over_optimum(servers: int) -> float:
    """FAST's time over that of Theorem 1, parts of 50 MB on average."""
    matrix = traffic(servers, None, MEAN_BYTES / 1e6 * servers * GPUS)
    schedule = schedule_all_to_allv(matrix, servers=servers, gpus_per_server=GPUS)
    return float(schedule.completion_time(H200) / schedule.optimum(H200))


def normalized(ratio: int) -> float:
    """Bandwidth per GPU over the scale-out bandwidth."""
    model = TwoTierModel(ratio * H200.scale_out, H200.scale_out)
    matrix = traffic(4, None, 1000)
    return float(matrix.sum()) / len(matrix) / fast_us(matrix, model) / 1000 / float(H200.scale_out)


def planning_us(servers: int) -> float:
    """Median of calls."""
    matrix, times = traffic(servers, None, 400), []
    for _ in range(20):
        start = time.perf_counter()
        schedule_all_to_allv(matrix, servers=servers, gpus_per_server=GPUS)
        times.append((time.perf_counter() - start) * 1e6)
    return median(times[1:])


def row(case: str, printed: str, values: Iterable[float]) -> dict[str, object]:
    """One line of the table."""
    found = list(values)
    digits: Callable[[float], str] = lambda value: f"{value:.3g}"  # noqa: E731
    here = "-".join(dict.fromkeys(map(digits, (min(found), max(found)))))
    return {"benchmark": "fast-figures", "case": case, "printed_range": printed, "range": here}


def measure() -> list[dict[str, object]]:
    """All figures; sizes and skews are the ends of a range."""
    rows = [
        row(f"{case} / FAST", printed, gains(peer, model, (traffic(4, skew, size) for size in PER_GPU)))
        for case, (model, skew, peer, printed) in PEERS.items()
    ]
    rows += [
        row(f"14a, MI300X, Zipf 0.3-0.9, {peer} / FAST", printed, gains(peer, MI300X, by_skew()))
        for peer, printed in BY_SKEW.items()
    ]
    optimum = [float(schedule_all_to_allv(each, **SHAPE).optimum(MI300X)) for each in by_skew()]
    times = [fast_us(each, MI300X) for each in by_skew()]
    rows.append(row("14b, the same, FAST / optimum", "1.08", map(np.divide, times, optimum)))
    rows += [
        row(f"16, {servers} servers, planning, µs", printed, [planning_us(servers)])
        for servers, printed in PLANNING.items()
    ]
    rows.append(row("17a, H200, 4-40 servers, FAST / optimum", "1.05", map(over_optimum, LARGE)))
    rows += [
        row(f"17b, scale-up / scale-out {ratio}, bandwidth", "below 1.25", [normalized(ratio)]) for ratio in RATIOS
    ]
    return rows


def by_skew() -> list[IntArray]:
    """Traffic of 400 MB per GPU, from even to skewed."""
    return [traffic(4, skew, 400) for skew in SKEWS]


if __name__ == "__main__":
    for each in measure():
        print(each)
