"""Where the chunks of a collective stand in the buffers of each rank.

All chunks of a collective are numbered in one row: shard by shard, chunk by chunk.  Every buffer of every rank holds
some consecutive ones of them, so two numbers per buffer say everything.  Broadcast is an allgather, and reduce a
reduce-scatter, in which all chunks belong to the shard of the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ..errors import ProgramError, UnsupportedError
from ..schedules import COLLECTIVES

__all__ = ["GATHERING", "REDUCING", "ROOTED", "Layout"]

GATHERING = ("allgather", "broadcast")
"""Collectives that only move data."""
REDUCING = ("reduce_scatter", "reduce", "allreduce")
"""Collectives that add up what the ranks have."""
ROOTED = ("broadcast", "reduce")
"""Collectives with a root."""


@dataclass(frozen=True)
class Layout:
    """Chunks of each rank's buffers.

    Attributes
    ----------
    collective : str
    shards : tuple of int
        Chunks of each rank's shard; for allreduce, whose chunks belong to nobody, all of them are listed with rank 0.
    """

    collective: str
    shards: tuple[int, ...]

    @classmethod
    def of(cls, collective: str, num_ranks: int, chunks: int, shards: Sequence[int] = ()) -> Layout:
        """Lay out a collective.

        Parameters
        ----------
        collective : str
            One of `collopt.schedules.COLLECTIVES`.
        num_ranks : int
            At least 1.
        chunks : int
            Of the whole collective.
        shards : sequence of int
            Chunks of each shard; empty for equal ones, and for allreduce.

        Returns
        -------
        Layout

        Raises
        ------
        UnsupportedError
            For a collective that programs cannot be written for.
        ProgramError
            If the chunks do not add up.
        """
        if not isinstance(collective, str) or collective not in COLLECTIVES:
            raise UnsupportedError(f"the program is for {collective!r}; expected one of {', '.join(COLLECTIVES)}")
        if num_ranks < 1 or chunks < 1:
            raise ProgramError(f"the program has {num_ranks} ranks and {chunks} chunks; expected at least one of each")
        if collective == "allreduce":
            if shards:
                raise ProgramError(
                    "the program is an allreduce with shards; its chunks belong to nobody, so leave them out"
                )
            return cls(collective, (chunks, *[0] * (num_ranks - 1)))
        found = tuple(shards) or _equal(num_ranks, chunks)
        if len(found) != num_ranks or min(found) < 0 or sum(found) != chunks:
            raise ProgramError(
                f"the program's shards {list(found)[:8]} are not those of {num_ranks} ranks with {chunks} chunks in all"
            )
        if collective in ROOTED and max(found) != chunks:
            raise ProgramError(f"the program is a {collective} with several shards; expected only that of its root")
        return cls(collective, found)

    @property
    def reduces(self) -> bool:
        """Whether outputs are sums."""
        return self.collective in REDUCING

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First chunk of each shard, and the number of all chunks."""
        return tuple(accumulate(self.shards, initial=0))

    @property
    def chunks(self) -> int:
        """Chunks of the whole collective."""
        return self.offsets[-1]

    @property
    def root(self) -> int | None:
        """The only rank with a shard, of a collective that has a root."""
        return self.shards.index(self.chunks) if self.collective in ROOTED else None

    @property
    def blocks(self) -> tuple[int, ...]:
        """Where the pieces of data begin that are cut into chunks each by itself, and where the last one ends."""
        if self.collective in ("allgather", "reduce_scatter"):
            return self.offsets
        return 0, self.chunks

    def input_range(self, rank: int) -> tuple[int, int]:
        """First chunk of a rank's input, and the one after its last."""
        if self.collective in GATHERING:
            return self.offsets[rank], self.offsets[rank + 1]
        return 0, self.chunks

    def output_range(self, rank: int) -> tuple[int, int]:
        """First chunk of a rank's output, and the one after its last."""
        if self.collective in ("reduce_scatter", "reduce"):
            return self.offsets[rank], self.offsets[rank + 1]
        return 0, self.chunks


def _equal(num_ranks: int, chunks: int) -> tuple[int, ...]:
    if chunks % num_ranks:
        raise ProgramError(
            f"the program has {chunks} chunks; expected a positive multiple of its {num_ranks} ranks, or shards"
        )
    return (chunks // num_ranks,) * num_ranks
