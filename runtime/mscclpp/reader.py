"""Reads MSCCL++ execution plans strictly: what the executor would reject, misread or run wild on is refused.

The executor's loader looks up the keys that it knows and ignores all others; indices it does not check at all.  Here a
key that it ignores is refused too, because whoever wrote it meant something by it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from ...errors import FileFormatError, UnsupportedError
from ...topologies.bounded_files import name_of, read_bytes
from ...topologies.validation import shown
from ..programs.program import Buffer
from .check import check_execution_plan
from .plan import (
    ALIGNMENT,
    CHANNEL_TYPES,
    COLLECTIVES,
    DATA_OPERATIONS,
    MAX_CHANNELS,
    MAX_OPERATIONS,
    MAX_THREADS,
    SEMAPHORE_OPERATIONS,
    SIGNALLING,
    WAITING,
    ChannelType,
    ExecutionPlan,
    Gpu,
    Operation,
    Place,
)

__all__ = ["parse_content", "parse_document", "read_mscclpp"]

BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
SPELLINGS = {theirs: ours for ours, theirs in COLLECTIVES.items()}
UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1
MAX_BYTES_OF_FILE = 2**25
"""Six times what a plan for 64 GPUs takes; a larger file is refused before it is decoded."""
MAX_BLOCKS = 2**10
"""Of a GPU; all must run at once, and no GPU has as many multiprocessors."""
MAX_ENTRIES = MAX_BLOCKS * MAX_CHANNELS
"""Of a list of what thread blocks use, such as the channels of a GPU."""
MAX_TOKENS = 2**16
"""In all semaphores of a GPU together."""
MAX_CHUNKS = 2**28
"""A buffer of more would have chunks of less than 16 bytes."""

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


def read_mscclpp(path: str | os.PathLike[str]) -> ExecutionPlan:
    """Read an MSCCL++ execution plan; one that `write_mscclpp` wrote comes back as it was.

    Parameters
    ----------
    path : path
        File to read.

    Returns
    -------
    ExecutionPlan
        `check_execution_plan` accepts it; `run_execution_plan` finds out whether it moves the right data.

    Raises
    ------
    FileFormatError
        If the file cannot be read, is not such a plan, or has missing, unknown or senseless values; the message names
        the file and the place.
    UnsupportedError
        For operations and channels that collopt does not run, such as packets and switch channels.
    """
    return parse_content(read_bytes(path, MAX_BYTES_OF_FILE), name_of(path))


def parse_content(content: bytes, where: str) -> ExecutionPlan:
    """Decode what stands in a file and go on as `parse_document`; raises as `read_mscclpp`."""
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: the file is not JSON ({' '.join(str(error).split())[:200]})") from None
    return parse_document(document, where)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {shown(twice)} stands twice in one object")
    return found


def parse_document(document: object, where: str) -> ExecutionPlan:
    """Resolve all indices of a decoded plan and check it; raises as `read_mscclpp`."""
    plan = _Parser(where).plan(document)
    check_execution_plan(plan, where)
    return plan


class _Parser:
    """Turns objects into operations; knows the file's name for its messages."""

    def __init__(self, where: str) -> None:
        self.where = where

    def plan(self, document: object) -> ExecutionPlan:
        """Read the whole document."""
        required = ("name", "collective", "protocol", "inplace", "gpus")
        optional = (
            "reuse_resources", "use_double_scratch_buffer", "buffer_alignment", "num_threads_per_block",
            "min_message_size", "max_message_size",
        )  # fmt: skip
        top = self._object(document, "the plan", required, optional)
        collective = top["collective"]
        if not isinstance(collective, str) or collective not in SPELLINGS:
            self._fail(f"collective is {shown(collective)}; expected one of {', '.join(SPELLINGS)}")
        if not isinstance(top["name"], str) or not top["name"]:
            self._fail(f"name is {shown(top['name'])}; expected a text that no other plan has")
        self._check_modes(top)
        listed = self._list(top["gpus"], "gpus", 1)
        ranks = len(listed)
        resolved = [self._resources(gpu, f"gpu {rank}", rank, ranks) for rank, gpu in enumerate(listed)]
        return ExecutionPlan(
            top["name"],
            SPELLINGS[collective],
            top["inplace"],
            self._integer(top.get("min_message_size", 0), "min_message_size", 0, UINT64_MAX),
            self._integer(top.get("max_message_size", UINT64_MAX), "max_message_size", 0, UINT64_MAX),
            self._integer(top.get("num_threads_per_block", MAX_THREADS), "num_threads_per_block", 1, MAX_THREADS),
            tuple(self._gpu(gpu, known, rank) for rank, (gpu, known) in enumerate(zip(listed, resolved, strict=True))),
        )

    def _check_modes(self, top: Mapping[str, Any]) -> None:
        for key in ("inplace", "reuse_resources", "use_double_scratch_buffer"):
            if not isinstance(top.get(key, False), bool):
                self._fail(f"{key} is {shown(top[key])}; expected true or false")
        if top["protocol"] not in ("Simple", "LL"):
            self._fail(f"protocol is {shown(top['protocol'])}; expected Simple or LL")
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
        fields = self._object(gpu, where, required, ("semaphores",))
        if fields["id"] != rank or isinstance(fields["id"], bool):
            self._fail(f"{where} has id {shown(fields['id'])}; expected its position")
        peers: dict[ChannelType, tuple[int, ...]] = dict.fromkeys(CHANNEL_TYPES, ())
        for channel in self._list(fields["channels"], f"channels of {where}"):
            if isinstance(channel, dict) and channel.get("channel_type") == "switch":
                raise UnsupportedError(f"{self.where}: {where} has a switch channel, which collopt does not run")
            self._object(channel, f"a channel of {where}", ("channel_type", "connected_to"))
            kind = self._channel_type(channel["channel_type"], where)
            if peers[kind]:
                self._fail(f"{where} has two entries for {kind} channels; expected one")
            peers[kind] = self._integers(channel["connected_to"], f"connected_to of {where}", ranks - 1, 1)
        remote = []
        for buffer in self._list(fields["remote_buffers"], f"remote_buffers of {where}"):
            what = f"a remote buffer of {where}"
            self._object(buffer, what, ("rank", "type", "access_channel_types"))
            owner = self._integer(buffer["rank"], f"rank of {what}", 0, ranks - 1)
            kinds = [self._channel_type(kind, what) for kind in self._list(buffer["access_channel_types"], what, 1)]
            remote.append((owner, self._buffer(buffer["type"], what), kinds))
        return {"peers": peers, "remote": remote}

    def _gpu(self, gpu: Mapping[str, Any], known: dict[str, Any], rank: int) -> Gpu:
        where = f"gpu {rank}"
        semaphores = []
        for each in self._list(gpu.get("semaphores", []), f"semaphores of {where}"):
            self._object(each, f"a semaphore of {where}", ("init_value",))
            semaphores.append(self._integer(each["init_value"], f"init_value of {where}", 0, MAX_TOKENS))
        if sum(semaphores) > MAX_TOKENS:
            self._fail(f"semaphores of {where} begin with {sum(semaphores)} in all; the limit is {MAX_TOKENS}")
        blocks = self._list(gpu["threadblocks"], f"threadblocks of {where}", 1, MAX_BLOCKS)
        return Gpu(
            self._integer(gpu["input_chunks"], f"input_chunks of {where}", 1, MAX_CHUNKS),
            self._integer(gpu["output_chunks"], f"output_chunks of {where}", 1, MAX_CHUNKS),
            self._integer(gpu["scratch_chunks"], f"scratch_chunks of {where}", 0, MAX_CHUNKS),
            known["peers"],
            tuple(semaphores),
            tuple(self._block(block, known, rank, number) for number, block in enumerate(blocks)),
        )

    def _block(self, block: object, known: dict[str, Any], rank: int, number: int) -> tuple[Operation, ...]:
        where = f"gpu {rank} threadblock {number}"
        fields = self._object(block, where, ("id", "ops", "channels"), ("remote_buffer_refs",))
        if fields["id"] != number or isinstance(fields["id"], bool):
            self._fail(f"{where} has id {shown(fields['id'])}; expected its position")
        channels: dict[ChannelType, tuple[int, ...]] = dict.fromkeys(CHANNEL_TYPES, ())
        for each in self._list(fields["channels"], f"channels of {where}"):
            self._object(each, f"channels of {where}", ("channel_type", "channel_ids"))
            kind = self._channel_type(each["channel_type"], where)
            channels[kind] += self._integers(
                each["channel_ids"], f"{kind} channels of {where}", len(known["peers"][kind]) - 1
            )
        refs: dict[ChannelType, tuple[int, ...]] = dict.fromkeys(CHANNEL_TYPES, ())
        for each in self._list(fields.get("remote_buffer_refs", []), f"remote_buffer_refs of {where}"):
            self._object(each, f"remote_buffer_refs of {where}", ("access_channel_type", "remote_buffer_ids"))
            kind = self._channel_type(each["access_channel_type"], where)
            ids = self._integers(each["remote_buffer_ids"], f"{kind} buffers of {where}", len(known["remote"]) - 1)
            if strange := [each for each in ids if kind not in known["remote"][each][2]]:
                self._fail(
                    f"{where} uses remote buffer {strange[0]} by {kind} channels, which its entry does not allow"
                )
            refs[kind] += ids
        for kind in CHANNEL_TYPES:
            for what, ids in (("channels", channels[kind]), ("remote buffers", refs[kind])):
                if len(ids) > MAX_CHANNELS or len(set(ids)) < len(ids):
                    self._fail(f"{where} has {len(ids)} {kind} {what}; expected at most {MAX_CHANNELS} different ones")
        reader = _BlockParser(self, rank, channels, {kind: [known["remote"][at] for at in refs[kind]] for kind in refs})
        operations = self._list(fields["ops"], f"ops of {where}", 1)
        if len(operations) > MAX_OPERATIONS:
            self._fail(f"{where} has {len(operations)} operations; the limit is {MAX_OPERATIONS}")
        return tuple(reader.operation(each, f"{where} op {at}", inside=False) for at, each in enumerate(operations))

    def _object(
        self, value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._fail(f"{where} is {shown(value)}; expected an object")
        for key in required:
            if key not in value:
                self._fail(f"{where} has no {key}")
        for key in value:
            if key not in required and key not in optional:
                self._fail(f"{where} has {shown(key)}, which the executor does not read; remove it")
        return value

    def _list(self, value: object, where: str, least: int = 0, most: int = MAX_ENTRIES) -> list[Any]:
        if not isinstance(value, list) or len(value) < least:
            self._fail(f"{where} is {shown(value)}; expected a list{' with entries' if least else ''}")
        if len(value) > most:
            self._fail(f"{where} has {len(value)} entries; the limit is {most}")
        return value

    def _integers(self, value: object, where: str, most: int, least: int = 0) -> tuple[int, ...]:
        return tuple(self._integer(each, f"an entry of {where}", 0, most) for each in self._list(value, where, least))

    def _integer(self, value: object, where: str, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._fail(f"{where} is {shown(value)}; expected a whole number from {least} to {most}")
        return value

    def _channel_type(self, value: object, where: str) -> ChannelType:
        found = next((kind for kind in CHANNEL_TYPES if value == kind), None)
        if found is None:
            self._fail(f"{where} has channel type {shown(value)}; expected {' or '.join(CHANNEL_TYPES)}")
        return found

    def _buffer(self, value: object, where: str) -> Buffer:
        if not isinstance(value, str) or value not in BUFFERS:
            self._fail(f"{where} has buffer type {shown(value)}; expected i, o or s")
        return BUFFERS[value]

    def _fail(self, what: str) -> NoReturn:
        raise FileFormatError(f"{self.where}: {what}")


class _BlockParser:
    """Resolves what operations of one thread block refer to by its own lists."""

    def __init__(
        self,
        parser: _Parser,
        rank: int,
        channels: Mapping[ChannelType, tuple[int, ...]],
        remote: Mapping[ChannelType, list[tuple[int, Buffer, list[ChannelType]]]],
    ) -> None:
        self.parser = parser
        self.rank = rank
        self.channels = channels
        self.remote = remote

    def operation(self, value: object, where: str, *, inside: bool) -> Operation:
        """Read one operation; `inside` a pipeline there is no other one."""
        parser = self.parser
        name = value.get("name") if isinstance(value, dict) else None
        if name in OTHER_OPERATIONS:
            raise UnsupportedError(f"{parser.where}: {where} is {name}, which collopt does not run")
        if not isinstance(name, str) or name not in FIELDS:
            parser._fail(f"{where} has name {shown(name)}; expected one of {', '.join(FIELDS)}")
        fields = parser._object(value, where, ("name", *FIELDS[name]))
        if name == "pipeline":
            if inside:
                parser._fail(f"{where} is a pipeline in a pipeline")
            return self._pipeline(fields, where)
        kind = parser._channel_type(fields["channel_type"], where) if "channel_type" in fields else None
        channels: tuple[int, ...] = ()
        if kind is not None:
            own = self.channels[kind]
            at = parser._integers(fields["channel_ids"], f"channel_ids of {where}", len(own) - 1, 1)
            channels = tuple(own[each] for each in at)
        semaphores: tuple[int, ...] = ()
        if name in SEMAPHORE_OPERATIONS:
            semaphores = parser._integers(fields["semaphore_ids"], f"semaphore_ids of {where}", UINT32_MAX, 1)
        sources: tuple[Place, ...] = ()
        targets: tuple[Place, ...] = ()
        if name in DATA_OPERATIONS:
            sources = self._places(fields["src_buff"], f"src_buff of {where}", None)
            targets = self._places(fields["dst_buff"], f"dst_buff of {where}", kind)
        return Operation(name, kind, channels, sources, targets, semaphores)

    def _pipeline(self, fields: Mapping[str, Any], where: str) -> Operation:
        parser = self.parser
        context = parser._object(fields["iter_context"], f"iter_context of {where}", ("unit_size", "num_chunks"))
        inner = parser._list(fields["ops"], f"ops of {where}", 1)
        return Operation(
            "pipeline",
            unit_bytes=parser._integer(context["unit_size"], f"unit_size of {where}", 1, UINT32_MAX),
            num_chunks=parser._integer(context["num_chunks"], f"num_chunks of {where}", 1, MAX_CHUNKS),
            body=tuple(self.operation(each, f"{where} op {at}", inside=True) for at, each in enumerate(inner)),
        )

    def _places(self, value: object, where: str, remote: ChannelType | None) -> tuple[Place, ...]:
        parser = self.parser
        return tuple(self._place(each, where, remote) for each in parser._list(value, where, 1))

    def _place(self, value: object, where: str, remote: ChannelType | None) -> Place:
        parser = self.parser
        fields = parser._object(value, where, ("type" if remote is None else "buffer_id", "index", "size"))
        owner, buffer = self.rank, None
        if remote is None:
            buffer = parser._buffer(fields["type"], where)
        else:
            known = self.remote[remote]
            owner, buffer, _ = known[parser._integer(fields["buffer_id"], f"buffer_id of {where}", 0, len(known) - 1)]
        start = parser._integer(fields["index"], f"index of {where}", 0, MAX_CHUNKS)
        return Place(owner, buffer, start, parser._integer(fields["size"], f"size of {where}", 1, MAX_CHUNKS))
