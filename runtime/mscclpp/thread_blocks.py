"""Thread blocks of MSCCL++ operations from the steps of one rank; see docs/explanation/programs.md.

Thread blocks of a GPU synchronize by semaphores, one for each pair (releasing, acquiring).  All must run at once; where
there are too many, the lightest are merged, their steps in the program's global order, so merging causes no deadlock.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import compress

from ...errors import TooLargeError
from ..programs.program import ChunkRange, Instruction, Program
from . import executor
from .execution_plan import CHANNEL_TYPES, Operation, Place, flat
from .transfers import Connections, End, Multicast, Multicasts, Transfers, stays_in_place

TOO_LONG = (
    f"{{}} has {{}} operations, the MSCCL++ executor takes {executor.MAX_OPERATIONS}; plan with fewer trees, "
    "trees_per_root=1 for the fewest, or with fewer chunks, or give slice_bytes=None"
)
TOO_MANY_CHANNELS = (
    f"{{}} uses {{}} {{}} channels, the MSCCL++ executor takes {executor.MAX_CHANNELS}; plan with fewer trees"
)


class SyncedBlock:
    """Operations of one thread block, with syncs of its threads where needed."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._waited: set[int] = set()  # Threads that know what the others do not.
        self._reads: list[Place] = []  # Since the last sync.
        self._writes: list[Place] = []

    def sync(self) -> None:
        """Synchronize all threads."""
        if self._waited or self._reads or self._writes:
            self.operations.append(Operation("nop"))
            self._waited.clear()
            self._reads.clear()
            self._writes.clear()

    def wait(self, operation: Operation) -> None:
        """Append an operation in which the first threads wait."""
        self.operations.append(operation)
        self._waited.update(range(_threads(operation)))

    def signal(self, operation: Operation) -> None:
        """Append an operation in which the first threads signal the completion of earlier operations."""
        alone = _threads(operation) == 1 and self._waited <= {0}
        if self._reads or self._writes or (self._waited and not alone):
            self.sync()
        self.operations.append(operation)

    def work(self, operation: Operation) -> None:
        """Append an operation in which all threads take part."""
        reads, writes = operation.sources, operation.targets
        clash = any(_overlap(one, other) for one in writes for other in (*self._reads, *self._writes))
        if self._waited or clash or any(_overlap(one, other) for one in reads for other in self._writes):
            self.sync()
        self.operations.append(operation)
        self._reads.extend(reads)
        self._writes.extend(writes)


def _threads(operation: Operation) -> int:
    return max(len(operation.channels), len(operation.semaphores))


def _overlap(one: Place, other: Place) -> bool:
    if one.rank != other.rank or ("scratch" in (one.buffer, other.buffer) and one.buffer != other.buffer):
        return False
    # Input and output may be one memory, at an offset that does not matter here.
    return one.buffer != other.buffer or (one.start < other.start + other.count and other.start < one.start + one.count)


WEIGHTS = {"send": 4, "recv": 2, "recv_reduce": 4, "copy": 1, "reduce": 2}  # About how many operations a step becomes


