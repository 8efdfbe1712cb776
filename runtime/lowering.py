"""From a forest to per-rank programs.

Chunks.  Let g be the greatest common divisor of k and of all weights.  Every shard is cut into C = k / g chunks; a tree
of weight w carries w / g consecutive chunks of its root's shard, in the order in which the forest lists the trees of
that root.  A tree that carries more chunks than one step may move is cut into strands that all follow the tree, so
from here on a *strand* is a root, a range of at most `max_count` chunks, and a tree.

Order.  A *transfer* is one strand on one hop of its tree.  All transfers of the program get one global order: by depth
of the hop in its tree, then the hop with the longest way still to go, then by strand.  Each thread block runs its
transfers in that order, and a rank forwards a strand only after it has received it, which happened one level higher up,
so earlier in the order.

No deadlock.  Suppose that some transfers never happen and take the first of them in the global order.  The earlier
steps of its sending and of its receiving thread block belong to earlier transfers, so they have finished; the receive
that its send depends on, if any, belongs to an earlier transfer, so it has finished.  Both ends are therefore at this
transfer and nothing holds them back, whether the connection buffers data or not: a contradiction.  (Local copies wait
for nothing.)  When a runtime runs the whole list again for every slice of the data, the same holds for the order
(slice, global order).

Thread blocks.  Every connection (sender, receiver, channel) gets a sending block on one rank and a receiving block on
the other; steps are never fused, because RCCL from ROCm 6.1 on refuses to launch fused ones (ROCm/rccl#1005).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ProgramError, UnsupportedError
from ..schedules import Forest
from .program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock

__all__ = ["lower_allgather"]

CONNECTIONS_PER_CHANNEL = 32
"""Sends, and receives, that MSCCL runtimes allow one rank to have on one channel (MAXSENDSPERCHANNEL, NCCL's arity)."""


class _Strand(NamedTuple):
    """Chunks ``start .. start + chunks - 1`` of the shard of `root`, all carried by `tree`."""

    root: int
    start: int
    chunks: int
    tree: int


class _Transfer(NamedTuple):
    """One strand on its way from one rank to another."""

    strand: int
    sender: int
    receiver: int
    channel: int


def lower_allgather(
    forest: Forest,
    *,
    max_steps: int = 64,
    max_count: int = 71,
    channels: int = 1,
    name: str = "allgather",
) -> Program:
    """Lower a forest to an out-of-place allgather.

    The input holds the C chunks of the own shard, the output all N C chunks; chunk ``r * C + c`` of the output is chunk
    c of rank r.

    Parameters
    ----------
    forest : Forest
        Trees rooted at every rank, the weights of each rank's trees adding up to ``forest.trees_per_root``.
    max_steps : int
        Steps that one thread block may have.  A connection with more transfers is spread over several channels.
    max_count : int
        Chunks that one step may move.
    channels : int
        Channels that every connection is spread over at least, where it has as many transfers.  More channels mean more
        thread blocks at work at the same time.
    name : str
        Name of the program.

    Returns
    -------
    Program

    Raises
    ------
    UnsupportedError
        For shards of different sizes, or parameters that are not positive.
    ProgramError
        If a tree does not span the ranks.

    Examples
    --------
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> program = lower_allgather(forest)
    >>> print(program)
    allgather: allgather on 2 ranks, 2 chunks, 6 steps, 1 channels
    >>> [block.instructions[0].kind for block in program.ranks[0].thread_blocks]
    ['recv', 'copy', 'send']
    """
    for option, value in (("max_steps", max_steps), ("max_count", max_count), ("channels", channels)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnsupportedError(f"{option} is {value!r}; expected a whole number of at least 1")
    _check_forest(forest)
    divisor = gcd(forest.trees_per_root, *forest.weights.tolist())
    shard = forest.trees_per_root // divisor
    strands = list(_strands(forest, divisor, max_count))
    transfers = _with_channels(_ordered_hops(forest, strands), strands, max_steps, channels)
    copies = _copies(shard, max_count)
    incoming: dict[int, list[_Transfer]] = defaultdict(list)
    outgoing: dict[int, list[_Transfer]] = defaultdict(list)
    for transfer in transfers:
        outgoing[transfer.sender].append(transfer)
        incoming[transfer.receiver].append(transfer)
    ranks = tuple(
        RankProgram(
            rank,
            shard,
            forest.num_ranks * shard,
            0,
            _thread_blocks(rank, shard, strands, incoming[rank], outgoing[rank], copies, max_steps),
        )
        for rank in range(forest.num_ranks)
    )
    return Program(name, "allgather", forest.num_ranks, forest.num_ranks * shard, ranks)


def _check_forest(forest: Forest) -> None:
    """Refuse what is no allgather: unequal shards, or trees that do not reach every rank exactly once."""
    ranks = forest.num_ranks
    if forest.num_trees == 0 or forest.trees_per_root < 1 or forest.weights.min() < 1:
        raise ProgramError(
            f"the forest has {forest.num_trees} trees and {forest.trees_per_root} trees per root; "
            "expected at least one tree per rank, each of weight 1 or more"
        )
    if forest.roots.min() < 0 or forest.roots.max() >= ranks:
        raise ProgramError(f"the forest has a tree with root {forest.roots.max()}; expected ranks 0 to {ranks - 1}")
    totals = np.zeros(ranks, dtype=np.int64)
    np.add.at(totals, forest.roots, forest.weights)
    for rank in np.flatnonzero(totals != forest.trees_per_root):
        raise UnsupportedError(
            f"the trees of rank {rank} weigh {totals[rank]}, expected trees_per_root = {forest.trees_per_root}; "
            "only shards of equal size can be lowered"
        )
    for tree, root in enumerate(forest.roots):
        expected = np.arange(ranks) != root
        heads = np.where(forest.routes[tree] >= 0, _path_heads(forest)[forest.routes[tree]], -1)
        parents = forest.parents[tree]
        if (
            not np.array_equal(heads >= 0, expected)
            or (heads[expected] != np.flatnonzero(expected)).any()
            or parents.max(initial=-1) >= ranks
        ):
            raise ProgramError(f"tree {tree} of the forest (root {root}) does not reach every other rank exactly once")
    if forest.depths.max() >= ranks:
        tree = int(np.argmax(forest.heights))
        raise ProgramError(f"tree {tree} of the forest (root {forest.roots[tree]}) has ranks cut off from its root")


def _path_heads(forest: Forest) -> npt.NDArray[np.int64]:
    return forest.path_nodes[forest.path_starts[1:] - 1]


def _strands(forest: Forest, divisor: int, max_count: int) -> Iterator[_Strand]:
    """Give every tree its chunks, in pieces of at most `max_count`, as equal as can be."""
    used: Counter[int] = Counter()
    for tree, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        for chunks in _pieces(weight // divisor, max_count):
            yield _Strand(root, used[root], chunks, tree)
            used[root] += chunks


def _pieces(total: int, most: int) -> list[int]:
    """Cut `total` into as few pieces of at most `most` as possible, their sizes differing by at most one."""
    number = -(-total // most)
    small, larger = divmod(total, number)
    return [small + 1] * larger + [small] * (number - larger)


def _ordered_hops(forest: Forest, strands: Sequence[_Strand]) -> list[tuple[int, int, int]]:
    """All (strand, sender, receiver) in the global order."""
    trees = np.array([strand.tree for strand in strands])
    remaining = _remaining_heights(forest)
    strand_numbers, heads = np.nonzero(forest.routes[trees] >= 0)
    hop_trees = trees[strand_numbers]
    order = np.lexsort((heads, strand_numbers, -remaining[hop_trees, heads], forest.depths[hop_trees, heads]))
    senders = forest.parents[hop_trees, heads]
    hops = zip(strand_numbers[order].tolist(), senders[order].tolist(), heads[order].tolist(), strict=True)
    return list(hops)


def _remaining_heights(forest: Forest) -> npt.NDArray[np.int64]:
    """Shape (trees, ranks): how many more hops the data makes below each rank."""
    heights = np.zeros(forest.routes.shape, dtype=np.int64)
    for depth in range(int(forest.depths.max()), 0, -1):
        trees, heads = np.nonzero(forest.depths == depth)
        np.maximum.at(heights, (trees, forest.parents[trees, heads]), heights[trees, heads] + 1)
    return heights


def _with_channels(
    hops: Sequence[tuple[int, int, int]], strands: Sequence[_Strand], max_steps: int, channels: int
) -> list[_Transfer]:
    """Give each hop a channel: as many per connection as its steps ask for, evenly loaded.

    A channel takes at most `CONNECTIONS_PER_CHANNEL` connections on the sending and on the receiving side of each rank.
    """
    connections: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (_, sender, receiver) in enumerate(hops):
        connections[sender, receiver].append(number)
    sends: Counter[tuple[int, int]] = Counter()
    receives: Counter[tuple[int, int]] = Counter()
    chosen = [0] * len(hops)
    for (sender, receiver), numbers in sorted(connections.items()):
        needed = min(len(numbers), max(channels, -(-len(numbers) // max_steps)))
        lanes: list[int] = []
        channel = 0
        while len(lanes) < needed:
            if max(sends[sender, channel], receives[receiver, channel]) < CONNECTIONS_PER_CHANNEL:
                lanes.append(channel)
                sends[sender, channel] += 1
                receives[receiver, channel] += 1
            channel += 1
        chunks = dict.fromkeys(lanes, 0)
        steps = dict.fromkeys(lanes, 0)
        for number in numbers:
            lane = min((lane for lane in lanes if steps[lane] < max_steps), key=lambda lane: (chunks[lane], lane))
            chunks[lane] += strands[hops[number][0]].chunks
            steps[lane] += 1
            chosen[number] = lane
    return [_Transfer(*hop, channel) for hop, channel in zip(hops, chosen, strict=True)]


def _copies(shard: int, max_count: int) -> list[tuple[int, int]]:
    """(first chunk, count) of each local copy of the own shard."""
    counts = _pieces(shard, max_count)
    starts = np.cumsum([0, *counts[:-1]]).tolist()
    return list(zip(starts, counts, strict=True))


def _thread_blocks(
    rank: int,
    shard: int,
    strands: Sequence[_Strand],
    incoming: Sequence[_Transfer],
    outgoing: Sequence[_Transfer],
    copies: Sequence[tuple[int, int]],
    max_steps: int,
) -> tuple[ThreadBlock, ...]:
    """Build the blocks of one rank: receiving ones first, since MSCCL can only wait for blocks 0 to 127."""
    blocks: list[ThreadBlock] = []
    arrivals: dict[int, Dependency] = {}
    for (peer, channel), transfers in sorted(_grouped(incoming, "sender").items()):
        for step, transfer in enumerate(transfers):
            arrivals[transfer.strand] = Dependency(len(blocks), step)
        receives = tuple(_receive(strands[transfer.strand], shard) for transfer in transfers)
        blocks.append(ThreadBlock(None, peer, channel, receives))
    for first in range(0, len(copies), max_steps):
        own = tuple(
            Instruction("copy", ChunkRange("input", start), ChunkRange("output", rank * shard + start), count)
            for start, count in copies[first : first + max_steps]
        )
        blocks.append(ThreadBlock(None, None, 0, own))
    for (peer, channel), transfers in sorted(_grouped(outgoing, "receiver").items()):
        sends = []
        waited: dict[int, int] = {}
        for transfer in transfers:
            arrival = arrivals.get(transfer.strand)
            if arrival and waited.get(arrival.thread_block, -1) >= arrival.step:
                # An earlier step of this block already waited for that receive or a later one of its block.
                depends: tuple[Dependency, ...] = ()
            elif arrival:
                waited[arrival.thread_block] = arrival.step
                depends = (arrival,)
            else:
                depends = ()
            sends.append(_send(strands[transfer.strand], rank, shard, depends))
        blocks.append(ThreadBlock(peer, None, channel, tuple(sends)))
    return tuple(blocks)


def _grouped(transfers: Sequence[_Transfer], peer: str) -> dict[tuple[int, int], list[_Transfer]]:
    groups: dict[tuple[int, int], list[_Transfer]] = defaultdict(list)
    for transfer in transfers:
        groups[getattr(transfer, peer), transfer.channel].append(transfer)
    return groups


def _receive(strand: _Strand, shard: int) -> Instruction:
    return Instruction("recv", None, ChunkRange("output", strand.root * shard + strand.start), strand.chunks)


def _send(strand: _Strand, rank: int, shard: int, depends: tuple[Dependency, ...]) -> Instruction:
    if rank == strand.root:
        return Instruction("send", ChunkRange("input", strand.start), None, strand.chunks, depends)
    return Instruction("send", ChunkRange("output", strand.root * shard + strand.start), None, strand.chunks, depends)
