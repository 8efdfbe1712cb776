"""Strict reader of MSCCL++ execution plans: every field of its type and within its limits, every index resolved.

The executor's loader ignores unknown keys and does not check indices.  Here an unknown key is refused too, because
whoever wrote it meant something by it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from ....errors import FileFormatError, UnsupportedError
from ....support.reading import name_of, read_bytes
from ....support.validation import is_whole, shown
from ...programs.program import Buffer
from .check import check_execution_plan
from .execution_plan import (
    ALIGNMENT,
    CHANNEL_TYPES,
    DATA_OPERATIONS,
    MAX_CHANNELS,
    MAX_OPERATIONS,
    MAX_THREADS,
    SEMAPHORE_OPERATIONS,
    SIGNALLING,
    WAITING,
    WRITTEN,
    ChannelType,
    ExecutionPlan,
    Gpu,
    Operation,
    Place,
)

BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
MAX_BLOCKS = 2**10  # Of a GPU; all must run at once, and no GPU has as many multiprocessors
MAX_ENTRIES = MAX_BLOCKS * MAX_CHANNELS  # Of a list of what thread blocks use, such as the channels of a GPU
MAX_CHUNKS = 2**28  # A buffer of more would have chunks of less than 16 bytes


class Fields:
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

    def entries(self, value: object, where: str, least: int = 0, most: int = MAX_ENTRIES) -> list[Any]:
        """Read a list of `least` to `most` entries."""
        if not isinstance(value, list) or len(value) < least:
            self.fail(f"{where} is {shown(value)}; expected a list{' with entries' if least else ''}")
        if len(value) > most:
            self.fail(f"{where} has {len(value)} entries; the limit is {most}")
        return value

    def integers(self, value: object, where: str, most: int, least: int = 0) -> tuple[int, ...]:
        """Read a list of at least `least` integers from 0 to `most`."""
        return tuple(self.integer(each, f"an entry of {where}", 0, most) for each in self.entries(value, where, least))

    def integer(self, value: object, where: str, least: int, most: int) -> int:
        """Read an integer from `least` to `most`."""
        if not is_whole(value) or not least <= value <= most:
            self.fail(f"{where} is {shown(value)}; expected a whole number from {least} to {most}")
        return value

    def channel_type(self, value: object, where: str) -> ChannelType:
        """Read a supported channel type."""
        found = next((kind for kind in CHANNEL_TYPES if value == kind), None)
        if found is None:
            self.fail(f"{where} has channel type {shown(value)}; expected {' or '.join(CHANNEL_TYPES)}")
        return found

    def buffer(self, value: object, where: str) -> Buffer:
        """Read a buffer by its letter."""
        if not isinstance(value, str) or value not in BUFFERS:
            self.fail(f"{where} has buffer type {shown(value)}; expected i, o or s")
        return BUFFERS[value]

    def check_position(self, number: object, where: str, position: int) -> None:
        """Refuse an entry whose number is not its position."""
        if not is_whole(number) or number != position:
            self.fail(f"{where} has id {shown(number)}; expected its position")

    def fail(self, what: str) -> NoReturn:
        """Refuse the file."""
        raise FileFormatError(f"{self.where}: {what}")


UINT32_MAX = 2**32 - 1

OTHER_OPERATIONS = (
    "barrier", "pwsf", "get", "flush", "res", "rre", "rres", "ppkt", "rppkt", "respkt", "cpkt", "upkt", "repkt",
    "recpkt", "recspkt", "glres", "gstore",
)  # fmt: skip
"""Known to the executor, but neither written nor run by collopt."""

_CHANNELS = ("channel_type", "channel_ids")
FIELDS: dict[str, tuple[str, ...]] = {
    "nop": (),
    "copy": ("src_buff", "dst_buff"),
    "re": ("src_buff", "dst_buff"),
    "put": (*_CHANNELS, "src_buff", "dst_buff"),
    "pws": (*_CHANNELS, "src_buff", "dst_buff"),
    "pipeline": ("iter_context", "ops"),
    **dict.fromkeys((*SIGNALLING, *WAITING), _CHANNELS),
    **dict.fromkeys(SEMAPHORE_OPERATIONS, ("semaphore_ids",)),
}
"""Fields of each operation, all of which it must have."""


class OperationReader:
    """Resolves the indices in operations of one thread block."""

    def __init__(
        self,
        fields: Fields,
        rank: int,
        channels: Mapping[ChannelType, tuple[int, ...]],
        remote: Mapping[ChannelType, list[tuple[int, Buffer, list[ChannelType]]]],
    ) -> None:
        self.fields = fields
        self.rank = rank
        self.channels = channels
        self.remote = remote

    def operation(self, value: object, where: str, *, inside: bool) -> Operation:
        """Read one operation; `inside` a pipeline there are no pipelines."""
        fields, name = self.fields, value.get("name") if isinstance(value, dict) else None
        if name in OTHER_OPERATIONS:
            raise UnsupportedError(f"{fields.where}: {where} is {name}, which collopt does not run")
        if not isinstance(name, str) or name not in FIELDS:
            fields.fail(f"{where} has name {shown(name)}; expected one of {', '.join(FIELDS)}")
        found = fields.mapping(value, where, ("name", *FIELDS[name]))
        if name == "pipeline":
            if inside:
                fields.fail(f"{where} is a pipeline in a pipeline")
            return self._pipeline(found, where)
        kind: ChannelType | None = None
        channels: tuple[int, ...] = ()
        semaphores: tuple[int, ...] = ()
        if "channel_type" in found:
            kind = fields.channel_type(found["channel_type"], where)
            own = self.channels[kind]
            at = fields.integers(found["channel_ids"], f"channel_ids of {where}", len(own) - 1, 1)
            channels = tuple(own[each] for each in at)
        if name in SEMAPHORE_OPERATIONS:
            semaphores = fields.integers(found["semaphore_ids"], f"semaphore_ids of {where}", UINT32_MAX, 1)
        sources: tuple[Place, ...] = ()
        targets: tuple[Place, ...] = ()
        if name in DATA_OPERATIONS:
            sources, targets = (
                tuple(self._place(each, what, remote) for each in fields.entries(found[key], what, 1))
                for key, remote in (("src_buff", None), ("dst_buff", kind))
                for what in (f"{key} of {where}",)
            )
        return Operation(name, kind, channels, sources, targets, semaphores)

    def _pipeline(self, found: Mapping[str, Any], where: str) -> Operation:
        context = self.fields.mapping(found["iter_context"], f"iter_context of {where}", ("unit_size", "num_chunks"))
        inner = self.fields.entries(found["ops"], f"ops of {where}", 1)
        return Operation(
            "pipeline",
            unit_bytes=self.fields.integer(context["unit_size"], f"unit_size of {where}", 1, UINT32_MAX),
            num_chunks=self.fields.integer(context["num_chunks"], f"num_chunks of {where}", 1, MAX_CHUNKS),
            body=tuple(self.operation(each, f"{where} op {at}", inside=True) for at, each in enumerate(inner)),
        )

    def _place(self, value: object, where: str, remote: ChannelType | None) -> Place:
        found = self.fields.mapping(value, where, ("type" if remote is None else "buffer_id", "index", "size"))
        if remote is None:
            owner, buffer = self.rank, self.fields.buffer(found["type"], where)
        else:
            known = self.remote[remote]
            number = self.fields.integer(found["buffer_id"], f"buffer_id of {where}", 0, len(known) - 1)
            owner, buffer, _ = known[number]
        start = self.fields.integer(found["index"], f"index of {where}", 0, MAX_CHUNKS)
        return Place(owner, buffer, start, self.fields.integer(found["size"], f"size of {where}", 1, MAX_CHUNKS))


Positions = dict[ChannelType, tuple[int, ...]]  # Of channels or remote buffers, in the lists of their GPU
SPELLINGS = {each.nccl_name: each for each in WRITTEN}
UINT64_MAX = 2**64 - 1
MAX_BYTES_OF_FILE = 2**25  # Six times what a plan for 64 GPUs takes; a larger file is refused before it is decoded
MAX_TOKENS = 2**16  # In all semaphores of a GPU together


def read_mscclpp(path: str | os.PathLike[str]) -> ExecutionPlan:
    """Read an MSCCL++ execution plan; `write_mscclpp` round-trips.

    Raises `FileFormatError` if the file cannot be read, is not such a plan, or has missing, unknown or invalid values,
    with the file and the place; `UnsupportedError` for operations and channels that collopt does not run,
    such as packets and switch channels.

    Parameters
    ----------
    path : path
        File to read.

    Returns
    -------
    ExecutionPlan
        Consistent; `interpret_mscclpp` finds out whether it moves the right data.
    """
    return parse_content(read_bytes(path, MAX_BYTES_OF_FILE), name_of(path))


def parse_content(content: bytes, where: str) -> ExecutionPlan:
    """Decode the content of a file, and parse it by `parse_document`; raises as `read_mscclpp`."""
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: the file is not JSON ({' '.join(str(error).split())[:200]})") from None
    return parse_document(document, where)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {shown(twice)} is repeated in one object")
    return found


def parse_document(document: object, where: str) -> ExecutionPlan:
    """Resolve all indices of a decoded plan and check it; raises as `read_mscclpp`."""
    plan = _Parser(where).plan(document)
    check_execution_plan(plan, where)
    return plan


class _Parser(Fields):
    """Converts a document to a plan."""

    def plan(self, document: object) -> ExecutionPlan:
        """Read the document."""
        required = ("name", "collective", "protocol", "inplace", "gpus")
        optional = (
            "reuse_resources", "use_double_scratch_buffer", "buffer_alignment", "num_threads_per_block",
            "min_message_size", "max_message_size",
        )  # fmt: skip
        top = self.mapping(document, "the plan", required, optional)
        collective = top["collective"]
        if not isinstance(collective, str) or collective not in SPELLINGS:
            self.fail(f"collective is {shown(collective)}; expected one of {', '.join(SPELLINGS)}")
        if not isinstance(top["name"], str) or not top["name"]:
            self.fail(f"name is {shown(top['name'])}; expected a text that no other plan has")
        self._check_modes(top)
        listed = self.entries(top["gpus"], "gpus", 1)
        ranks = len(listed)
        resolved = [self._resources(gpu, f"gpu {rank}", rank, ranks) for rank, gpu in enumerate(listed)]
        return ExecutionPlan(
            top["name"],
            SPELLINGS[collective],
            top["inplace"],
            self.integer(top.get("min_message_size", 0), "min_message_size", 0, UINT64_MAX),
            self.integer(top.get("max_message_size", UINT64_MAX), "max_message_size", 0, UINT64_MAX),
            self.integer(top.get("num_threads_per_block", MAX_THREADS), "num_threads_per_block", 1, MAX_THREADS),
            tuple(self._gpu(gpu, known, rank) for rank, (gpu, known) in enumerate(zip(listed, resolved, strict=True))),
        )

    def _check_modes(self, top: Mapping[str, Any]) -> None:
        for key in ("inplace", "reuse_resources", "use_double_scratch_buffer"):
            if not isinstance(top.get(key, False), bool):
                self.fail(f"{key} is {shown(top[key])}; expected true or false")
        if top["protocol"] not in ("Simple", "LL"):
            self.fail(f"protocol is {shown(top['protocol'])}; expected Simple or LL")
        for key, plain in (
            ("protocol", "Simple"),
            ("reuse_resources", False),
            ("use_double_scratch_buffer", False),
            ("buffer_alignment", ALIGNMENT),
        ):
            value = top.get(key, plain)
            if value != plain or type(value) is not type(plain):
                raise UnsupportedError(
                    f"{self.where}: {key} is {shown(value)}; collopt runs plans with {shown(plain)} only"
                )

    def _resources(self, gpu: object, where: str, rank: int, ranks: int) -> dict[str, Any]:
        """Channels and remote buffers of a GPU."""
        required = (
            "id",
            "input_chunks",
            "output_chunks",
            "scratch_chunks",
            "channels",
            "remote_buffers",
            "threadblocks",
        )
        fields = self.mapping(gpu, where, required, ("semaphores",))
        self.check_position(fields["id"], where, rank)
        peers: dict[ChannelType, tuple[int, ...]] = dict.fromkeys(CHANNEL_TYPES, ())
        for channel in self.entries(fields["channels"], f"channels of {where}"):
            if isinstance(channel, dict) and channel.get("channel_type") == "switch":
                raise UnsupportedError(f"{self.where}: {where} has a switch channel, which collopt does not run")
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
        return {"peers": peers, "remote": remote}

    def _gpu(self, gpu: Mapping[str, Any], known: dict[str, Any], rank: int) -> Gpu:
        where = f"gpu {rank}"
        semaphores = []
        for each in self.entries(gpu.get("semaphores", []), f"semaphores of {where}"):
            self.mapping(each, f"a semaphore of {where}", ("init_value",))
            semaphores.append(self.integer(each["init_value"], f"init_value of {where}", 0, MAX_TOKENS))
        if sum(semaphores) > MAX_TOKENS:
            self.fail(f"semaphores of {where} begin with {sum(semaphores)} in all; the limit is {MAX_TOKENS}")
        blocks = self.entries(gpu["threadblocks"], f"threadblocks of {where}", 1, MAX_BLOCKS)
        return Gpu(
            self.integer(gpu["input_chunks"], f"input_chunks of {where}", 1, MAX_CHUNKS),
            self.integer(gpu["output_chunks"], f"output_chunks of {where}", 1, MAX_CHUNKS),
            self.integer(gpu["scratch_chunks"], f"scratch_chunks of {where}", 0, MAX_CHUNKS),
            known["peers"],
            tuple(semaphores),
            tuple(self._block(block, known, rank, number) for number, block in enumerate(blocks)),
        )

    def _block(self, block: object, known: dict[str, Any], rank: int, number: int) -> tuple[Operation, ...]:
        where = f"gpu {rank} threadblock {number}"
        fields = self.mapping(block, where, ("id", "ops", "channels"), ("remote_buffer_refs",))
        self.check_position(fields["id"], where, number)
        channels, remote = self._channels(fields, known, where), self._remote(fields, known, where)
        for kind in CHANNEL_TYPES:
            for what, ids in (("channels", channels[kind]), ("remote buffers", remote[kind])):
                if len(ids) > MAX_CHANNELS or len(set(ids)) < len(ids):
                    self.fail(f"{where} has {len(ids)} {kind} {what}; expected at most {MAX_CHANNELS} different ones")
        buffers = {kind: [known["remote"][at] for at in remote[kind]] for kind in remote}
        reader = OperationReader(self, rank, channels, buffers)
        operations = self.entries(fields["ops"], f"ops of {where}", 1)
        if len(operations) > MAX_OPERATIONS:
            self.fail(f"{where} has {len(operations)} operations; the limit is {MAX_OPERATIONS}")
        return tuple(reader.operation(each, f"{where} op {at}", inside=False) for at, each in enumerate(operations))

    def _channels(self, block: Mapping[str, Any], known: dict[str, Any], where: str) -> Positions:
        """Channels that a block uses."""
        channels: Positions = dict.fromkeys(CHANNEL_TYPES, ())
        for each in self.entries(block["channels"], f"channels of {where}"):
            self.mapping(each, f"channels of {where}", ("channel_type", "channel_ids"))
            kind = self.channel_type(each["channel_type"], where)
            channels[kind] += self.integers(
                each["channel_ids"], f"{kind} channels of {where}", len(known["peers"][kind]) - 1
            )
        return channels

    def _remote(self, block: Mapping[str, Any], known: dict[str, Any], where: str) -> Positions:
        """Remote buffers that a block uses, with their channels."""
        refs: Positions = dict.fromkeys(CHANNEL_TYPES, ())
        for each in self.entries(block.get("remote_buffer_refs", []), f"remote_buffer_refs of {where}"):
            self.mapping(each, f"remote_buffer_refs of {where}", ("access_channel_type", "remote_buffer_ids"))
            kind = self.channel_type(each["access_channel_type"], where)
            ids = self.integers(each["remote_buffer_ids"], f"{kind} buffers of {where}", len(known["remote"]) - 1)
            if strange := [each for each in ids if kind not in known["remote"][each][2]]:
                self.fail(f"{where} uses remote buffer {strange[0]} by {kind} channels, which its entry does not allow")
            refs[kind] += ids
        return refs
