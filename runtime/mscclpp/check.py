"""Consistency checks of an MSCCL++ execution plan: limits, sizes, matching signals and semaphores, switch channels.

The executor checks operations of a thread block and alignment alone; beyond its other limits it overwrites memory or
hangs.  It binds a switch channel's buffers of all GPUs at one offset (0.9.0: executor.cc, 383, execution_plan.cc, 531).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from typing import NoReturn

from ...errors import FileFormatError, UnsupportedError
from ...schedules import ALL_TO_ALL, REDUCE_SCATTER, Collective
from ..programs.findings import Severity
from . import executor
from .execution_plan import CHANNEL_TYPES, ChannelType, ExecutionPlan, Gpu, Operation, Place, SwitchGroup, flat


class PlanError(FileFormatError):
    """A plan that the loader of MSCCL++ takes or not, and what becomes of it."""

    def __init__(self, message: str, severity: Severity) -> None:
        super().__init__(message)
        self.severity = severity


def _smaller(plan: ExecutionPlan) -> str:
    return "output" if plan.collective is REDUCE_SCATTER else "input"


def same_memory(plan: ExecutionPlan, one: Place, other: Place) -> bool:
    """Whether two places of one size are the same memory."""
    return one.rank == other.rank and _located(plan, one) == _located(plan, other)


def _located(plan: ExecutionPlan, place: Place) -> tuple[str, int]:
    """Memory and first chunk, input and output being one memory in place."""
    if not plan.in_place or place.buffer == "scratch":
        return place.buffer, place.start * (1 + place.packed)
    begin = 0
    if plan.collective is not None and plan.collective.is_sharded and place.buffer == _smaller(plan):
        begin = place.rank * plan.gpus[place.rank].chunks[place.buffer]
    return "shared", begin + place.start


Step = tuple[str, int, int, Operation, tuple[int, int] | None]
"""Place of an operation in words, rank, thread block, the operation, and unit and chunks of its pipeline."""


def check_execution_plan(plan: ExecutionPlan, where: str) -> None:
    """Refuse a plan that breaks a limit of the executor or contradicts itself."""
    _Checker(plan, where).check()


class _Checker:
    """Checks a plan; `where` names it in messages."""

    def __init__(self, plan: ExecutionPlan, where: str) -> None:
        self.plan = plan
        self.where = where
        self.pairs = plan.channel_pairs()

    def check(self) -> None:
        """Check everything."""
        self._check_sizes()
        for rank, gpu in enumerate(self.plan.gpus):
            self._check_channels(rank, gpu)
            for number, block in enumerate(gpu.thread_blocks):
                if (length := len([*flat(block)])) > executor.MAX_OPERATIONS:
                    message = f"gpu {rank} threadblock {number} has {length} operations"
                    self._fail(f"{message}; the limit is {executor.MAX_OPERATIONS}", "rejected")
        self._check_switch_groups()
        self._check_setup_order()
        self.steps = list(self._steps())
        for step in self.steps:
            self._check_operation(*step)
        self._check_pipelines()
        self._check_signals()
        self._check_semaphores()
        self._check_barriers()

    def _check_switch_groups(self) -> None:
        """Refuse groups on buffers that cannot be one memory at one offset."""
        plan = self.plan
        for rank, gpu in enumerate(plan.gpus):
            bound: dict[str, SwitchGroup] = {}
            for group in gpu.switches:
                sharded = plan.collective is not None and plan.collective.is_sharded
                if plan.in_place and sharded and group.buffer == _smaller(plan):
                    problem = f"a switch channel on its {group.buffer}, which in place begins elsewhere on each"
                    self._fail(f"gpu {rank} has {problem}")
                memory = "shared" if plan.in_place and group.buffer != "scratch" else group.buffer
                other = bound.setdefault(memory, group)
                if set(other.ranks) != set(group.ranks):
                    groups = f"{list(other.ranks)} and {list(group.ranks)}; a buffer is for one group"
                    self._fail(f"gpu {rank} has its {group.buffer} in switch groups of ranks {groups}")

    def _check_setup_order(self) -> None:
        """Set up all switch groups as the executor does: each when it is next on all of its GPUs."""
        listed = [[(group.buffer, frozenset(group.ranks)) for group in gpu.switches] for gpu in self.plan.gpus]
        at = [0] * len(listed)
        waiting = list(range(len(listed)))
        while waiting:
            rank = waiting.pop()
            if at[rank] == len(listed[rank]):
                continue
            following = listed[rank][at[rank]]
            if all(listed[member][at[member] :][:1] == [following] for member in following[1]):
                for member in following[1]:
                    at[member] += 1
                waiting.extend(following[1])
        for rank, groups in enumerate(listed):
            if at[rank] < len(groups):
                buffer, members = groups[at[rank]]
                self._fail(
                    f"gpu {rank} has switch channel {at[rank]} on the {buffer} of ranks {sorted(members)}, which not "
                    "all of them list in this order; they would wait for each other for ever"
                )

    def _steps(self) -> Iterator[Step]:
        for rank, gpu in enumerate(self.plan.gpus):
            for number, block in enumerate(gpu.thread_blocks):
                for at, operation in enumerate(block):
                    place = f"gpu {rank} threadblock {number} op {at}"
                    yield place, rank, number, operation, None
                    pipeline = operation.unit_bytes, operation.num_chunks
                    for inner_at, inner in enumerate(operation.body):
                        yield f"{place} op {inner_at}", rank, number, inner, pipeline

    def _check_sizes(self) -> None:
        plan = self.plan
        if plan.collective is not None:
            self._check_chunks(plan.collective)
        low, high = plan.smallest_message, plan.largest_message
        if max(low, plan.min_bytes) > min(plan.max_bytes, high):
            self._fail(
                f"min_message_size is {plan.min_bytes} and max_message_size {plan.max_bytes}; expected two sizes in "
                f"order, from {low}, below which chunks have less than {executor.ALIGNMENT} bytes, to {high}, above "
                "which an offset exceeds 32 bits",
                "rejected",
            )

    def _check_chunks(self, collective: Collective) -> None:
        """Refuse buffers of other sizes than the collective's."""
        ranks = self.plan.num_ranks
        for rank, gpu in enumerate(self.plan.gpus):
            inputs, kept = gpu.input_chunks, gpu.output_chunks
            expected = inputs
            if collective.is_sharded:
                expected = inputs // ranks if collective.reduces else inputs * ranks
            divides = collective not in (REDUCE_SCATTER, ALL_TO_ALL) or inputs % ranks == 0
            if kept != expected or not divides:
                self._fail(
                    f"gpu {rank} has {inputs} input chunks and {kept} output chunks, which is no {collective} of "
                    f"{ranks} ranks",
                    # Chunks of the input and the output have other sizes then.
                    "not checked" if kept == expected else "rejected",
                )
            if inputs != self.plan.gpus[0].input_chunks:
                self._fail(f"gpu {rank} has other numbers of input and output chunks than gpu 0", "not checked")

    def _check_channels(self, rank: int, gpu: Gpu) -> None:
        for kind in CHANNEL_TYPES:
            if rank in gpu.peers[kind]:
                self._fail(f"gpu {rank} has a {kind} channel to itself", "hangs")
            used = sorted(
                {
                    channel
                    for operation in gpu.operations()
                    if operation.channel_type == kind and (operation.signals or operation.name in executor.WAITING)
                    for channel in operation.channels
                }
            )
            # Channels without another end are there for nothing, as MSCCL++ adds the ends that are missing.
            if alone := [channel for channel in used if (rank, kind, channel) not in self.pairs]:
                self._fail(
                    f"gpu {rank} has more {kind} channels to gpu {gpu.peers[kind][alone[0]]} than that has back, and "
                    "uses them; every channel has two ends",
                    "hangs",
                )

    def _check_operation(
        self, where: str, rank: int, _: int, operation: Operation, pipeline: tuple[int, int] | None
    ) -> None:
        gpu = self.plan.gpus[rank]
        if len(operation.channels) > executor.MAX_CHANNELS_PER_OPERATION:
            self._fail(
                f"{where} has {len(operation.channels)} channels; the limit is {executor.MAX_CHANNELS_PER_OPERATION}"
            )
        if len(set(operation.channels)) < len(operation.channels) and operation.name not in executor.DATA_OPERATIONS:
            self._fail(f"{where} names a channel twice", "hangs")
        threads = max(len(operation.channels), len(operation.semaphores))
        if threads > self.plan.threads_per_block:
            message = f"{where} takes {threads} threads, a threadblock has {self.plan.threads_per_block}"
            self._fail(message, "hangs")
        if (count := len(operation.semaphores)) > executor.MAX_SEMAPHORES_PER_OPERATION:
            self._fail(f"{where} has {count} semaphores; the limit is {executor.MAX_SEMAPHORES_PER_OPERATION}")
        if len(set(operation.semaphores)) < len(operation.semaphores):
            self._fail(f"{where} names a semaphore twice", "hangs")
        if strange := [semaphore for semaphore in operation.semaphores if semaphore >= len(gpu.semaphores)]:
            self._fail(f"{where} uses semaphore {strange[0]}, but gpu {rank} has {len(gpu.semaphores)}")
        if operation.name not in executor.DATA_OPERATIONS:
            return
        self._check_shape(where, operation)
        packed = any(place.packed for place in (*operation.sources, *operation.targets))
        if pipeline is not None and (packed or operation.part[1] > 1):
            what = "packets" if packed else "a part of an operation (tbg_info)"
            raise UnsupportedError(f"{self.where}: {where} moves {what} in a pipeline, which collopt does not run")
        sources, targets = operation.copies(gpu)
        for place in (*sources, *targets):
            self._check_place(where, place, pipeline, writes=place in targets)
        if operation.channel_type == "switch":
            self._check_store(where, sources, targets)
        elif operation.channel_type is not None:
            self._check_put(where, gpu, operation)

    def _check_shape(self, where: str, operation: Operation) -> None:
        sources, targets = operation.sources, operation.targets
        width = max(len(sources), len(targets))
        fits = operation.name in executor.SWITCH_OPERATIONS or operation.shape[0] != ""
        if not fits or width > executor.MAX_PLACES or (operation.name == "re" and len(sources) == 1):
            name = f"{operation.name} from {len(sources)} places to {len(targets)}"
            self._fail(f"{where} is a {name}, which it cannot be; the limit is {executor.MAX_PLACES}")
        pairs = [*zip(sources, targets, strict=True)] if operation.name in executor.PAIRED else [(sources + targets)]
        if any(len({place.count for place in places}) > 1 for places in pairs):
            self._fail(f"{where} has places of different sizes")
        if operation.name in ("pws", "pwsf") and operation.channel_type != "port":
            what = f"{operation.name} on a memory channel, which never signals"
            self._fail(f"{where} is a {what}; use put, nop and signal")
        if operation.name == "copy" and _overlap(sources[0], targets[0]):
            self._fail(f"{where} copies chunks onto themselves")
        adds = operation.name in executor.SHAPES and operation.name not in (*executor.PAIRED, "copy")
        if adds and any(_overlap(source, target) and source != target for source, target in product(sources, targets)):
            self._fail(f"{where} adds chunks at an offset onto themselves")

    def _check_place(self, where: str, place: Place, pipeline: tuple[int, int] | None, *, writes: bool) -> None:
        chunks = self.plan.gpus[place.rank].chunks[place.buffer]
        if place.start + place.count > chunks:
            last = place.start + place.count - 1
            self._fail(
                f"{where} has {place.buffer} chunks {place.start} to {last} of gpu {place.rank}, which has {chunks}"
            )
        if writes and place.buffer == "input" and not self.plan.in_place and self.plan.collective is not None:
            self._fail(f"{where} writes to the input, which a plan out of place leaves alone")
        if pipeline is not None and place.count != pipeline[1]:
            # The executor subtracts the offset of the slice from the size without looking.
            self._fail(f"{where} moves {place.count} chunks in a pipeline of {pipeline[1]}; the numbers must be equal")

    def _check_store(self, where: str, sources: Iterable[Place], targets: Iterable[Place]) -> None:
        """Refuse a store at an offset onto what is read: other threads may not have read it yet."""
        for source, target in product(sources, targets):
            (one, first), (other, start) = _located(self.plan, source), _located(self.plan, target)
            if (source.rank, one) == (target.rank, other) and 0 < abs(first - start) < source.count:
                self._fail(f"{where} stores chunks at an offset onto what it reads")

    def _check_put(self, where: str, gpu: Gpu, operation: Operation) -> None:
        assert operation.channel_type is not None
        if operation.channel_type == "port" and len(operation.channels) != len(operation.targets):
            self._fail(f"{where} has {len(operation.channels)} channels for {len(operation.targets)} targets")
        if operation.name in executor.PORT_OPERATIONS and len({place.buffer for place in operation.sources}) > 1:
            self._fail(f"{where} has sources in several buffers; the executor takes the first one for all")
        for channel, target in zip(operation.channels, operation.targets, strict=False):
            peer = gpu.peers[operation.channel_type][channel]
            if peer != target.rank and operation.channel_type == "port":
                self._fail(f"{where} puts to gpu {target.rank} by a channel to gpu {peer}")

    def _check_pipelines(self) -> None:
        pipelines = {pipeline for _, _, _, _, pipeline in self.steps if pipeline is not None}
        if len(pipelines) > 1:
            kinds = f"slices of {len(pipelines)} kinds; collopt runs plans with one unit_size and num_chunks"
            raise UnsupportedError(f"{self.where}: pipelines have {kinds}")
        chunk = min(self.plan.max_bytes, self.plan.largest_message) // self.plan.message_chunks
        for unit, count in pipelines:
            if unit % executor.ALIGNMENT:
                self._fail(f"unit_size is {unit}; expected a multiple of {executor.ALIGNMENT}")
            if (iterations := chunk * count // unit) >= 2**16:
                slices = f"a pipeline makes {iterations} slices of it, expected fewer than 65536"
                self._fail(f"max_message_size is {self.plan.max_bytes}; {slices}")

    def _check_signals(self) -> None:
        """Each signal has a wait at the other end, in the same pipeline or outside of all."""
        signaled: Counter[tuple[int, ChannelType, int, bool]] = Counter()
        waited: Counter[tuple[int, ChannelType, int, bool]] = Counter()
        for _, rank, _, operation, pipeline in self.steps:
            for channel in operation.channels if operation.channel_type in CHANNEL_TYPES else ():
                assert operation.channel_type is not None  # The reader knows which operations have one.
                end = (rank, operation.channel_type, channel)
                if operation.signals:
                    signaled[*self.pairs[end], pipeline is not None] += 1
                elif operation.name in executor.WAITING:
                    waited[*end, pipeline is not None] += 1
        for both in sorted(signaled.keys() | waited.keys()):
            if signaled[both] != waited[both]:
                inside = " inside pipelines" if both[3] else ""
                self._fail(
                    f"gpu {both[0]} waits {waited[both]} times on {both[1]} channel {both[2]}{inside}, but its other "
                    f"end signals {signaled[both]} times",
                    "hangs",
                )

    def _check_semaphores(self) -> None:
        uses: dict[tuple[int, int], dict[str, list[tuple[int, bool]]]] = defaultdict(
            lambda: {name: [] for name in executor.SEMAPHORE_OPERATIONS}
        )
        for _, rank, block, operation, pipeline in self.steps:
            for semaphore in operation.semaphores:
                uses[rank, semaphore][operation.name].append((block, bool(pipeline)))
        for (rank, semaphore), operations in sorted(uses.items()):
            acquired, released = operations["sem_acquire"], operations["sem_release"]
            name = f"gpu {rank} semaphore {semaphore}"
            if any(len({block for block, _ in uses}) != 1 for uses in (acquired, released)):
                self._fail(f"{name} is not acquired by one threadblock and released by one other", "hangs")
            if sorted(inside for _, inside in acquired) != sorted(inside for _, inside in released):
                times = f"acquired {len(acquired)} times and released {len(released)} times"
                self._fail(f"{name} is {times}; the next call would find it changed", "hangs")

    def _check_barriers(self) -> None:
        """All thread blocks that a barrier is for, and no others, pass it equally often."""
        passes: dict[tuple[int, int], Counter[tuple[int, int, bool]]] = defaultdict(Counter)
        for _, rank, block, operation, pipeline in self.steps:
            if operation.name == "barrier":
                number, blocks = operation.barrier
                passes[rank, number][block, blocks, pipeline is not None] += 1
        for (rank, number), times in sorted(passes.items()):
            name, expected = f"gpu {rank} barrier {number}", {blocks for _, blocks, _ in times}
            members = {inside: {block for block, _, piped in times if piped == inside} for inside in (True, False)}
            if len(expected) > 1 or any(own and len(own) != min(expected) for own in members.values()):
                of = f"{len(members[True] | members[False])} threadblocks, and is for {sorted(expected)}"
                self._fail(f"{name} is passed by {of}", "hangs")
            if any(len({times[key] for key in times if key[2] == inside}) > 1 for inside in members):
                self._fail(f"{name} is not passed equally often by its threadblocks", "hangs")

    def _fail(self, what: str, severity: Severity = "wrong data") -> NoReturn:
        raise PlanError(f"{self.where}: {what}", severity)


def _overlap(one: Place, other: Place) -> bool:
    return (
        (one.rank, one.buffer, one.packed) == (other.rank, other.buffer, other.packed)
        and one.start < other.start + other.count
        and other.start < one.start + one.count
    )
