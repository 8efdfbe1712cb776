"""Packed rounds for small data: one message for each peer and round, received into memory of its own.

What a round sends to a peer is copied together, and what comes from it is copied apart at the round's end.  As receives
fill nothing that is in use, all of them can be posted before the first round, and no sender waits for its receiver.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ...programs.program import Program
from .batches import Copy, Operation, Piece, RankRound, RankRounds, rank_rounds

MAX_ELEMENTS = 2**18  # Up to which copies cost less than messages, by measurement with four processes and Gloo


@lru_cache(maxsize=128)
def packed_rounds(program: Program, slices: int, rank: int, elements: int) -> RankRounds:
    """Return one rank's rounds, packed."""
    plain = rank_rounds(program, slices, rank, elements)
    packer = _Packer()
    rounds = tuple(packer.packed(each) for each in plain.rounds)
    return RankRounds(rounds, plain.scratch, packer.size, are_packed=True)


class _Packer:
    """Gives every message a place in the staging area, whose `size` grows with them."""

    def __init__(self) -> None:
        self.size = 0

    def packed(self, part: RankRound) -> RankRound:
        """Join the messages of a round to and from each peer."""
        operations, before, after = [], [], []
        arrivals: dict[Piece, Piece] = {}
        for peer in sorted({each.peer for each in part.operations}):
            for is_send in (True, False):
                pieces = [each.piece for each in part.operations if (each.peer, each.is_send) == (peer, is_send)]
                if is_send and len(pieces) == 1:
                    operations.append(Operation(peer, True, pieces[0]))
                elif pieces:
                    begin, places = self.size, self._places(pieces)
                    operations.append(Operation(peer, is_send, Piece("staging", begin, self.size)))
                    if is_send:
                        before += [Copy(piece, place) for piece, place in zip(pieces, places, strict=True)]
                        continue
                    arrivals |= zip(pieces, places, strict=True)
        after = [Copy(place, piece) for piece, place in arrivals.items() if piece.memory != "staging"]
        sums = (each._replace(one=arrivals.get(each.one, each.one)) for each in part.sums)
        return RankRound(tuple(operations), part.copies, tuple(sums), tuple(before), tuple(after))

    def _places(self, pieces: Iterable[Piece]) -> list[Piece]:
        places = []
        for piece in pieces:
            begin, self.size = self.size, self.size + piece.end - piece.begin
            places.append(Piece("staging", begin, self.size))
        return places