class RankWriter:
    """Writes the thread blocks of one rank."""

    def __init__(
        self,
        program: Program,
        multicasts: Multicasts,
        rank: int,
        steps: Sequence[int],
        transfers: Transfers,
        ends: Connections,
    ) -> None:
        self.program = program
        self.order = order = multicasts.order
        self.multicasts = multicasts.by_send
        self.rank = rank
        self.transfers = transfers
        self.ends = ends
        self.semaphores: dict[tuple[int, int], int] = {}  # By the blocks that release and acquire them
        self.acquires: dict[int, list[int]] = defaultdict(list)  # Before each step
        self.releases: dict[int, list[int]] = defaultdict(list)  # After it
        self.position = {number: at for at, number in enumerate(steps)}  # In the global order
        by_block: dict[int, list[int]] = defaultdict(list)
        for number in steps:
            if number not in multicasts.dropped:
                by_block[order.sites[number].thread_block].append(number)
        self._join_multicasts(by_block)
        self.blocks = [by_block[block] for block in sorted(by_block)]

    def _join_multicasts(self, by_block: dict[int, list[int]]) -> None:
        """Join the thread blocks that send the copies of one multicast."""
        home = {block: block for block in by_block}
        for number in [number for own in by_block.values() for number in own]:
            if number in self.multicasts:
                first = home[self.order.sites[self.multicasts[number].sends[0]].thread_block]
                other = home[self.order.sites[number].thread_block]
                home = {block: first if it == other else it for block, it in home.items()}
        for block, joined in home.items():
            if joined != block:
                by_block[joined] += by_block.pop(block)
        for own in by_block.values():
            own.sort(key=self.position.__getitem__)

    def write(
        self, max_thread_blocks: int, unit_bytes: int | None, num_chunks: int
    ) -> tuple[tuple[Operation, ...], ...]:
        """Return the operations of every thread block; the lightest are merged down to `max_thread_blocks`."""
        weights = [sum(WEIGHTS[self.order.instructions[number].kind] for number in own) for own in self.blocks]
        self.blocks = [
            sorted((number for block in group for number in self.blocks[block]), key=self.position.__getitem__)
            for group in merge_blocks(weights, max_thread_blocks)
        ]
        self._exchange()
        # A block of nothing but copies onto themselves comes to nothing.
        thread_blocks = tuple(filter(None, (self._block(own, unit_bytes, num_chunks) for own in self.blocks)))
        for at, operations in enumerate(thread_blocks):
            self._check(at, operations)
        # A kernel without thread blocks cannot be launched.
        return thread_blocks or ((Operation("nop"),),)

    def _exchange(self) -> None:
        """Find the semaphores that blocks acquire before, and release after, each step."""
        place = {number: (at, index) for at, own in enumerate(self.blocks) for index, number in enumerate(own)}
        for at, own in enumerate(self.blocks):
            waited: dict[int, int] = {}
            for number in own:
                awaited = [place[other] for other in self.order.before[number] if other in place]
                for source, index in sorted(awaited, reverse=True):
                    # A block runs in order, so a later step of it stands for the earlier ones too.
                    if source == at or waited.get(source, -1) >= index:
                        continue
                    waited[source] = index
                    semaphore = self.semaphores.setdefault((source, at), len(self.semaphores))
                    self.acquires[number].append(semaphore)
                    self.releases[self.blocks[source][index]].append(semaphore)

    def _block(self, own: Sequence[int], unit_bytes: int | None, num_chunks: int) -> tuple[Operation, ...]:
        """Notify the senders of the start, run the steps, and complete the port channels."""
        incoming = sorted({self._end(number) for number in own if self.order.instructions[number].receives})
        outgoing = sorted({self._end(number) for number in own if self.order.instructions[number].kind == "send"})
        before, body, after = SyncedBlock(), SyncedBlock(), SyncedBlock()
        for operation in _grouped("rlxsignal", incoming):
            before.signal(operation)
        for operation in _grouped("rlxwait", outgoing):
            before.wait(operation)
        before.sync()
        for number in own:
            if (multicast := self.multicasts.get(number)) is None:
                self._step(body, number)
            elif number == multicast.sends[0]:
                self._multicast(body, multicast)
        body.sync()
        # The source of the last put may be overwritten when the kernel ends, so by then it must have been read.
        for operation in _grouped("signal", [end for end in incoming if end[0] == "port"]):
            after.signal(operation)
        for operation in _grouped("wait", [end for end in outgoing if end[0] == "port"]):
            after.wait(operation)
        steps = tuple(body.operations)
        if unit_bytes is not None and steps:
            steps = (Operation("pipeline", unit_bytes=unit_bytes, num_chunks=num_chunks, body=steps),)
        return (*before.operations, *steps, *after.operations)

    def _step(self, block: SyncedBlock, number: int) -> None:
        step = self.order.instructions[number]
        for part in batches(self.acquires[number], executor.MAX_SEMAPHORES_PER_OPERATION):
            block.wait(Operation("sem_acquire", semaphores=part))
        if step.kind == "send":
            self._send(block, number)
        elif step.receives:
            self._receive(block, number)
        elif not stays_in_place(self.program, self.rank, step):
            source, target = self._place(step.source, step), self._place(step.target, step)
            if step.kind == "copy":
                block.work(Operation("copy", sources=(source,), targets=(target,)))
            else:
                block.work(Operation("re", sources=(target, source), targets=(target,)))
        for part in batches(self.releases[number], executor.MAX_SEMAPHORES_PER_OPERATION):
            block.signal(Operation("sem_release", semaphores=part))

    def _multicast(self, block: SyncedBlock, multicast: Multicast) -> None:
        """Store once for all sends of a multicast, then signal to all who receive."""
        channels = [self._end(number)[1] for number in multicast.sends]
        step = self.order.instructions[multicast.sends[0]]
        for number in multicast.sends:
            for part in batches(self.acquires[number], executor.MAX_SEMAPHORES_PER_OPERATION):
                block.wait(Operation("sem_acquire", semaphores=part))
        credited = [self.order.partners[number] in self.transfers.credits for number in multicast.sends]
        for part in batches([*compress(channels, credited)], executor.MAX_CHANNELS_PER_OPERATION):
            block.wait(Operation("wait", "memory", part))
        block.work(Operation("gstore", "switch", (0,), (self._place(step.source, step),), (multicast.target,)))
        for part in batches(channels, executor.MAX_CHANNELS_PER_OPERATION):
            block.signal(Operation("signal", "memory", part))
        for number in multicast.sends:
            for part in batches(self.releases[number], executor.MAX_SEMAPHORES_PER_OPERATION):
                block.signal(Operation("sem_release", semaphores=part))

    def _send(self, block: SyncedBlock, number: int) -> None:
        kind, channel = self._end(number)
        receive, step = self.order.partners[number], self.order.instructions[number]
        put = Operation("put", kind, (channel,), (self._place(step.source, step),), (self.transfers.arrivals[receive],))
        if receive in self.transfers.credits:
            block.wait(Operation("wait", kind, (channel,)))
        if kind == "port":
            block.signal(replace(put, name="pws"))
        else:
            block.work(put)
            block.signal(Operation("signal", kind, (channel,)))
        if receive in self.transfers.acknowledgements:
            block.wait(Operation("wait", kind, (channel,)))

    def _receive(self, block: SyncedBlock, number: int) -> None:
        kind, channel = self._end(number)
        step, arrival = self.order.instructions[number], self.transfers.arrivals[number]
        if number in self.transfers.credits:
            block.signal(Operation("signal", kind, (channel,)))
        block.wait(Operation("wait", kind, (channel,)))
        if number in self.transfers.acknowledgements:
            block.signal(Operation("signal", kind, (channel,)))
        if step.kind == "recv_reduce":
            sources, target = (self._place(step.source, step), arrival), self._place(step.target, step)
            block.work(Operation("re", sources=sources, targets=(target,)))

    def _place(self, end: ChunkRange | None, step: Instruction) -> Place:
        """Place that a step reads or writes on this rank."""
        assert end is not None  # The checks know which kinds have which ends.
        return Place(self.rank, end.buffer, end.start, step.count)

    def _end(self, number: int) -> End:
        """Return the channel that a transfer uses at this end."""
        site = self.order.sites[number]
        block = self.program.ranks[site.rank].thread_blocks[site.thread_block]
        if self.order.instructions[number].kind == "send":
            assert block.send_peer is not None  # The checks know that a block which sends has a peer.
            return self.ends.senders[self.rank, block.send_peer, block.channel]
        assert block.recv_peer is not None
        return self.ends.receivers[block.recv_peer, self.rank, block.channel]

    def _check(self, at: int, operations: tuple[Operation, ...]) -> None:
        where = f"rank {self.rank} thread block {at}"
        if (length := len([*flat(operations)])) > executor.MAX_OPERATIONS:
            raise TooLargeError(TOO_LONG.format(where, length))
        for kind in CHANNEL_TYPES:
            own = [one for one in flat(operations) if one.channel_type == kind]
            channels = {channel for one in own for channel in one.channels}
            if len(channels) > executor.MAX_CHANNELS:
                raise TooLargeError(TOO_MANY_CHANNELS.format(where, len(channels), kind))
            buffers = {(place.rank, place.buffer) for one in own for place in one.remote_places}
            # The first two of port channels may be there for the offsets of their sources.
            if len(buffers) + 2 * any(one.offset_buffers for one in own) > executor.MAX_CHANNELS:
                raise TooLargeError(
                    f"{where} uses {len(buffers)} buffers of other ranks by {kind} channels, more than the MSCCL++ "
                    "executor takes; plan with fewer trees"
                )


def merge_blocks(weights: Sequence[int], limit: int) -> list[list[int]]:
    """Merge the two lightest thread blocks until there are few enough."""
    groups = {block: [block] for block in range(len(weights))}
    heap = [(weight, block) for block, weight in enumerate(weights)]
    heapify(heap)
    while len(heap) > max(1, limit):
        (weight, one), (other_weight, other) = heappop(heap), heappop(heap)
        first, second = sorted((one, other))
        groups[first] = sorted(groups[first] + groups.pop(second))
        heappush(heap, (weight + other_weight, first))
    return [groups[first] for first in sorted(groups)]


def _grouped(name: str, ends: Sequence[End]) -> list[Operation]:
    """Operations for all channels, each with as many channels as allowed."""
    return [
        Operation(name, kind, part)
        for kind in CHANNEL_TYPES
        for part in batches(
            [channel for end_kind, channel in ends if end_kind == kind], executor.MAX_CHANNELS_PER_OPERATION
        )
    ]


def batches(numbers: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield all numbers, so many at a time."""
    for first in range(0, len(numbers), size):
        yield tuple(numbers[first : first + size])
