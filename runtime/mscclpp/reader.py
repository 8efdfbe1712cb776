"""Strict reader of MSCCL++ execution plans: every field of its type and within its limits, every index resolved.

The executor's loader ignores unknown keys and does not check indices.  Here an unknown key is refused too: its author
meant something by it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from ...errors import FileFormatError, UnsupportedError
from ...support.files import name_of, read_bytes
from ...support.validation import is_whole, shown
from ..programs.findings import Severity
from ..programs.program import Buffer
from . import executor
from .check import PlanError, check_execution_plan
from .execution_plan import CHANNEL_TYPES, ChannelType, ExecutionPlan, Gpu, Operation, Place, SwitchGroup
from .loader import FIELDS, decoded, load

UINT32_MAX = 2**32 - 1
BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
MAX_BLOCKS = 2**10  # Of a GPU; all must run at once, and no GPU has as many multiprocessors
MAX_ENTRIES = MAX_BLOCKS * executor.MAX_CHANNELS  # Of a list of what thread blocks use, such as the channels of a GPU
MAX_CHUNKS = 2**28  # A buffer of more would have chunks of less than 16 bytes

ALL_CHANNEL_TYPES: tuple[ChannelType, ...] = (*CHANNEL_TYPES, "switch")
CHUNKS = ("input_chunks", "output_chunks", "scratch_chunks")
TOP_OPTIONS = (
    "reuse_resources", "use_double_scratch_buffer", "buffer_alignment", "num_threads_per_block", "min_message_size",
    "max_message_size",
)  # fmt: skip
Positions = dict[ChannelType, tuple[int, ...]]  # Of channels or remote buffers, in the lists of their GPU
SPELLINGS = {ours.nccl_name: ours for ours in executor.WRITTEN}
UINT64_MAX = 2**64 - 1
MAX_BYTES_OF_FILE = 2**25  # Six times what a plan for 64 GPUs takes; a larger file is refused before it is decoded
MAX_TOKENS = 2**16  # In all semaphores of a GPU together


def read_mscclpp(path: str | os.PathLike[str]) -> ExecutionPlan:
    """Read an MSCCL++ execution plan as the newest loader does; what `Plan.export` writes round-trips.

    The plan is consistent; `interpret_mscclpp` finds out whether it moves the right data.  Raises `FileFormatError` if
    the file cannot be read, or the executor would refuse or misread it, with the file and the place;
    `UnsupportedError` for what collopt does not run.
    """
    where, content = name_of(path), read_bytes(path, MAX_BYTES_OF_FILE)
    try:
        return parse_document(load(decoded(content, repeats=False), executor.MAIN, set()), where)
    except PlanError as error:  # whose verdict is for `lint`
        raise FileFormatError(str(error)) from None
    except (FileFormatError, UnsupportedError) as error:
        raise type(error)(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None


def parse_document(document: object, where: str) -> ExecutionPlan:
    """Resolve all indices of a decoded plan and check it; raises as `read_mscclpp`."""
    plan = _Parser(where).plan(document)
    check_execution_plan(plan, where)
    return plan


class _Lists(NamedTuple):
    """What a GPU lists, and thread blocks name by position."""

    peers: Positions
    remote: list[tuple[int, Buffer, list[ChannelType]]]  # Owner, buffer, and the types of channels that reach it
    switches: tuple[SwitchGroup, ...]


class _Block(NamedTuple):
    """What the operations of a thread block name by position."""

    rank: int
    channels: Positions
    remote: Mapping[ChannelType, list[tuple[int, Buffer, list[ChannelType]]]]
    switches: Sequence[SwitchGroup]


class _Fields:
    """Reads and checks fields; messages begin with the file, `where`, and the field."""

    def __init__(self, where: str) -> None:
        self.where = where

    def mapping(
        self, value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        """Read an object with all required keys, and no unknown ones."""
        if not isinstance(value, dict):
            self.fail(f"{where} is {shown(value)}; expected an object")
        for key in required:
            if key not in value:
                self.fail(f"{where} has no {key}")
        for key in value:
            if key not in required and key not in optional:
                self.fail(f"{where} has {shown(key)}, which the executor does not read; remove it")
        return value

    def entries(self, value: object, where: str, minimum: int = 0, limit: int = MAX_ENTRIES) -> list[Any]:
        """Read a list of `minimum` to `limit` entries."""
        if not isinstance(value, list) or len(value) < minimum:
            self.fail(f"{where} is {shown(value)}; expected a list{' with entries' if minimum else ''}")
        if len(value) > limit:
            self.fail(f"{where} has {len(value)} entries; the limit is {limit}")
        return value

    def integers(self, value: object, where: str, limit: int, minimum: int = 0) -> tuple[int, ...]:
        """Read a list of at least `minimum` integers from 0 to `limit`."""
        entries = self.entries(value, where, minimum)
        return tuple(self.integer(entry, f"an entry of {where}", 0, limit) for entry in entries)

    def integer(self, value: object, where: str, low: int, high: int) -> int:
        """Read an integer from `low` to `high`."""
        if not is_whole(value) or not low <= value <= high:
            self.fail(f"{where} is {shown(value)}; expected a whole number from {low} to {high}")
        return value

    def channel_type(self, value: object, where: str, kinds: tuple[ChannelType, ...] = CHANNEL_TYPES) -> ChannelType:
        """Read a channel type, one of `kinds`."""
        kind_read = next((kind for kind in kinds if value == kind), None)
        if kind_read is None:
            self.fail(f"{where} has channel type {shown(value)}; expected {' or '.join(kinds)}")
        return kind_read

    def buffer(self, value: object, where: str) -> Buffer:
        """Read a buffer by its letter."""
        if not isinstance(value, str) or value not in BUFFERS:
            self.fail(f"{where} has buffer type {shown(value)}; expected i, o or s")
        return BUFFERS[value]

    def check_position(self, number: object, where: str, position: int) -> None:
        """Refuse an entry whose number is not its position."""
        if not is_whole(number) or number != position:
            self.fail(f"{where} has id {shown(number)}; expected its position")

    def fail(self, what: str, severity: Severity = "wrong data") -> NoReturn:
        """Refuse the file."""
        raise PlanError(f"{self.where}: {what}", severity)


class _Parser(_Fields):
    """Converts a document to a plan."""

    def plan(self, document: object) -> ExecutionPlan:
        """Read the document."""
        top = self.mapping(document, "the plan", ("name", "collective", "protocol", "inplace", "gpus"), TOP_OPTIONS)
        collective, name, threads = top["collective"], top["name"], executor.MAX_THREADS
        if not isinstance(collective, str):
            self.fail(f"collective is {shown(collective)}; expected a text, such as {next(iter(SPELLINGS))}")
        if not isinstance(name, str) or not name:
            self.fail(f"name is {shown(name)}; expected a text that no other plan has", "not checked")
        self._check_modes(top)
        gpus = self.entries(top["gpus"], "gpus", 1)
        lists = [self._lists(gpu, f"gpu {rank}", rank, len(gpus)) for rank, gpu in enumerate(gpus)]
        return ExecutionPlan(
            name,
            SPELLINGS.get(collective),
            top["inplace"],
            self.integer(top.get("min_message_size", 0), "min_message_size", 0, UINT64_MAX),
            self.integer(top.get("max_message_size", UINT64_MAX), "max_message_size", 0, UINT64_MAX),
            self.integer(top.get("num_threads_per_block", threads), "num_threads_per_block", 1, threads),
            tuple(self._gpu(gpu, own, rank) for rank, (gpu, own) in enumerate(zip(gpus, lists, strict=True))),
            top["protocol"] == "LL",
            1 + top.get("use_double_scratch_buffer", False),
            top.get("reuse_resources", False),
        )

    def _check_modes(self, top: Mapping[str, Any]) -> None:
        for key in ("inplace", "reuse_resources", "use_double_scratch_buffer"):
            if not isinstance(top.get(key, False), bool):
                self.fail(f"{key} is {shown(top[key])}; expected true or false")
        if top["protocol"] not in ("Simple", "LL"):
            self.fail(f"protocol is {shown(top['protocol'])}; expected Simple or LL")
        alignment = top.get("buffer_alignment", executor.ALIGNMENT)
        if alignment != executor.ALIGNMENT or isinstance(alignment, bool):
            problem = f"buffer_alignment is {shown(alignment)}; collopt runs plans with {executor.ALIGNMENT} only"
            raise UnsupportedError(f"{self.where}: {problem}")

    def _lists(self, gpu: object, where: str, rank: int, ranks: int) -> _Lists:
        """Channels and remote buffers of a GPU."""
        fields = self.mapping(
            gpu, where, ("id", *CHUNKS, "channels", "remote_buffers", "threadblocks"), ("semaphores",)
        )
        self.check_position(fields["id"], where, rank)
        peers: Positions = dict.fromkeys(CHANNEL_TYPES, ())
        switches: list[SwitchGroup] = []
        for channel in self.entries(fields["channels"], f"channels of {where}"):
            if isinstance(channel, dict) and channel.get("channel_type") == "switch":
                switches += self._switch_groups(channel, f"a switch channel of {where}", rank, ranks)
                continue
            self.mapping(channel, f"a channel of {where}", ("channel_type", "connected_to"))
            kind = self.channel_type(channel["channel_type"], where)
            if peers[kind]:
                self.fail(f"{where} has two entries for {kind} channels; expected one")
            peers[kind] = self.integers(channel["connected_to"], f"connected_to of {where}", ranks - 1, 1)
        remote = []
        for buffer in self.entries(fields["remote_buffers"], f"remote_buffers of {where}"):
            what = f"a remote buffer of {where}"
            self.mapping(buffer, what, ("rank", "type", "access_channel_types"))
            owner = self.integer(buffer["rank"], f"rank of {what}", 0, ranks - 1)
            kinds = [self.channel_type(kind, what) for kind in self.entries(buffer["access_channel_types"], what, 1)]
            remote.append((owner, self.buffer(buffer["type"], what), kinds))
        return _Lists(peers, remote, tuple(switches))

    def _switch_groups(self, channel: Mapping[str, Any], where: str, rank: int, ranks: int) -> Iterator[SwitchGroup]:
        """Switch channels of one entry, one for each group, as the loader counts them (execution_plan.cc, line 317)."""
        self.mapping(channel, where, ("channel_type", "buffer_type", "rank_groups"))
        buffer = self.buffer(channel["buffer_type"], where)
        for group in self.entries(channel["rank_groups"], f"rank_groups of {where}", 1):
            self.mapping(group, f"a group of {where}", ("size", "ranks"))
            members = self.integers(group["ranks"], f"ranks of {where}", ranks - 1, 2)
            if len(set(members)) < len(members) or rank not in members:
                self.fail(f"{where} is for ranks {shown(list(members))}; expected different ones, its own among them")
            self.integer(group["size"], f"size of {where}", len(members), len(members))
            yield SwitchGroup(buffer, members)

    def _gpu(self, gpu: Mapping[str, Any], lists: _Lists, rank: int) -> Gpu:
        where = f"gpu {rank}"
        semaphores = []
        for semaphore in self.entries(gpu.get("semaphores", []), f"semaphores of {where}"):
            self.mapping(semaphore, f"a semaphore of {where}", ("init_value",))
            semaphores.append(self.integer(semaphore["init_value"], f"init_value of {where}", 0, MAX_TOKENS))
        if sum(semaphores) > MAX_TOKENS:
            self.fail(f"semaphores of {where} begin with {sum(semaphores)} in all; the limit is {MAX_TOKENS}")
        blocks = self.entries(gpu["threadblocks"], f"threadblocks of {where}", 0, MAX_BLOCKS)
        inputs, outputs, scratch = (
            self.integer(gpu[key], f"{key} of {where}", int(key != "scratch_chunks"), MAX_CHUNKS) for key in CHUNKS
        )
        return Gpu(
            inputs,
            outputs,
            scratch,
            lists.peers,
            tuple(semaphores),
            tuple(self._block(block, lists, rank, number) for number, block in enumerate(blocks)),
            lists.switches,
        )

    def _block(self, block: object, lists: _Lists, rank: int, number: int) -> tuple[Operation, ...]:
        where = f"gpu {rank} threadblock {number}"
        fields = self.mapping(block, where, ("id", "ops", "channels"), ("remote_buffer_refs",))
        self.check_position(fields["id"], where, number)
        channels: Positions = dict.fromkeys(ALL_CHANNEL_TYPES, ())
        for entry in self.entries(fields["channels"], f"channels of {where}"):
            self.mapping(entry, f"channels of {where}", ("channel_type", "channel_ids"))
            kind = self.channel_type(entry["channel_type"], where, ALL_CHANNEL_TYPES)
            limit = len(lists.switches if kind == "switch" else lists.peers[kind]) - 1
            channels[kind] += self.integers(entry["channel_ids"], f"{kind} channels of {where}", limit)
        refs: Positions = dict.fromkeys(ALL_CHANNEL_TYPES, ())
        for entry in self.entries(fields.get("remote_buffer_refs", []), f"remote_buffer_refs of {where}"):
            self.mapping(entry, f"remote_buffer_refs of {where}", ("access_channel_type", "remote_buffer_ids"))
            kind = self.channel_type(entry["access_channel_type"], where)
            ids = self.integers(entry["remote_buffer_ids"], f"{kind} buffers of {where}", len(lists.remote) - 1)
            if strange := [at for at in ids if kind not in lists.remote[at][2]]:
                self.fail(f"{where} uses remote buffer {strange[0]} by {kind} channels, which its entry does not allow")
            refs[kind] += ids
        for kind in ALL_CHANNEL_TYPES:
            for what, listed in (("channels", channels[kind]), ("remote buffers", refs[kind])):
                if len(listed) > executor.MAX_CHANNELS:
                    self.fail(f"{where} has {len(listed)} {kind} {what}; expected at most {executor.MAX_CHANNELS}")
        remote = {kind: [lists.remote[at] for at in refs[kind]] for kind in refs}
        operations = self.entries(fields["ops"], f"ops of {where}", 1)
        if len(operations) > executor.MAX_OPERATIONS:
            self.fail(f"{where} has {len(operations)} operations; the limit is {executor.MAX_OPERATIONS}", "rejected")
        own = _Block(rank, channels, remote, lists.switches)
        return tuple(self._operation(value, own, f"{where} op {at}") for at, value in enumerate(operations))

    def _operation(self, value: object, block: _Block, where: str, *, inside: bool = False) -> Operation:
        """Read one operation; `inside` a pipeline there are no pipelines."""
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in FIELDS:
            self.fail(f"{where} has name {shown(name)}; expected one of {', '.join(FIELDS)}")
        moves, fields = name in executor.SHAPES, FIELDS[name]
        optional = ("channel_type", "channel_ids", "tbg_info") if moves else ("reduce_op",) * (name == "glres")
        entry = self.mapping(value, where, ("name", *(key for key in fields if key not in optional)), optional)
        if name in executor.SWITCH_OPERATIONS:
            return self._switch_operation(name, entry, block, where)
        if name == "pipeline":
            if inside:
                self.fail(f"{where} is a pipeline in a pipeline")
            return self._pipeline(entry, block, where)
        if name == "barrier":
            number = self.integer(entry["barrier_id"], f"barrier_id of {where}", 0, executor.MAX_BARRIERS - 1)
            blocks = self.integer(entry["num_threadblocks"], f"num_threadblocks of {where}", 0, MAX_BLOCKS)
            return Operation(name, barrier=(number, blocks))
        if name in executor.SEMAPHORE_OPERATIONS:
            numbers = self.integers(entry["semaphore_ids"], f"semaphore_ids of {where}", UINT32_MAX, 1)
            return Operation(name, semaphores=numbers)
        kind = self.channel_type(entry["channel_type"], where) if "channel_type" in entry else None
        channels: tuple[int, ...] = ()
        if kind == "port" or (kind is not None and not moves):
            listed = block.channels[kind]
            ids = self.integers(entry.get("channel_ids"), f"channel_ids of {where}", len(listed) - 1, 1)
            channels = tuple(listed[end] for end in ids)
        elif kind is not None:
            channels = self._memory_channels(entry, block)
        return self._moving(name, entry, block, kind, channels, where) if moves else Operation(name, kind, channels)

    def _memory_channels(self, entry: Mapping[str, Any], block: _Block) -> tuple[int, ...]:
        """Channels named by an operation on memory, which is written by its address whatever they are."""
        ids, listed = entry.get("channel_ids", ()), block.channels["memory"]
        named = isinstance(ids, list) and all(is_whole(number) and 0 <= number < len(listed) for number in ids)
        return tuple(listed[number] for number in ids) if named and len(ids) == len(entry["dst_buff"]) else ()

    def _moving(
        self, name: str, entry: Mapping[str, Any], block: _Block, kind: ChannelType | None, channels: tuple[int, ...],
        where: str,
    ) -> Operation:  # fmt: skip
        """Read an operation that moves data."""
        ends = [self.entries(entry[key], f"{key} of {where}", 1) for key in ("src_buff", "dst_buff")]
        sources, targets = map(len, ends)
        shape = executor.shape_of(name, kind, sources, targets)
        if shape is None or max(sources, targets) > executor.MAX_PLACES:
            what = f"{name} from {sources} places to {targets}"
            self.fail(f"{where} is a {what}, which it cannot be; the limit is {executor.MAX_PLACES}")
        if kind is None and set("".join(shape)) & {"r", "q"}:
            self.fail(f"{where} has no channel_type, by which its remote buffers are found", "rejected")
        if kind == "port" and name not in executor.PORT_OPERATIONS:
            self.fail(f"{where} is a {name} on a port channel, which has no addresses of memory")
        with_ids = kind == "port" and any(isinstance(end, dict) and "buffer_id" in end for end in ends[0])
        places: list[tuple[Place, ...]] = []
        for key, own, letters in zip(("src_buff", "dst_buff"), ends, shape, strict=True):
            read = self._offset_place if with_ids and key == "src_buff" else self._place
            what = f"{key} of {where}"
            places.append(
                tuple(
                    read(end, block, what, kind if letter in "rq" else None, letter in "pq")
                    for end, letter in zip(own, letters, strict=True)
                )
            )
        from_base = kind == "port" and not with_ids and any(place.buffer != "scratch" for place in places[0])
        part = (0, 1)
        if "tbg_info" in entry:
            info = self.mapping(entry["tbg_info"], f"tbg_info of {where}", ("tb_id", "tbg_size"))
            size = self.integer(info["tbg_size"], f"tbg_size of {where}", 1, MAX_BLOCKS)
            part = self.integer(info["tb_id"], f"tb_id of {where}", 0, size - 1), size
        return Operation(name, kind, channels, places[0], places[1], from_base=from_base, part=part)

    def _pipeline(self, entry: Mapping[str, Any], block: _Block, where: str) -> Operation:
        context = self.mapping(entry["iter_context"], f"iter_context of {where}", ("unit_size", "num_chunks"))
        inner = self.entries(entry["ops"], f"ops of {where}", 1)
        return Operation(
            "pipeline",
            unit_bytes=self.integer(context["unit_size"], f"unit_size of {where}", 1, UINT32_MAX),
            num_chunks=self.integer(context["num_chunks"], f"num_chunks of {where}", 1, MAX_CHUNKS),
            body=tuple(
                self._operation(value, block, f"{where} op {at}", inside=True) for at, value in enumerate(inner)
            ),
        )

    def _switch_operation(self, name: str, entry: Mapping[str, Any], block: _Block, where: str) -> Operation:
        """Read an operation of switch channels; the executor looks at the first source and target only."""
        kind = self.channel_type(entry["channel_type"], where, ("switch",))
        if (operator := entry.get("reduce_op", "sum")) != "sum":
            self.fail(f"{where} has reduce_op {shown(operator)}, but the executor's glres always sums")
        channels: list[int] = []
        places: list[Place] = []
        for key, on_switch in (("src_buff", name == "glres"), ("dst_buff", True)):
            what = f"{key} of {where}"
            value = self.entries(entry[key], what, 1, 1)[0]
            if not on_switch:
                places.append(self._place(value, block, what, None, name == "gstorepkt"))
                continue
            end, listed = self.mapping(value, what, ("switch_channel_id", "index", "size")), block.channels["switch"]
            channels.append(listed[self.integer(end["switch_channel_id"], what, 0, len(listed) - 1)])
            buffer = block.switches[channels[-1]].buffer
            places.append(self._range(end, block.rank, buffer, what, name == "gstorepkt"))
        return Operation(name, kind, tuple(channels), (places[0],), (places[1],))

    def _place(self, value: object, block: _Block, where: str, remote: ChannelType | None, packed: bool) -> Place:
        entry = self.mapping(value, where, ("type" if remote is None else "buffer_id", "index", "size"))
        if remote is None:
            return self._range(entry, block.rank, self.buffer(entry["type"], where), where, packed)
        buffers = block.remote[remote]
        number = self.integer(entry["buffer_id"], f"buffer_id of {where}", 0, len(buffers) - 1)
        return self._range(entry, *buffers[number][:2], where, packed)

    def _offset_place(self, value: object, block: _Block, where: str, _: ChannelType | None, packed: bool) -> Place:
        """Read a source of a port channel that gets the offset of its buffer; see `Operation.from_base`."""
        entry = self.mapping(value, where, ("type", "index", "size"), ("buffer_id",))
        buffer, buffers = self.buffer(entry["type"], where), block.remote["port"]
        if "buffer_id" in entry or buffer != "scratch":
            number = self.integer(entry.get("buffer_id"), f"buffer_id of {where}", 0, len(buffers) - 1)
            if number != executor.OFFSET_IDS.get(buffer) or buffers[number][1] != buffer:
                self.fail(
                    f"{where} has type {buffer[0]} and buffer_id {number}, of type {buffers[number][1][0]}; the "
                    "executor takes the number for the type, 0 for i and 1 for o, and that buffer's offset"
                )
        return self._range(entry, block.rank, buffer, where, packed)

    def _range(self, entry: Mapping[str, Any], owner: int, buffer: Buffer, where: str, packed: bool) -> Place:
        start = self.integer(entry["index"], f"index of {where}", 0, MAX_CHUNKS)
        count = self.integer(entry["size"], f"size of {where}", 1, MAX_CHUNKS)
        if packed and buffer != "scratch":
            raise UnsupportedError(f"{self.where}: {where} has packets in the {buffer}; collopt runs those in scratch")
        return Place(owner, buffer, start, count, packed)
