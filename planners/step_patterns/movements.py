"""Sends of an allgather whose ranks all move data along a torus at the same time.

In each step of a pattern every rank sends one message along one dimension: all that the receiver does not have yet.
Where ranks are linked themselves, the ranks in between pass a message on, one link in each step, and keep what they did
not have: so every part of a shard comes to every rank once, and the reverse is a reduce-scatter.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules.expansions.direct_sends import DirectSends
from ...support.arrays import BoolArray, IntArray
from .torus_shapes import Torus


class Move(NamedTuple):
    """One message of every rank, along a dimension; the receivers are all different."""

    axis: int
    distance: int
    signs: IntArray  # int64 (ranks,): the direction of each rank's message, 1 or -1


Pattern = Sequence[Sequence[Move]]
"""One or two moves for each step; of two, each brings half of what both could bring."""


class _Message(NamedTuple):
    """What ranks get in one step, bool (ranks, shards), and from which, int64 (ranks,), both by receiving rank."""

    brought: BoolArray
    tails: IntArray


def spread(
    torus: Torus, patterns: Sequence[Pattern], relays: bool, roots: IntArray | None = None
) -> tuple[int, DirectSends]:
    """Return chunks per shard and sends of an allgather by several patterns at once, each for a part of every shard.

    Raises `UnsupportedError` if they do not bring all shards to all ranks.  The patterns have equally many steps, and
    wait for the longest distance of a step; with `relays`, ranks in between pass messages on.  Only the shards of
    `roots`, int64, are spread; all by default.
    """
    shards = np.arange(len(torus.ranks)) if roots is None else roots
    width = max(len(moves) for pattern in patterns for moves in pattern)
    spans = [max(move.distance for moves in step for move in moves) for step in zip(*patterns, strict=True)]
    starts = np.cumsum([0, *spans]).tolist()
    found = list[DirectSends]()
    for number, pattern in enumerate(patterns):
        held = np.zeros((len(torus.ranks), len(shards)), dtype=np.bool_)
        held[shards, np.arange(len(shards))] = True
        for start, moves in zip(starts, pattern, strict=False):
            for step, messages in enumerate(_hops(torus, held, moves, relays), start):
                found += _sends(messages, step, shards, number * width, width)
                for message in messages:
                    held |= message.brought
        if not held.all():
            raise UnsupportedError(f"the steps of this pattern do not reach all ranks of a torus of {torus.label}")
    return _coarsest(len(patterns) * width, DirectSends.joined(found))


def _hops(torus: Torus, held: BoolArray, moves: Sequence[Move], relays: bool) -> Iterator[list[_Message]]:
    """Yield the messages of a step, or of one step for each link that they pass; `held` grows in between."""
    contents = [held & ~held[torus.moved(move.axis, move.signs * move.distance)] for move in moves]
    for hop in range(max(move.distance for move in moves) if relays else 1):
        messages = list[_Message]()
        for move, content in zip(moves, contents, strict=True):
            before, after = (hop, hop + 1) if relays else (0, move.distance)
            if after <= move.distance:
                tails, heads = (torus.moved(move.axis, move.signs * amount) for amount in (before, after))
                brought, senders = np.zeros_like(held), np.empty_like(tails)
                brought[heads] = content & ~held[heads]
                senders[heads] = tails
                messages.append(_Message(brought, senders))
        yield messages


def _sends(messages: Sequence[_Message], step: int, shards: IntArray, first: int, width: int) -> Iterator[DirectSends]:
    """Turn messages into sends of chunks `first` to ``first + width - 1``."""
    both = messages[0].brought & messages[-1].brought if len(messages) > 1 else None
    for number, message in enumerate(messages):
        parts = [(message.brought, first, first + width)]
        if both is not None:
            parts = [(message.brought & ~both, first, first + width), (both, first + number, first + number + 1)]
        for brought, lower, upper in parts:
            heads, sources = np.nonzero(brought)
            if len(heads):
                numbers = (np.full(len(heads), value, dtype=np.int64) for value in (step, lower, upper))
                steps, lowers, uppers = numbers
                yield DirectSends(steps, shards[sources], lowers, uppers, message.tails[heads], heads)


def _coarsest(chunks: int, sends: DirectSends) -> tuple[int, DirectSends]:
    """Count in chunks as large as possible."""
    unit = int(np.gcd.reduce(np.concatenate([[chunks], sends.lower, sends.upper])))
    return chunks // unit, sends._replace(lower=sends.lower // unit, upper=sends.upper // unit)
