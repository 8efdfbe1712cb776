"""Strict reader of MSCCL++ execution plans: every field of its type and within its limits, every index resolved.

The executor's loader ignores unknown keys and does not check indices.  Here an unknown key is refused too: its author
meant something by it.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import FileFormatError, UnsupportedError
from ...support.reading import name_of, read_bytes
from ...support.validation import shown
from . import executor
from .check import check_execution_plan
from .execution_plan import CHANNEL_TYPES, ChannelType, ExecutionPlan, Gpu, Operation, SwitchGroup
from .operations import MAX_BLOCKS, MAX_CHUNKS, Fields, OperationReader, PlanError

ALL_CHANNEL_TYPES: tuple[ChannelType, ...] = (*CHANNEL_TYPES, "switch")
Positions = dict[ChannelType, tuple[int, ...]]  # Of channels or remote buffers, in the lists of their GPU
SPELLINGS = {ours.nccl_name: ours for ours in executor.WRITTEN}
UINT64_MAX = 2**64 - 1
MAX_BYTES_OF_FILE = 2**25  # Six times what a plan for 64 GPUs takes; a larger file is refused before it is decoded
MAX_TOKENS = 2**16  # In all semaphores of a GPU together


def read_mscclpp(path: str | os.PathLike[str]) -> ExecutionPlan:
    """Read an MSCCL++ execution plan; what `Plan.export` writes round-trips.

    The plan is consistent; `interpret_mscclpp` finds out whether it moves the right data.  Raises `FileFormatError` if
    the file cannot be read, is not such a plan, or has missing, unknown or invalid values, with the file and the place;
    `UnsupportedError` for operations that collopt does not run, such as packets.
    """
    where, content = name_of(path), read_bytes(path, MAX_BYTES_OF_FILE)
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: the file is not JSON ({' '.join(str(error).split())[:200]})") from None
    try:
        return parse_document(document, where)
    except PlanError as error:  # whose verdict is for `lint`
        raise FileFormatError(str(error)) from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {shown(twice)} is repeated in one object")
    return entries


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
            self.fail(f"collective is {shown(collective)}; expected one of {', '.join(SPELLINGS)}", "not checked")
        if not isinstance(top["name"], str) or not top["name"]:
            self.fail(f"name is {shown(top['name'])}; expected a text that no other plan has", "not checked")
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
            self.integer(
                top.get("num_threads_per_block", executor.MAX_THREADS), "num_threads_per_block", 1, executor.MAX_THREADS
            ),
            tuple(
                self._gpu(gpu, resources, rank)
                for rank, (gpu, resources) in enumerate(zip(listed, resolved, strict=True))
            ),
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
            ("buffer_alignment", executor.ALIGNMENT),
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
        return {"peers": peers, "remote": remote, "switches": tuple(switches)}

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

    def _gpu(self, gpu: Mapping[str, Any], resources: dict[str, Any], rank: int) -> Gpu:
        where = f"gpu {rank}"
        semaphores = []
        for semaphore in self.entries(gpu.get("semaphores", []), f"semaphores of {where}"):
            self.mapping(semaphore, f"a semaphore of {where}", ("init_value",))
            semaphores.append(self.integer(semaphore["init_value"], f"init_value of {where}", 0, MAX_TOKENS))
        if sum(semaphores) > MAX_TOKENS:
            self.fail(f"semaphores of {where} begin with {sum(semaphores)} in all; the limit is {MAX_TOKENS}")
        blocks = self.entries(gpu["threadblocks"], f"threadblocks of {where}", 1, MAX_BLOCKS)
        return Gpu(
            self.integer(gpu["input_chunks"], f"input_chunks of {where}", 1, MAX_CHUNKS),
            self.integer(gpu["output_chunks"], f"output_chunks of {where}", 1, MAX_CHUNKS),
            self.integer(gpu["scratch_chunks"], f"scratch_chunks of {where}", 0, MAX_CHUNKS),
            resources["peers"],
            tuple(semaphores),
            tuple(self._block(block, resources, rank, number) for number, block in enumerate(blocks)),
            resources["switches"],
        )

    def _block(self, block: object, resources: dict[str, Any], rank: int, number: int) -> tuple[Operation, ...]:
        where = f"gpu {rank} threadblock {number}"
        fields = self.mapping(block, where, ("id", "ops", "channels"), ("remote_buffer_refs",))
        self.check_position(fields["id"], where, number)
        channels, remote = self._channels(fields, resources, where), self._remote(fields, resources, where)
        for kind in ALL_CHANNEL_TYPES:
            for what, ids in (("channels", channels[kind]), ("remote buffers", remote[kind])):
                if len(ids) > executor.MAX_CHANNELS:
                    self.fail(f"{where} has {len(ids)} {kind} {what}; expected at most {executor.MAX_CHANNELS}")
        buffers = {kind: [resources["remote"][at] for at in remote[kind]] for kind in remote}
        reader = OperationReader(self, rank, channels, buffers, resources["switches"])
        operations = self.entries(fields["ops"], f"ops of {where}", 1)
        if len(operations) > executor.MAX_OPERATIONS:
            self.fail(f"{where} has {len(operations)} operations; the limit is {executor.MAX_OPERATIONS}", "rejected")
        return tuple(
            reader.operation(operation, f"{where} op {at}", inside=False) for at, operation in enumerate(operations)
        )

    def _channels(self, block: Mapping[str, Any], resources: dict[str, Any], where: str) -> Positions:
        """Channels that a block uses."""
        channels: Positions = dict.fromkeys(ALL_CHANNEL_TYPES, ())
        for entry in self.entries(block["channels"], f"channels of {where}"):
            self.mapping(entry, f"channels of {where}", ("channel_type", "channel_ids"))
            kind = self.channel_type(entry["channel_type"], where, ALL_CHANNEL_TYPES)
            listed = resources["switches"] if kind == "switch" else resources["peers"][kind]
            channels[kind] += self.integers(entry["channel_ids"], f"{kind} channels of {where}", len(listed) - 1)
        return channels

    def _remote(self, block: Mapping[str, Any], resources: dict[str, Any], where: str) -> Positions:
        """Remote buffers that a block uses, with their channels."""
        refs: Positions = dict.fromkeys(ALL_CHANNEL_TYPES, ())
        for entry in self.entries(block.get("remote_buffer_refs", []), f"remote_buffer_refs of {where}"):
            self.mapping(entry, f"remote_buffer_refs of {where}", ("access_channel_type", "remote_buffer_ids"))
            kind = self.channel_type(entry["access_channel_type"], where)
            ids = self.integers(entry["remote_buffer_ids"], f"{kind} buffers of {where}", len(resources["remote"]) - 1)
            if strange := [entry for entry in ids if kind not in resources["remote"][entry][2]]:
                self.fail(f"{where} uses remote buffer {strange[0]} by {kind} channels, which its entry does not allow")
            refs[kind] += ids
        return refs
