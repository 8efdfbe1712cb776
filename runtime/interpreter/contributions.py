"""Says what a chunk of memory is made of: which chunks of which ranks, each how many times."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..programs.program import Program

__all__ = ["Contents", "described", "symbolic_inputs", "unwritten"]

RANKS_SHOWN = 6


@dataclass(frozen=True)
class Contents:
    """What has been added up in a chunk.

    Attributes
    ----------
    terms : Counter of (int, int)
        How often chunk c of the collective, as rank r had it in its input, is part of the sum, by (c, r).
    poisoned : bool
        Whether memory that nobody had written to is part of it.
    """

    terms: Counter[tuple[int, int]]
    poisoned: bool = False

    def __add__(self, other: Contents) -> Contents:
        """Add up two chunks."""
        return Contents(self.terms + other.terms, self.poisoned or other.poisoned)


def symbolic_inputs(program: Program) -> list[npt.NDArray[np.object_]]:
    """Return each rank's input, every chunk standing for itself."""
    inputs = []
    for rank in range(program.num_ranks):
        begin, end = program.layout.input_range(rank)
        column = np.empty((end - begin, 1), dtype=np.object_)
        for chunk in range(begin, end):
            column[chunk - begin, 0] = Contents(Counter({(chunk, rank): 1}))
        inputs.append(column)
    return inputs


def unwritten(chunks: int) -> npt.NDArray[np.object_]:
    """Return memory that nobody has written to."""
    column = np.empty((chunks, 1), dtype=np.object_)
    column[:, 0] = [Contents(Counter(), poisoned=True) for _ in range(chunks)]
    return column


def described(contents: Contents, program: Program) -> str:
    """Spell it out: ``"chunk 0 of rank 2"``, or ``"chunk 5 of ranks 0, 1, 3"``, the same rank listed once per time."""
    if not contents.terms:
        return "nothing"
    if not program.layout.reduces:
        parts = [_owned(chunk, program) for chunk, _ in sorted(contents.terms.elements())]
    else:
        parts = [_summed(chunk, contents, program) for chunk in sorted({chunk for chunk, _ in contents.terms})]
    return " plus ".join([*parts, *["garbage"] * contents.poisoned])


def _owned(chunk: int, program: Program) -> str:
    """Name a chunk by its owner, and by whom it is for where that is not everyone."""
    offsets = program.layout.offsets
    shard = bisect_right(offsets, chunk) - 1
    inside = f"chunk {chunk - offsets[shard]}"
    if not program.layout.in_pairs:
        return f"{inside} of rank {shard}"
    source, destination = divmod(shard, program.num_ranks)
    return f"{inside} from rank {source} for rank {destination}"


def _summed(chunk: int, contents: Contents, program: Program) -> str:
    """Say which ranks have contributed to a chunk."""
    times = [contents.terms[chunk, rank] for rank in range(program.num_ranks)]
    if set(times) == {1}:
        return f"chunk {chunk} of all ranks"
    ranks = [f"{rank}" if count == 1 else f"{rank} ({count} times)" for rank, count in enumerate(times) if count]
    missing = [str(rank) for rank, count in enumerate(times) if not count]
    text = ", ".join(_few(ranks))
    return f"chunk {chunk} of ranks {text}" + (f" without {', '.join(_few(missing))}" if missing else "")


def _few(names: list[str]) -> list[str]:
    return names if len(names) <= RANKS_SHOWN else [*names[:RANKS_SHOWN], f"... ({len(names)} in all)"]
