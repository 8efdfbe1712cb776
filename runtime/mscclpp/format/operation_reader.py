"""Reads the operations of an MSCCL++ thread block, with what their indices stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import UnsupportedError
from ....support.validation import shown
from ...programs.program import Buffer
from .execution_plan import DATA_OPERATIONS, SEMAPHORE_OPERATIONS, SIGNALLING, WAITING, ChannelType, Operation, Place
from .operations import MAX_CHUNKS, Fields

__all__ = ["OperationReader"]

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
    """Resolves what operations of one thread block refer to by its own lists."""

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
        """Read one operation; `inside` a pipeline there is no other one."""
        name = value.get("name") if isinstance(value, dict) else None
        if name in OTHER_OPERATIONS:
            raise UnsupportedError(f"{self.fields.where}: {where} is {name}, which collopt does not run")
        if not isinstance(name, str) or name not in FIELDS:
            self.fields.fail(f"{where} has name {shown(name)}; expected one of {', '.join(FIELDS)}")
        found = self.fields.mapping(value, where, ("name", *FIELDS[name]))
        if name == "pipeline":
            if inside:
                self.fields.fail(f"{where} is a pipeline in a pipeline")
            return self._pipeline(found, where)
        kind = self.fields.channel_type(found["channel_type"], where) if "channel_type" in found else None
        channels: tuple[int, ...] = ()
        if kind is not None:
            own = self.channels[kind]
            at = self.fields.integers(found["channel_ids"], f"channel_ids of {where}", len(own) - 1, 1)
            channels = tuple(own[each] for each in at)
        semaphores: tuple[int, ...] = ()
        if name in SEMAPHORE_OPERATIONS:
            semaphores = self.fields.integers(found["semaphore_ids"], f"semaphore_ids of {where}", UINT32_MAX, 1)
        sources: tuple[Place, ...] = ()
        targets: tuple[Place, ...] = ()
        if name in DATA_OPERATIONS:
            sources = self._places(found["src_buff"], f"src_buff of {where}", None)
            targets = self._places(found["dst_buff"], f"dst_buff of {where}", kind)
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

    def _places(self, value: object, where: str, remote: ChannelType | None) -> tuple[Place, ...]:
        return tuple(self._place(each, where, remote) for each in self.fields.entries(value, where, 1))

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
