"""Transfer costs on servers with two tiers of links, scale-up inside and scale-out between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import NamedTuple

import numpy as np

from ...errors import CapacityOverflowError, UnsupportedError
from ...support.arrays import IntArray
from ...support.quantities import Exact, as_bandwidth, as_latency
from ...support.validation import as_whole, shown
from .segments import StagedArrays, busiest_by_shift, handed_over, local_bytes, redistributed_by_stage

DEFAULT_WAKE_UP = Fraction(2)
"""µs.  The FAST paper gives no number; a small write over InfiniBand takes about as long."""
NS_PER_US = 1000
SHORTEST = 2.0**20  # bytes of stages that need not be shorter for the sake of scratch
MAX_UNITS = 2**62


@dataclass(frozen=True)
class TwoTierModel:
    """Each step of a transfer takes a fixed delay and its bytes over the bandwidth (FAST, section 5.4).

    Attributes
    ----------
    scale_up : Fraction
        GB/s of a GPU to the other GPUs of its server, each way; the paper's B_1.
    scale_out : Fraction
        GB/s of a GPU to GPUs of other servers, each way; the paper's B_2.
    wake_up : Fraction
        µs before a step's first byte.
    scale_up_link : Fraction, optional
        GB/s from a GPU to each other one of its server, where these have a link each, as in a mesh of xGMI, instead of
        a switch.
    """

    scale_up: Exact
    scale_out: Exact
    wake_up: Exact = DEFAULT_WAKE_UP
    scale_up_link: Exact | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale_up", as_bandwidth(self.scale_up, "the scale-up tier"))
        if self.scale_up_link is not None:
            link = as_bandwidth(self.scale_up_link, "a scale-up link")
            object.__setattr__(self, "scale_up_link", link)
        object.__setattr__(self, "scale_out", as_bandwidth(self.scale_out, "the scale-out tier"))
        object.__setattr__(self, "wake_up", as_latency(self.wake_up, "the wake-up"))

    @cached_property
    def prices(self) -> tuple[float, float, float, float]:
        """Rounded ns for a byte inside a server and between servers and for a wake-up, and `SHORTEST`, for kernels."""
        return 1 / float(self.scale_up), 1 / float(self.scale_out), float(self.wake_up) * NS_PER_US, SHORTEST

    @property
    def waits_for_links(self) -> bool:
        """Whether links inside servers may be busy for longer than a stage, as they are not twice as fast as a NIC."""
        return self.scale_up_link is not None and Fraction(self.scale_up_link) < 2 * Fraction(self.scale_out)

    def of_units(self, unit: int) -> TwoTierModel:
        """Model of schedules that count units of so many bytes."""
        link = None if self.scale_up_link is None else Fraction(self.scale_up_link) / unit
        return TwoTierModel(Fraction(self.scale_up) / unit, Fraction(self.scale_out) / unit, self.wake_up, link)

    def worst_factor(self, gpus_per_server: int) -> Fraction:
        """Bound the time of FAST over the optimum, for servers of m GPUs: ``1 + 2 (m - 1) B_2/B_1``, which is reached.

        Proved in ``docs/explanation/refutations.md``.  Like Theorem 3 of FAST, which fails, this takes ``B_1 >= (m - 1)
        B_2`` and local traffic of at most 1/n of the bytes of each of n servers, is of the paper's own pipeline, and
        leaves out wake-ups and the rounding to whole bytes.
        """
        ratio = Fraction(self.scale_out) / Fraction(self.scale_up)
        return 1 + 2 * (as_whole(gpus_per_server, "gpus_per_server") - 1) * ratio


H200 = TwoTierModel(450, 50)
"""FAST's NVIDIA testbed (section 5): NVLink and 400 Gb/s InfiniBand."""
MI300X = TwoTierModel(448, "12.5", scale_up_link=64)
"""FAST's AMD testbed (section 5): a mesh of seven links of Infinity Fabric per GPU, and 100 Gb/s RoCE."""


def check_model(model: object) -> None:
    """Raise `UnsupportedError` unless it is a `TwoTierModel`."""
    if not isinstance(model, TwoTierModel):
        raise UnsupportedError(f"the model is {shown(model)}; expected a TwoTierModel, such as two_tier_cost.H200")


class TwoTierTimes(NamedTuple):
    """µs before the first stage, `balance`, of all `stages`, after the last, `tail`, and of the `local` part by itself.

    The local part runs beside the stages.
    """

    balance: Fraction
    stages: Fraction
    tail: Fraction
    local: Fraction

    @property
    def total(self) -> Fraction:
        """The whole: all but the local part, which is in the others as far as they do not hide it."""
        return self.balance + self.stages + self.tail


