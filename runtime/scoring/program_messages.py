"""Messages of programs of thread blocks, and of MSCCL++ plans.

Every step is an event that waits for the step above it and for those that it depends on; a send is a message that waits
for its step, and a receive waits for the message too.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from ...errors import ProgramError, UnsupportedError
from ...topologies import Topology
from ..mscclpp.format.execution_plan import (
    SIGNALLING,
    SWITCH_OPERATIONS,
    ChannelType,
    ExecutionPlan,
    Operation,
    channel_pairs,
    flat,
)
from ..mscclpp.machine.memory import layout_of
from ..programs.ordering import Order
from ..programs.program import Program
from .messages import Messages


def program_messages(program: Program, order: Order) -> Messages:
    """List the messages of a program whose steps are in `order`."""
    messages = Messages.of(program.layout, program.num_ranks)
    steps: dict[int, int] = {}
    sends: dict[int, int] = {}
    for number in order.sequence:
        site, step, partner = order.sites[number], order.instructions[number], order.partners[number]
        before = [steps[each] for each in order.before[number]]
        if step.receives:
            before.append(sends[partner])
        steps[number] = messages.event(site.rank, before)
        if step.kind == "send":
            peer = order.sites[partner].rank
            adds = order.instructions[partner].kind == "recv_reduce"
            sends[number] = messages.send(site.rank, peer, step.count, [steps[number]], adds=adds)
    return messages


def plan_messages(plan: ExecutionPlan, topology: Topology) -> Messages:
    """List the messages of an MSCCL++ plan: its puts, and what switches add up and copy."""
    return _Signals(plan, topology, Messages.of(layout_of(plan), plan.num_ranks)).run()


Channel = tuple[int, int, ChannelType, int]  # Rank, thread block, type and position


class _Signals:
    """Runs thread blocks in turn, each as far as signals allow; the k-th wait takes the k-th signal of a channel."""

    def __init__(self, plan: ExecutionPlan, topology: Topology, messages: Messages) -> None:
        self._plan = plan
        self._topology = topology
        self._messages = messages
        self._others = channel_pairs(plan.gpus)
        self._last: dict[tuple[int, int], int] = {}  # The last event of each thread block
        # What a signal on a channel comes after: the puts and signals before it.
        self._pending: defaultdict[Channel, list[int]] = defaultdict(list)
        self._stores: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # Copies from switches, by block
        self._tokens: defaultdict[tuple[str, int, int], deque[int | None]] = defaultdict(deque)
        for rank, gpu in enumerate(plan.gpus):
            for number, value in enumerate(gpu.semaphores):
                self._tokens["semaphore", rank, number].extend([None] * value)

    def run(self) -> Messages:
        """Run all thread blocks to their ends."""
        left = {
            (rank, number): deque(each for each in flat(block) if each.name != "pipeline")
            for rank, gpu in enumerate(self._plan.gpus)
            for number, block in enumerate(gpu.thread_blocks)
        }
        while left:
            moved = False
            for block, operations in list(left.items()):
                while operations and all(self._tokens[each] for each in operations[0].awaited(block[0])):
                    self._run_operation(block, operations.popleft())
                    moved = True
                if not operations:
                    del left[block]
            if left and not moved:
                rank, number = next(iter(left))
                raise ProgramError(f"the plan deadlocks: rank {rank} thread block {number} waits for a signal")
        return self._messages

    def _run_operation(self, block: tuple[int, int], operation: Operation) -> None:
        rank, messages = block[0], self._messages
        taken = [self._tokens[each].popleft() for each in operation.awaited(rank)]
        before = [each for each in (self._last.get(block), *taken) if each is not None]
        here = self._last[block] = messages.event(rank, before)
        kind = operation.channel_type or "memory"
        if operation.name in SWITCH_OPERATIONS:
            self._stores[block] += self._switch(rank, operation, here)
        channels: list[Channel] = [(*block, kind, channel) for channel in operation.channels]
        if operation.name in ("put", "pws"):
            pairs = zip(operation.sources, operation.targets, strict=True)
            for channel, (source, target) in zip(channels, pairs, strict=True):
                if target.rank != rank:
                    self._pending[channel].append(messages.send(rank, target.rank, source.count, [here]))
        if operation.name in (*SIGNALLING, "pws"):
            for channel in channels:
                self._signal(channel, here)
        if operation.name == "sem_release":
            for number in operation.semaphores:
                self._tokens["semaphore", rank, number].append(here)

    def _signal(self, channel: Channel, here: int) -> None:
        rank, _, kind, position = channel
        other = self._others.get((rank, kind, position))
        if other is None:
            raise ProgramError(f"rank {rank} signals on {kind} channel {position}, which has no other end")
        arrival = self._messages.event(rank, [here, *self._pending[channel], *self._stores[channel[:2]]])
        self._pending[channel] = [arrival]
        self._tokens[other[1], other[0], other[2]].append(arrival)

    def _switch(self, rank: int, operation: Operation, here: int) -> list[int]:
        """Add what a switch sums up for a rank, and copies from it; return the copies."""
        gpu, count, messages = self._plan.gpus[rank], operation.sources[0].count, self._messages
        group = gpu.switches[operation.channels[-1]].ranks
        switch = self._switch_of(group, adds=operation.name == "glres")
        # Where switches send copies back, a rank's own data goes to the switch too.
        reached = [each for each in group if each != rank or self._topology.nodes[switch] in self._topology.loopback]
        before = [here]
        if operation.name == "glres":
            parts = [messages.send(each, switch, count, before, adds=True) for each in reached]
            before = [messages.send(switch, rank, count, parts, adds=rank not in reached)]
        result = messages.send(rank, switch, count, before)
        return [messages.send(switch, each, count, [result]) for each in reached]

    def _switch_of(self, group: Sequence[int], *, adds: bool) -> int:
        """Find the switch that copies, and adds if need be, between all ranks of a group; its node's number."""
        topology = self._topology
        linked = {(link.tail, link.head) for link in topology.links}
        able = topology.multicast & topology.aggregation if adds else topology.multicast
        ends = [topology.nodes[each] for each in group]
        found = [
            switch
            for switch in topology.switch_nodes
            if switch in able and all((end, switch) in linked and (switch, end) in linked for end in ends)
        ]
        if len(found) != 1:
            raise UnsupportedError(
                f"the plan uses a switch channel of {len(ends)} ranks, and {len(found)} switches of {topology.name} "
                "are linked to all of them and able to do it; expected one"
            )
        return topology.node_index[found[0]]
