"""Reader of the fields and operations of a decoded MSCCL++ plan: each of its type and within its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from ....errors import FileFormatError, UnsupportedError
from ....support.validation import is_whole, shown
from ...programs.program import Buffer
from .execution_plan import (
    CHANNEL_TYPES,
    DATA_OPERATIONS,
    MAX_CHANNELS,
    SEMAPHORE_OPERATIONS,
    SIGNALLING,
    WAITING,
    ChannelType,
    Operation,
    Place,
)

BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
MAX_BLOCKS = 2**10
"""Of a GPU; all must run at once, and no GPU has as many multiprocessors."""
MAX_ENTRIES = MAX_BLOCKS * MAX_CHANNELS
"""Of a list of what thread blocks use, such as the channels of a GPU."""
MAX_CHUNKS = 2**28
"""A buffer of more would have chunks of less than 16 bytes."""


class Fields:
    """Reads fields; `where`, the name of the file, begins every message, and that of the field follows."""

    def __init__(self, where: str) -> None:
        self.where = where

    def mapping(
        self, value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        """Read an object that has all required keys and no others than these and the optional ones."""
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
        """Read a list of at least `least` and at most `most` entries."""
        if not isinstance(value, list) or len(value) < least:
            self.fail(f"{where} is {shown(value)}; expected a list{' with entries' if least else ''}")
        if len(value) > most:
            self.fail(f"{where} has {len(value)} entries; the limit is {most}")
        return value

    def integers(self, value: object, where: str, most: int, least: int = 0) -> tuple[int, ...]:
        """Read a list of at least `least` whole numbers from 0 to `most`."""
        return tuple(self.integer(each, f"an entry of {where}", 0, most) for each in self.entries(value, where, least))

    def integer(self, value: object, where: str, least: int, most: int) -> int:
        """Read a whole number from `least` to `most`."""
        if not is_whole(value) or not least <= value <= most:
            self.fail(f"{where} is {shown(value)}; expected a whole number from {least} to {most}")
        return value

    def channel_type(self, value: object, where: str) -> ChannelType:
        """Read a type of channels that collopt runs."""
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
        """Refuse a thing in a list whose number is not its position there."""
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
        ends: list[tuple[Place, ...]] = [(), ()]
        if name in DATA_OPERATIONS:
            ends = [
                tuple(self._place(each, what, remote) for each in fields.entries(found[key], what, 1))
                for key, remote in (("src_buff", None), ("dst_buff", kind))
                for what in (f"{key} of {where}",)
            ]
        return Operation(name, kind, channels, *ends, semaphores)

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
