"""Topological order of a program's steps (Kahn's algorithm); see docs/explanation/programs.md.

*Waiting* can deadlock: a send counts as finished only together with its receive.  *Happens before* protects data: the
only edge between the two goes from the send to the receive.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...errors import ProgramError
from .program import Instruction, Program

CYCLE_SHOWN = 12  # Steps of a cycle that a message spells out


_Connection = tuple[int, int, int]  # Sender, receiver and channel


class Site(NamedTuple):
    """Position of a step."""

    rank: int
    thread_block: int
    step: int

    def __str__(self) -> str:
        """Spell it out for messages."""
        return f"rank {self.rank} thread block {self.thread_block} step {self.step}"


@dataclass(frozen=True)
class Order:
    """Steps of a program with their dependencies, in a topological order."""

    sites: list[Site]  # Of each step number
    instructions: list[Instruction]  # Of each step number
    partners: list[int]  # The receive of each send and the send of each receive; -1 for what stays on its rank
    before: list[tuple[int, ...]]  # steps of its rank that each waits for directly: the one above it, its dependencies
    sequence: list[int]  # All steps, each after everything that happens before it; a send directly precedes its receive


def sites(program: Program) -> Iterator[tuple[Site, Instruction]]:
    """Yield every step in document order."""
    for rank in program.ranks:
        for block_number, block in enumerate(rank.thread_blocks):
            for step, instruction in enumerate(block.instructions):
                yield Site(rank.rank, block_number, step), instruction


def match_transfers(program: Program) -> dict[Site, Site]:
    """Map each send to its receive: the k-th send of a connection to its k-th receive."""
    # By (sender, receiver, channel): the end's rank and block, and its transfers.
    ends: dict[str, dict[_Connection, tuple[int, int, list[tuple[Site, int]]]]] = {"send": {}, "recv": {}}
    for rank in program.ranks:
        for number, block in enumerate(rank.thread_blocks):
            for kind, peer in (("send", block.send_peer), ("recv", block.recv_peer)):
                if peer is None:
                    continue
                key = (rank.rank, peer, block.channel) if kind == "send" else (peer, rank.rank, block.channel)
                if twin := ends[kind].get(key):
                    raise ProgramError(
                        f"rank {rank.rank} thread blocks {twin[1]} and {number} both {kind} on the connection "
                        f"{_connection(key)}; a connection is one queue, so give one of them another channel"
                    )
                transfers = [
                    (Site(rank.rank, number, step), instruction.count)
                    for step, instruction in enumerate(block.instructions)
                    if (instruction.receives if kind == "recv" else instruction.kind == "send")
                ]
                ends[kind][key] = rank.rank, number, transfers
    if unmatched := sorted(ends["send"].keys() ^ ends["recv"].keys()):
        key = unmatched[0]
        present, absent = ("sends", "receives") if key in ends["send"] else ("receives", "sends")
        rank_here, number, _ = ends["send"].get(key) or ends["recv"][key]
        raise ProgramError(
            f"rank {rank_here} thread block {number} {present} on the connection {_connection(key)}, but no thread "
            f"block of the other rank {absent} on it"
        )
    return {
        send: receive
        for key, (*_, sends) in ends["send"].items()
        for send, receive in _paired(key, sends, ends["recv"][key][2])
    }


def _paired(
    key: _Connection, sends: Sequence[tuple[Site, int]], receives: Sequence[tuple[Site, int]]
) -> Iterator[tuple[Site, Site]]:
    """Pair the transfers of one connection; `ProgramError` if its ends disagree."""
    if len(sends) != len(receives):
        raise ProgramError(f"the connection {_connection(key)} has {len(sends)} sends but {len(receives)} receives")
    for (send, sent), (receive, received) in zip(sends, receives, strict=True):
        if sent != received:
            raise ProgramError(
                f"{send} sends {sent} chunks but its receive at {receive} takes {received}; both ends must agree"
            )
        yield send, receive


def _connection(key: _Connection) -> str:
    return f"from rank {key[0]} to rank {key[1]} on channel {key[2]}"


def global_order(program: Program) -> Order:
    """Number the steps and order them topologically."""
    order = numbered(program)
    order.sequence.extend(_sequence(order))
    return order


def numbered(program: Program) -> Order:
    """Number the steps; the sequence is left empty."""
    numbered_steps = list(sites(program))
    numbers = {site: number for number, (site, _) in enumerate(numbered_steps)}
    before = [_direct_predecessors(site, step, numbers) for site, step in numbered_steps]
    partners = [-1] * len(numbered_steps)
    for send, receive in match_transfers(program).items():
        partners[numbers[send]], partners[numbers[receive]] = numbers[receive], numbers[send]
    return Order([site for site, _ in numbered_steps], [step for _, step in numbered_steps], partners, before, [])


def _direct_predecessors(site: Site, instruction: Instruction, numbers: dict[Site, int]) -> tuple[int, ...]:
    here = numbers[site]
    earlier = [here - 1] if site.step else []
    for wait in instruction.depends:
        target = Site(site.rank, wait.thread_block, wait.step)
        if target not in numbers:
            raise ProgramError(
                f"{site} waits for thread block {wait.thread_block} step {wait.step} of its rank, which does not exist"
            )
        earlier.append(numbers[target])
    return tuple(earlier)


def with_joined_sends(order: Order, joined: Sequence[Sequence[int]]) -> Order:
    """Order the steps such that sends of an entry follow one another; `ProgramError` if these wait for each other."""
    joined_order = replace(order, sequence=[])
    joined_order.sequence.extend(_sequence(joined_order, joined))
    return joined_order


def _sequence(order: Order, joined: Sequence[Sequence[int]] = ()) -> Iterator[int]:
    """Yield the steps in an order that satisfies the waiting relation (Kahn's algorithm), or raise with a cycle."""
    # A transfer is one node, known by the number of its send; joined sends are one by that of the first.
    is_receive = [step.receives for step in order.instructions]
    node = [
        partner if receive else number
        for number, (partner, receive) in enumerate(zip(order.partners, is_receive, strict=True))
    ]
    members = {sends[0]: sends for sends in joined}
    for sends in joined:
        for send in sends:
            node[send] = node[order.partners[send]] = sends[0]
    after: list[list[int]] = [[] for _ in node]
    missing = [0] * len(node)
    for number, earlier in enumerate(order.before):
        for other in earlier:
            after[node[other]].append(node[number])
            missing[node[number]] += 1
    ready = deque(number for number, count in enumerate(missing) if count == 0 and node[number] == number)
    done = 0
    while ready:
        number = ready.popleft()
        for member in members.get(number, (number,)):
            yield member
            done += 1
            if order.partners[member] >= 0:
                yield order.partners[member]
                done += 1
        for later in after[number]:
            missing[later] -= 1
            if missing[later] == 0:
                ready.append(later)
    if done < len(node) and joined:
        raise ProgramError("joined sends of the program wait for each other")
    if done < len(node):
        blocked = {number for number, count in enumerate(missing) if count and node[number] == number}
        raise ProgramError(_describe_cycle(order, node, blocked))


def _describe_cycle(order: Order, node: Sequence[int], blocked: set[int]) -> str:
    """Follow dependencies among blocked steps until a step repeats; describe the cycle."""
    trail: list[int] = []
    position: dict[int, int] = {}
    number = min(blocked)
    while number not in position:
        position[number] = len(trail)
        trail.append(number)
        ends = [number] if order.partners[number] < 0 else [number, order.partners[number]]
        # Kahn's algorithm left this node because at least one of its predecessors is left.
        number = next(node[other] for end in ends for other in order.before[end] if node[other] in blocked)
    cycle = trail[position[number] :]
    shown = [_awaited(order, number) for number in cycle[:CYCLE_SHOWN]]
    if len(cycle) > CYCLE_SHOWN:
        shown.append(f"... ({len(cycle)} in all)")
    return f"the program deadlocks: {' waits for '.join([*shown, _awaited(order, cycle[0])])}"


def _awaited(order: Order, number: int) -> str:
    if order.partners[number] < 0:
        return f"{order.sites[number]} ({order.instructions[number].kind})"
    return f"{order.sites[number]} (send to {order.sites[order.partners[number]]})"