def two_tier_times(schedule: StagedArrays, model: TwoTierModel, pipeline: str) -> TwoTierTimes:
    """Predict the times of a schedule in one of `PIPELINES`."""
    check_model(model)
    if not isinstance(pipeline, str) or pipeline not in _PIPELINES:
        raise UnsupportedError(f"the pipeline is {shown(pipeline)}; expected one of {', '.join(_PIPELINES)}")
    ticks = _Ticks.of(schedule, model)
    return TwoTierTimes(*(Fraction(end, ticks.per_us) for end in _PIPELINES[pipeline](schedule, ticks)))


def _by_stage(schedule: StagedArrays, ticks: _Ticks) -> Sequence[int]:
    """Steps in which one stage is balanced, the one before sent and the one before that redistributed, all at once.

    A step takes a wake-up, and as long as its stage, or the busiest GPU or link inside a server, if that is longer.
    """
    loads = schedule.step_loads
    inside = np.maximum(loads.busiest * ticks.scale_up, loads.busiest_link * ticks.scale_up_link)
    times = np.maximum(inside, np.pad(schedule.stage_bytes, 1) * ticks.scale_out)
    times += ticks.wake_up * (times > 0)
    local = np.where(schedule.homes[:, None] == schedule.homes, schedule.traffic, 0)
    np.fill_diagonal(local, 0)
    port = int(max(local.sum(axis=0).max(), local.sum(axis=1).max()))
    longest = max(port * ticks.scale_up, int(local.max()) * ticks.scale_up_link)
    return int(times[0]), int(times[1:-1].sum()), int(times[-1]), longest + ticks.wake_up * (longest > 0)


def _balance_first(schedule: StagedArrays, ticks: _Ticks) -> Sequence[int]:
    """Pipeline of FAST, section 4.3: everything is balanced before the first stage.

    Stages between servers follow one another.  Inside servers there is first the balancing, then the local part, then
    one redistribution after another; each goes by SpreadOut.
    """
    behind = ticks.inside(redistributed_by_stage(schedule))
    ready = ticks.inside(busiest_by_shift(schedule, handed_over(schedule)))
    local = ticks.inside(busiest_by_shift(schedule, local_bytes(schedule)))
    out = start = int(ready.max()) if schedule.num_stages else 0
    up = local + ready
    for size, after in zip(schedule.stage_bytes.tolist(), behind, strict=True):
        out += ticks.wake_up + size * ticks.scale_out
        up = np.where(after, np.maximum(up, out) + after, up)
    return start, out - start, max(0, int(up.max()) - out), int(local.max())


_PIPELINES: dict[str, Callable[[StagedArrays, _Ticks], Sequence[int]]] = {
    "by stage": _by_stage,
    "balance first": _balance_first,
}
PIPELINES = tuple(_PIPELINES)
"""When GPUs balance: in the step before each stage, as programs do, or before the first stage, as in FAST."""


class _Ticks(NamedTuple):
    """A model in whole multiples of a unit of time: a byte of a GPU inside its server, one of a lane, a wake-up, a µs.

    And a byte of a link in a server, 0 where a switch joins its GPUs.
    """

    scale_up: int
    scale_out: int
    wake_up: int
    per_us: int
    scale_up_link: int

    @classmethod
    def of(cls, schedule: StagedArrays, model: TwoTierModel) -> _Ticks:
        up, out = 1 / Fraction(model.scale_up), 1 / (Fraction(model.scale_out) * schedule.lane_rate)
        link = Fraction(0) if model.scale_up_link is None else 1 / Fraction(model.scale_up_link)
        wake_up = Fraction(model.wake_up) * NS_PER_US
        unit = lcm(up.denominator, out.denominator, wake_up.denominator, link.denominator)
        ticks = cls(int(up * unit), int(out * unit), int(wake_up * unit), unit * NS_PER_US, int(link * unit))
        steps = (schedule.num_stages + 2) * 2 * max(schedule.sizes)
        slowest = max(ticks.scale_up, ticks.scale_out, ticks.scale_up_link)
        largest = int(schedule.traffic.sum()) * slowest + ticks.wake_up * steps
        if largest >= MAX_UNITS:
            raise CapacityOverflowError(
                f"times of up to {largest} units do not fit 64 bits; expected less traffic, or rounder bandwidths"
            )
        return ticks

    def inside(self, busiest: IntArray) -> IntArray:
        """Time of SpreadOut's steps, at once if each has its links, else in turn; `busiest` of shape (..., steps)."""
        times, steps = busiest.sum(axis=-1) * self.scale_up, (busiest > 0).sum(axis=-1)
        if self.scale_up_link:
            times = np.maximum(times, busiest.max(axis=-1, initial=0) * self.scale_up_link)
            steps = np.minimum(steps, 1)
        return np.asarray(times + self.wake_up * steps, dtype=np.int64)
