"""`StepAllreduce`: a reduce-scatter in steps and an allgather in steps, one after the other."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...support.formatting import count_text
from ...support.validation import as_kind, shown
from ...topologies import DirectGraph, Topology
from ..paths.schedule import AllreduceSchedule
from .schedule import StepSchedule


@dataclass(frozen=True, eq=False)
class StepAllreduce(AllreduceSchedule):
    """A reduce-scatter in steps, `reduce`, and after its last step an allgather, `broadcast`.

    Anything but a `StepSchedule` raises `UnsupportedError`; whether the two belong together is for
    `collopt.schedules.verified_loads` to say.
    """

    parts: ClassVar[str] = StepSchedule.parts
    subject: ClassVar[str] = StepSchedule.subject
    load_text: ClassVar[str] = StepSchedule.load_text
    pipelined: ClassVar[bool] = False

    reduce: StepSchedule
    broadcast: StepSchedule

    def __post_init__(self) -> None:
        for name in ("reduce", "broadcast"):
            as_kind(getattr(self, name), StepSchedule, f"the {name} of the allreduce")

    @property
    def schedules(self) -> tuple[StepSchedule, ...]:
        """Both schedules, in execution order."""
        return self.reduce, self.broadcast

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a shard, once for each step of both."""
        return sum((schedule.load_units for schedule in self.schedules), ())

    @property
    def num_steps(self) -> int:
        """Number of steps of both."""
        return self.reduce.num_steps + self.broadcast.num_steps

    @property
    def num_sends(self) -> int:
        """Number of sends of both."""
        return self.reduce.num_sends + self.broadcast.num_sends

    @property
    def size_text(self) -> str:
        """Such as ``"6 steps, 12 chunks per shard"``; both parts in turn where they are not cut alike."""
        chunks = self.broadcast.chunks_per_shard
        if self.reduce.chunks_per_shard != chunks:
            return f"{self.reduce.size_text}, then {self.broadcast.size_text}"
        return f"{count_text(self.num_steps, 'step')}, {count_text(chunks, 'chunk')} per shard"

    def link_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in each step: the rows of `reduce`, then those of `broadcast`.

        Each part counts in chunks of its own; see `StepSchedule.link_loads`.
        """
        return np.concatenate([schedule.link_loads(topology) for schedule in self.schedules])

    def check_fit(self, network: Topology | DirectGraph) -> None:
        """Raise `UnsupportedError` unless both are for as many ranks, one reduces and the other broadcasts."""
        for part in self.schedules:
            part.check_fit(network)
        directions = tuple(part.direction for part in self.schedules)
        if directions != ("reduce", "broadcast"):
            raise UnsupportedError(
                f"the two schedules of the allreduce have the directions {shown(directions)}; "
                "expected 'reduce' and 'broadcast'"
            )

    def time(
        self, topology: Topology, num_bytes: int | str, slices: int | None = None, inverse_rate: Fraction | None = None
    ) -> Fraction:
        """Sum of both, in µs; see `StepSchedule.time`."""
        self.check_fit(topology)
        return sum((part.time(topology, num_bytes, slices, inverse_rate) for part in self.schedules), Fraction(0))


AnyStepSchedule = StepSchedule | StepAllreduce
"""All schedules that consist of steps."""


def check_fit(schedule: object, network: Topology | DirectGraph) -> None:
    """Raise `UnsupportedError` unless it is a schedule in steps for as many ranks as the network has."""
    if not isinstance(schedule, AnyStepSchedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected a StepSchedule or a StepAllreduce")
    schedule.check_fit(network)
