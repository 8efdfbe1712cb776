"""A mixture of experts whose all-to-allv changes with every step, planned on the fly.

The trace is made up, and was measured nowhere.  Every GPU has one expert and a batch of tokens, each of which goes to a
few experts.  Popularity follows Zipf's law; every GPU's batch departs from it at random, and in each step some experts
trade places, so no schedule is good for long.  What is planned is the dispatch of tokens to experts; sending results
back is its transpose.

Times are by the model of ``collopt.schedules.stages.two_tier_cost`` on FAST's NVIDIA testbed.  "FAST" is the paper's
pipeline; "by stage" is what collopt runs: short stages, and balanced before each one what goes in it.  "SpreadOut"
sends everything directly, in as many steps as there are other GPUs.  The optimum takes links inside servers as
infinitely fast: nothing can beat it.  Planning is that of the short stages, which are planned first: matrix in, whole
schedule out, on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

import collopt
from collopt import report
from collopt.schedules.stages.two_tier_cost import H200, PIPELINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOKENS = 16_384
"""Per GPU and step."""
EXPERTS_PER_TOKEN = 2
TOKEN_BYTES = 2 * 4096
"""An activation of 4096 numbers of two bytes."""
LIKENESS = 30
"""How closely batches follow the popularity of experts; larger is closer."""


@dataclass(frozen=True)
class Gating:
    """Where tokens go: experts by Zipf's law, with a popularity that drifts."""

    gpus: int
    skew: float
    seed: int

    def traffic(self, steps: int) -> Iterator[npt.NDArray[np.int64]]:
        """Bytes from each GPU (row) to each (column), step by step."""
        random = np.random.default_rng(self.seed)
        shares = 1 / np.arange(1, self.gpus + 1) ** self.skew
        shares = random.permutation(shares / shares.sum())
        for _ in range(steps):
            choices = random.dirichlet(shares * self.gpus * LIKENESS, size=self.gpus)
            yield random.multinomial(TOKENS * EXPERTS_PER_TOKEN, choices) * TOKEN_BYTES
            trading = random.choice(self.gpus, size=max(2, self.gpus // 8), replace=False)
            shares[trading] = shares[np.roll(trading, 1)]


class Step(NamedTuple):
    """What one step takes, in µs."""

    optimum: float
    fast: float
    by_stage: float
    spread_out: float
    planning: float


def simulate(gating: Gating, servers: int, steps: int) -> Iterator[Step]:
    """Plan and time every step of a trace; all schedules are verified."""
    shape: dict[str, Any] = {"servers": servers, "gpus_per_server": gating.gpus // servers}
    collopt.schedule_all_to_allv(np.zeros((gating.gpus, gating.gpus), dtype=np.int64), **shape)  # loads the kernels
    for traffic in gating.traffic(steps):
        start = time.perf_counter()
        short = collopt.schedule_all_to_allv(traffic, **shape)
        planning = (time.perf_counter() - start) * 1e6
        whole = collopt.schedule_all_to_allv(traffic, **shape, stages="plain", max_stage_bytes=2**62)
        for exchange in (short, whole):
            exchange.verify()
        yield Step(
            optimum=float(whole.optimum(H200)),
            fast=float(whole.completion_time(H200, PIPELINES[1])),
            by_stage=float(short.completion_time(H200)),
            spread_out=spread_out(traffic, gating.gpus // servers),
            planning=planning,
        )


def spread_out(traffic: npt.NDArray[np.int64], gpus: int) -> float:
    """Time in µs in which each GPU sends to the next, then to the one after that, and so on; the busiest decides."""
    sources = np.arange(len(traffic))
    total = 0.0
    for shift in range(1, len(traffic)):
        to = (sources + shift) % len(traffic)
        speeds = np.where(sources // gpus == to // gpus, float(H200.scale_up), float(H200.scale_out)) * 1000
        total += float(H200.wake_up) + float((traffic[sources, to] / speeds).max())
    return total


def draw(rows: Sequence[Step]) -> Figure:
    """Completion times above, planning times below, step by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    completion, planning = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    lines = {"SpreadOut": "spread_out", "FAST": "fast", "by stage": "by_stage", "optimum": "optimum"}
    for (label, name), style in zip(lines.items(), ("-", "-", "-", ":"), strict=True):
        completion.plot([getattr(row, name) / 1000 for row in rows], style, label=label)
    planning.plot([row.planning for row in rows])
    completion.set(ylabel="completion, ms", ylim=(0, None))
    planning.set(ylabel="planning, µs", xlabel="step", ylim=(0, None))
    planning.xaxis.get_major_locator().set_params(integer=True)
    completion.legend()
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each step and the medians, and draw them if asked to."""
    parser = argparse.ArgumentParser(description="Plan the all-to-allv of a made-up mixture of experts, step by step.")
    parser.add_argument("--servers", type=int, default=4, metavar="N", help="number of servers (default: 4)")
    parser.add_argument("--gpus", type=int, default=8, metavar="M", help="GPUs of each, one expert each (default: 8)")
    parser.add_argument("--steps", type=int, default=20, metavar="COUNT", help="steps of the trace (default: 20)")
    parser.add_argument("--skew", type=float, default=0.8, help="exponent of Zipf's law; 0 is even (default: 0.8)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (default: 0)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="where to draw it: pdf, png or svg (extra: plot)")
    options = parser.parse_args(arguments)
    if options.servers < 2 or options.gpus < 1 or options.steps < 1 or options.seed < 0 or not 0 <= options.skew <= 4:
        parser.error("expected 2 servers, 1 GPU and 1 step or more, a seed of at least 0, and a skew from 0 to 4")

    print("                            completion, ms  planning, µs")
    print("step      optimum  by stage      FAST  SpreadOut")
    gating = Gating(options.servers * options.gpus, options.skew, options.seed)
    rows: list[Step] = []
    for row in simulate(gating, options.servers, options.steps):
        print(line(str(len(rows)), row))
        rows.append(row)
    print(line("median", Step(*np.median(rows, axis=0).tolist())))
    if options.figure:
        report.save_figure(draw(rows), options.figure)


def line(title: str, row: Step) -> str:
    """One line of the table."""
    times = (row.optimum / 1000, row.by_stage / 1000, row.fast / 1000, row.spread_out / 1000)
    return "{:6}{:11.2f}{:10.2f}{:10.2f}{:11.2f}{:14.0f}".format(title, *times, row.planning)


if __name__ == "__main__":
    main()
