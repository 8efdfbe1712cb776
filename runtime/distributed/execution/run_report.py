"""What a run on real tensors showed."""

from __future__ import annotations

from dataclasses import dataclass

from ....schedules import ALLGATHER, Collective
from ....schedules.traffic.collective import collective_or_given
from ....support.formatting import bandwidth_text, time_text

ELEMENT_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "int8": 1,
    "uint8": 1,
}


@dataclass(frozen=True)
class RunReport:
    """What a run on real tensors showed.

    Attributes
    ----------
    backend : str
    num_ranks : int
    elements : int
        Of a shard for allgather and reduce_scatter, of what each rank has for each other for all_to_all, on average for
        all_to_allv, of the whole buffer otherwise.
    dtype : str
    repeats : int
    correct : tuple of bool
        Per rank: whether the output was that of torch's own collective every time; see
        `collopt.runtime.distributed.execution.reference_results`.
    seconds : float
        Median over the repeats, of the slowest rank.
    collective : Collective
        Its name will do.
    op : str
        Operation of collectives that add up.
    elements_in_all : int
        Of all ranks' data together; 0 if that follows from the other numbers, as it does but for all_to_allv.
    """

    backend: str
    num_ranks: int
    elements: int
    dtype: str
    repeats: int
    correct: tuple[bool, ...]
    seconds: float
    collective: Collective = ALLGATHER
    op: str = "sum"
    elements_in_all: int = 0

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def all_correct(self) -> bool:
        """Whether every rank got the right data."""
        return all(self.correct)

    @property
    def total_bytes(self) -> int:
        """Size as in nccl-tests: that of the data of all shards together, or of what one rank has for all others."""
        ranks = self.num_ranks if self.collective.in_pairs else 1
        elements = self.elements_in_all or total_elements(self.collective, self.num_ranks, self.elements)
        return elements * ELEMENT_BYTES[self.dtype] // ranks

    @property
    def algbw(self) -> float:
        """GB/s as in nccl-tests: size over time."""
        return self.total_bytes / self.seconds / 1e9

    @property
    def busbw(self) -> float:
        """GB/s as in nccl-tests: `algbw` times the collective's factor, (n - 1) / n for allgather."""
        return self.algbw * float(self.collective.bus_factor(self.num_ranks))

    def __str__(self) -> str:
        """One line."""
        wrong = [rank for rank, correct in enumerate(self.correct) if not correct]
        verdict = f"WRONG on ranks {wrong}" if wrong else "correct on all ranks"
        each = " each" if self.collective.is_sharded else ""
        if self.collective.in_pairs:
            each = " from each to each" + (", on average" if self.collective.takes_traffic else "")
        what = "" if self.collective is ALLGATHER else f"{self.collective} of "
        return (
            f"{self.backend}, {self.num_ranks} ranks, {what}{self.elements} {self.dtype}{each}: {verdict}, "
            f"{time_text(self.seconds * 1e6)}, algbw {bandwidth_text(self.algbw)}, busbw {bandwidth_text(self.busbw)}"
        )


def total_elements(collective: Collective, num_ranks: int, elements: int) -> int:
    """Elements of the whole collective: of all shards, where its size is given by that of one."""
    shards = num_ranks**2 if collective.in_pairs else num_ranks if collective.is_sharded else 1
    return elements * shards
