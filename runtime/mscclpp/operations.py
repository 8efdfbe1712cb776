"""Fields of MSCCL++ plan files, with their types and ranges checked, and operations with their indices resolved."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ...errors import FileFormatError, UnsupportedError
from ...support.validation import is_whole, shown
from ..interpreter.findings import Severity
from ..programs.program import Buffer
from . import executor
from .execution_plan import CHANNEL_TYPES, ChannelType, Operation, Place, SwitchGroup

UINT32_MAX = 2**32 - 1
BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
MAX_BLOCKS = 2**10  # Of a GPU; all must run at once, and no GPU has as many multiprocessors
MAX_ENTRIES = MAX_BLOCKS * executor.MAX_CHANNELS  # Of a list of what thread blocks use, such as the channels of a GPU
MAX_CHUNKS = 2**28  # A buffer of more would have chunks of less than 16 bytes

OTHER_OPERATIONS = (
    "barrier", "pwsf", "get", "flush", "res", "rre", "rres", "ppkt", "rppkt", "respkt", "cpkt", "upkt", "repkt",
    "recpkt", "recspkt", "gstorepkt",
)  # fmt: skip
"""Known to the executor, but neither written nor run by collopt."""

_CHANNELS, _ENDS = ("channel_type", "channel_ids"), ("src_buff", "dst_buff")
FIELDS: dict[str, tuple[str, ...]] = {
    "nop": (),
    **dict.fromkeys(("copy", "re"), _ENDS),
    **dict.fromkeys(("put", "pws"), (*_CHANNELS, *_ENDS)),
    **dict.fromkeys(executor.SWITCH_OPERATIONS, ("channel_type", *_ENDS)),
    "pipeline": ("iter_context", "ops"),
    **dict.fromkeys((*executor.SIGNALLING, *executor.WAITING), _CHANNELS),
    **dict.fromkeys(executor.SEMAPHORE_OPERATIONS, ("semaphore_ids",)),
}
"""Fields that each operation must have; ``glres`` may also have ``reduce_op``."""


class PlanError(FileFormatError):
    """A plan that the loader of MSCCL++ takes or not, and what becomes of it."""

    def __init__(self, message: str, severity: Severity) -> None:
        super().__init__(message)
        self.severity = severity


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

    def entries(self, value: object, where: str, minimum: int = 0, limit: int = MAX_ENTRIES) -> list[Any]:
        """Read a list of `minimum` to `limit` entries."""
        if not isinstance(value, list) or len(value) < minimum:
            self.fail(f"{where} is {shown(value)}; expected a list{' with entries' if minimum else ''}")
        if len(value) > limit:
            self.fail(f"{where} has {len(value)} entries; the limit is {limit}")
        return value

    def integers(self, value: object, where: str, limit: int, minimum: int = 0) -> tuple[int, ...]:
        """Read a list of at least `minimum` integers from 0 to `limit`."""
        return tuple(
            self.integer(entry, f"an entry of {where}", 0, limit) for entry in self.entries(value, where, minimum)
        )

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


class OperationReader:
    """Resolves the indices in operations of one thread block."""

    def __init__(
        self,
        fields: Fields,
        rank: int,
        channels: Mapping[ChannelType, tuple[int, ...]],
        remote: Mapping[ChannelType, list[tuple[int, Buffer, list[ChannelType]]]],
        switches: Sequence[SwitchGroup],
    ) -> None:
        self.fields = fields
        self.switches = switches
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
        entry = fields.mapping(value, where, ("name", *FIELDS[name]), ("reduce_op",) if name == "glres" else ())
        if name in executor.SWITCH_OPERATIONS:
            return self._switch_operation(name, entry, where)
        if name == "pipeline":
            if inside:
                fields.fail(f"{where} is a pipeline in a pipeline")
            return self._pipeline(entry, where)
        kind: ChannelType | None = None
        channels: tuple[int, ...] = ()
        semaphores: tuple[int, ...] = ()
        if "channel_type" in entry:
            kind = fields.channel_type(entry["channel_type"], where)
            own = self.channels[kind]
            at = fields.integers(entry["channel_ids"], f"channel_ids of {where}", len(own) - 1, 1)
            channels = tuple(own[end] for end in at)
        if name in executor.SEMAPHORE_OPERATIONS:
            semaphores = fields.integers(entry["semaphore_ids"], f"semaphore_ids of {where}", UINT32_MAX, 1)
        if name not in executor.DATA_OPERATIONS:
            return Operation(name, kind, channels, semaphores=semaphores)
        listed, put = fields.entries(entry["src_buff"], f"src_buff of {where}", 1), entry["dst_buff"]
        with_ids = [isinstance(end, dict) and "buffer_id" in end for end in listed] if kind == "port" else [False]
        local = self._offset_place if any(with_ids) else self._place
        sources = tuple(local(end, f"src_buff of {where}", None) for end in listed)
        targets = tuple(
            self._place(end, f"dst_buff of {where}", kind) for end in fields.entries(put, f"dst_buff of {where}", 1)
        )
        from_base = kind == "port" and not any(with_ids) and any(place.buffer != "scratch" for place in sources)
        return Operation(name, kind, channels, sources, targets, semaphores, from_base)

    def _pipeline(self, entry: Mapping[str, Any], where: str) -> Operation:
        context = self.fields.mapping(entry["iter_context"], f"iter_context of {where}", ("unit_size", "num_chunks"))
        inner = self.fields.entries(entry["ops"], f"ops of {where}", 1)
        return Operation(
            "pipeline",
            unit_bytes=self.fields.integer(context["unit_size"], f"unit_size of {where}", 1, UINT32_MAX),
            num_chunks=self.fields.integer(context["num_chunks"], f"num_chunks of {where}", 1, MAX_CHUNKS),
            body=tuple(
                self.operation(operation, f"{where} op {at}", inside=True) for at, operation in enumerate(inner)
            ),
        )

    def _switch_operation(self, name: str, entry: Mapping[str, Any], where: str) -> Operation:
        """Read a ``glres`` or ``gstore``; the executor looks at the first source and target only."""
        kind = self.fields.channel_type(entry["channel_type"], where, ("switch",))
        if (operator := entry.get("reduce_op", "sum")) != "sum":
            self.fields.fail(f"{where} has reduce_op {shown(operator)}, but the executor's glres always sums")
        channels: list[int] = []
        places: list[Place] = []
        for key, on_switch in (("src_buff", name == "glres"), ("dst_buff", True)):
            what = f"{key} of {where}"
            value = self.fields.entries(entry[key], what, 1, 1)[0]
            if not on_switch:
                places.append(self._place(value, what, None))
                continue
            end = self.fields.mapping(value, what, ("switch_channel_id", "index", "size"))
            own = self.channels["switch"]
            channels.append(own[self.fields.integer(end["switch_channel_id"], what, 0, len(own) - 1)])
            places.append(self._range(end, self.rank, self.switches[channels[-1]].buffer, what))
        return Operation(name, kind, tuple(channels), (places[0],), (places[1],))

    def _place(self, value: object, where: str, remote: ChannelType | None) -> Place:
        entry = self.fields.mapping(value, where, ("type" if remote is None else "buffer_id", "index", "size"))
        if remote is None:
            owner, buffer = self.rank, self.fields.buffer(entry["type"], where)
        else:
            buffers = self.remote[remote]
            number = self.fields.integer(entry["buffer_id"], f"buffer_id of {where}", 0, len(buffers) - 1)
            owner, buffer, _ = buffers[number]
        return self._range(entry, owner, buffer, where)

    def _offset_place(self, value: object, where: str, _: None) -> Place:
        """Read a source of a port channel that gets the offset of its buffer; see `Operation.from_base`."""
        entry = self.fields.mapping(value, where, ("type", "index", "size"), ("buffer_id",))
        buffer, buffers = self.fields.buffer(entry["type"], where), self.remote["port"]
        if "buffer_id" in entry or buffer != "scratch":
            number = self.fields.integer(entry.get("buffer_id"), f"buffer_id of {where}", 0, len(buffers) - 1)
            if number != executor.OFFSET_IDS.get(buffer) or buffers[number][1] != buffer:
                self.fields.fail(
                    f"{where} has type {buffer[0]} and buffer_id {number}, of type {buffers[number][1][0]}; the "
                    "executor takes the number for the type, 0 for i and 1 for o, and "
                    "the remote buffer's offset for its own"
                )
        return self._range(entry, self.rank, buffer, where)

    def _range(self, entry: Mapping[str, Any], owner: int, buffer: Buffer, where: str) -> Place:
        start = self.fields.integer(entry["index"], f"index of {where}", 0, MAX_CHUNKS)
        return Place(owner, buffer, start, self.fields.integer(entry["size"], f"size of {where}", 1, MAX_CHUNKS))
