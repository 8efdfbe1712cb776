"""Positions of a collective's chunks in the buffers of each rank.

All chunks are numbered in one row, shard by shard; every buffer holds consecutive ones.  Broadcast is an allgather, and
reduce a reduce-scatter, whose chunks all belong to the root's shard.  In an all-to-all(v) the shards are those of rank
0 for ranks 0, 1, ..., then those of rank 1: an output has one shard from each rank, in rank order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import gcd, isqrt

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...schedules import COLLECTIVES, Collective
from ...schedules.collective import CollectiveName, collective_or_given
from ...support.arrays import IntArray


@dataclass(frozen=True)
class Layout:
    """Chunks of each rank's buffers."""

    collective: Collective
    shards: tuple[int, ...]  # by rank; allreduce: all with rank 0; all_to_all(v): from each to each, row by row

    @classmethod
    def of(
        cls, collective: CollectiveName | Collective, num_ranks: int, chunks: int, shards: Sequence[int] = ()
    ) -> Layout:
        """Lay out a collective."""
        kind = collective_or_given(collective)
        if not isinstance(kind, Collective):
            raise UnsupportedError(f"the program is for {kind!r}; expected one of {', '.join(COLLECTIVES)}")
        if num_ranks < 1 or chunks < 1:
            raise ProgramError(f"the program has {num_ranks} ranks and {chunks} chunks; expected at least one of each")
        if kind.has_two_phases:
            if shards:
                raise ProgramError(
                    "the program is an allreduce with shards; its chunks belong to nobody, so leave them out"
                )
            return cls(kind, (chunks, *[0] * (num_ranks - 1)))
        number = num_ranks**2 if kind.in_pairs else num_ranks
        sizes = tuple(shards) or _equal(num_ranks, number, chunks)
        if len(sizes) != number or min(sizes) < 0 or sum(sizes) != chunks:
            raise ProgramError(
                f"the program's shards {list(sizes)[:8]} are not those of {num_ranks} ranks with {chunks} chunks in all"
            )
        layout = cls(kind, sizes)
        if kind.traffic is not None:
            kind.root_of(layout.traffic, error=ProgramError)
        elif kind.in_pairs and not kind.takes_traffic and len(set(sizes)) > 1:
            raise ProgramError("the program is an all_to_all with unequal shards; expected all_to_allv, or equal ones")
        elif kind.has_one_root and max(sizes) != chunks:
            raise ProgramError(f"the program is a {kind} with several shards; expected only that of its root")
        return layout

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return isqrt(len(self.shards)) if self.in_pairs else len(self.shards)

    @property
    def in_pairs(self) -> bool:
        """Whether every rank has different data for each other rank."""
        return self.collective.in_pairs

    @property
    def reduces(self) -> bool:
        """Whether outputs are sums."""
        return self.collective.reduces

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First chunk of each shard, and the number of all chunks."""
        return tuple(accumulate(self.shards, initial=0))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Sizes of the shards in lowest terms."""
        common = gcd(*self.shards)
        return tuple(shard // common for shard in self.shards)

    @cached_property
    def pair_parts(self) -> tuple[tuple[int, int], ...]:
        """Input and output of each rank in an all-to-all(v), in units of `parts`."""
        sizes = self.traffic
        return tuple(zip(sizes.sum(axis=1).tolist(), sizes.sum(axis=0).tolist(), strict=True))

    @property
    def traffic(self) -> IntArray:
        """Sizes of the parts from each rank (row) to each (column) in lowest terms, of collectives between pairs."""
        return np.reshape(self.parts, (self.num_ranks, self.num_ranks))

    @property
    def chunks(self) -> int:
        """Chunks of the whole collective."""
        return self.offsets[-1]

    @property
    def root(self) -> int | None:
        """Root of a collective that has one."""
        if self.collective.traffic is not None:
            return self.collective.root_of(self.traffic)
        return self.shards.index(self.chunks) if self.collective.has_one_root else None

    @property
    def blocks(self) -> tuple[int, ...]:
        """Begins of the blocks of data that are divided into chunks separately, and the end of the last one."""
        if self.in_pairs or self.collective.is_sharded:
            return self.offsets
        return 0, self.chunks

    def input_range(self, rank: int) -> tuple[int, int]:
        """First chunk of a rank's input, and the one after its last."""
        if self.in_pairs:
            return self.offsets[rank * self.num_ranks], self.offsets[(rank + 1) * self.num_ranks]
        if self.collective.input == "shard":
            return self.offsets[rank], self.offsets[rank + 1]
        return 0, self.chunks

    def output_range(self, rank: int) -> tuple[int, int]:
        """First chunk of a rank's output, and the one after its last."""
        ranges = self.output_ranges(rank)
        if len(ranges) > 1:
            raise ProgramError(f"rank {rank}'s output is not a single range of the chunks of an {self.collective}")
        return ranges[0]

    def output_ranges(self, rank: int) -> tuple[tuple[int, int], ...]:
        """First chunk, and the one after the last, of each consecutive piece of a rank's output."""
        if self.in_pairs:
            pairs = range(rank, len(self.shards), self.num_ranks)
            return tuple((self.offsets[pair], self.offsets[pair + 1]) for pair in pairs)
        if self.collective.output == "shard":
            return ((self.offsets[rank], self.offsets[rank + 1]),)
        return ((0, self.chunks),)

    def chunk_name(self, chunk: int) -> str:
        """Name a chunk, by its owner, and by its destination if it has one."""
        if self.reduces and not self.collective.is_sharded:
            return f"chunk {chunk}"
        shard = bisect_right(self.offsets, chunk) - 1
        inside = f"chunk {chunk - self.offsets[shard]}"
        if not self.in_pairs:
            return f"{inside} of rank {shard}"
        source, destination = divmod(shard, self.num_ranks)
        return f"{inside} from rank {source} for rank {destination}"

    def output_chunks(self, rank: int) -> Sequence[int]:
        """Numbers of all chunks of a rank's output, in order."""
        ranges = self.output_ranges(rank)
        if len(ranges) == 1:
            return range(*ranges[0])
        return [chunk for begin, end in ranges for chunk in range(begin, end)]


def _equal(num_ranks: int, number: int, chunks: int) -> tuple[int, ...]:
    if chunks % number:
        raise ProgramError(
            f"the program has {chunks} chunks; expected a positive multiple of "
            f"{f'its {num_ranks} ranks' if number == num_ranks else f'{number}, its pairs of ranks'}, or shards"
        )
    return (chunks // number,) * number
