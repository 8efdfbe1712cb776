"""Joins thread blocks of ranks that have more than the GPU runs at once.

MSCCL's thread blocks all have to run at the same time, so their number is limited; the steps of one run one after the
other.  A block that only receives and one that only sends, on the same channel, can be one block that does both, and
local copies can go with anything.

Joined blocks keep the order in which `collopt.runtime.programs.ordering.global_order` has all steps of the program.
The steps of each block and all that waits for something already follow that order, so the new order inside blocks adds
no circle to what waits for what, even where connections buffer nothing: a program without deadlocks stays one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .checks import check_counts, require_program
from .ordering import Site, global_order
from .program import Dependency, Instruction, Program, RankProgram, ThreadBlock


def packed(program: Program, max_thread_blocks: int, max_steps: int) -> Program:
    """Join thread blocks, the shortest first, until no rank has too many.

    >>> from collopt.runtime.lowering.lower import lower
    >>> from collopt.schedules import Forest
    >>> program = lower(Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])]), "allgather")
    >>> [len(packed(program, most, 64).ranks[0].thread_blocks) for most in (3, 2, 1)]
    [3, 2, 1]
    """
    require_program(program)
    check_counts({"max_thread_blocks": max_thread_blocks, "max_steps": max_steps})
    if all(len(rank.thread_blocks) <= max_thread_blocks for rank in program.ranks):
        return program
    order = global_order(program)
    places = {order.sites[number]: place for place, number in enumerate(order.sequence)}
    ranks = tuple(
        _joined(rank, _groups(rank, max_thread_blocks, max_steps), places)
        if len(rank.thread_blocks) > max_thread_blocks
        else rank
        for rank in program.ranks
    )
    return replace(program, ranks=ranks)


def document_steps(block: ThreadBlock) -> int:
    """Steps of a block in a format in which a step can wait for one other, and each further wait is a step."""
    return sum(max(1, len(step.depends)) for step in block.instructions)


class _Group(NamedTuple):
    """Blocks of a rank that become one; fields in the order in which groups are considered."""

    steps: int
    members: tuple[int, ...]
    sends: bool
    receives: bool
    channel: int

    def fits(self, other: _Group, max_steps: int) -> bool:
        """Whether two groups can be one block."""
        local = not (self.sends or self.receives) or not (other.sends or other.receives)
        apart = not (self.sends and other.sends) and not (self.receives and other.receives)
        return self.steps + other.steps <= max_steps and (local or (apart and self.channel == other.channel))

    def joined(self, other: _Group) -> _Group:
        """Return both as one."""
        channel = self.channel if self.sends or self.receives else other.channel
        ways = self.sends or other.sends, self.receives or other.receives
        return _Group(self.steps + other.steps, tuple(sorted(self.members + other.members)), *ways, channel)


def _groups(rank: RankProgram, max_thread_blocks: int, max_steps: int) -> list[_Group]:
    """Decide which blocks become one: always the two shortest that fit each other, the shortest of all first."""
    groups = sorted(
        _Group(
            document_steps(block), (number,), block.send_peer is not None, block.recv_peer is not None, block.channel
        )
        for number, block in enumerate(rank.thread_blocks)
    )
    place = 0
    while len(groups) > max_thread_blocks and place < len(groups):
        one = groups[place]
        partner = next((other for other in groups[place + 1 :] if one.fits(other, max_steps)), None)
        if partner is None:
            place += 1
            continue
        groups.remove(one)
        groups.remove(partner)
        groups = sorted([*groups, one.joined(partner)])
        place = 0
    # Blocks stay about where they were: those that others wait for came first.
    return sorted(groups, key=lambda group: group.members)


def _joined(rank: RankProgram, groups: list[_Group], places: dict[Site, int]) -> RankProgram:
    """Write the blocks of one rank anew."""
    orders = [
        sorted(
            (
                Site(rank.rank, member, step)
                for member in group.members
                for step in range(len(rank.thread_blocks[member].instructions))
            ),
            key=places.__getitem__,
        )
        for group in groups
    ]
    moved = {site: Dependency(block, step) for block, order in enumerate(orders) for step, site in enumerate(order)}
    blocks = []
    for number, (group, order) in enumerate(zip(groups, orders, strict=True)):
        members = [rank.thread_blocks[member] for member in group.members]
        steps = tuple(_moved_step(rank, site, number, moved) for site in order)
        send_peer, recv_peer = (
            next((peer for peer in peers if peer is not None), None)
            for peers in ([each.send_peer for each in members], [each.recv_peer for each in members])
        )
        blocks.append(ThreadBlock(send_peer, recv_peer, group.channel, steps))
    return replace(rank, thread_blocks=tuple(blocks))


def _moved_step(rank: RankProgram, site: Site, block: int, moved: dict[Site, Dependency]) -> Instruction:
    """Return a step with its waits as they are now; those for the block itself are kept by its order."""
    instruction = rank.thread_blocks[site.thread_block].instructions[site.step]
    last: dict[int, int] = {}
    for wait in instruction.depends:
        now = moved[Site(rank.rank, wait.thread_block, wait.step)]
        if now.thread_block != block:
            last[now.thread_block] = max(now.step, last.get(now.thread_block, -1))
    return replace(instruction, depends=tuple(Dependency(*wait) for wait in last.items()))
