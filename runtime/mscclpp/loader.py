"""What MSCCL++'s loader reads of an execution plan (``execution_plan.cc`` of the main branch, lines of August 2026)."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ...errors import FileFormatError, UnsupportedError
from ...support.validation import shown
from . import executor

_CHANNELS, _ENDS = ("channel_type", "channel_ids"), ("src_buff", "dst_buff")
FIELDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("nop", "flush"), ()),
    **dict.fromkeys(executor.SHAPES, (*_CHANNELS, *_ENDS, "tbg_info")),
    **dict.fromkeys(executor.SWITCH_OPERATIONS, ("channel_type", *_ENDS)),
    "pipeline": ("iter_context", "ops"),
    "barrier": ("barrier_id", "num_threadblocks"),
    **dict.fromkeys((*executor.SIGNALLING, *executor.WAITING), _CHANNELS),
    **dict.fromkeys(executor.SEMAPHORE_OPERATIONS, ("semaphore_ids",)),
}
"""Fields of each operation; ``flush`` does nothing, as it is for as many channels as it has targets (line 114)."""
ADDED_OPERATIONS = {"recpkt": "0.9.0", "recspkt": "0.9.0", "gstore": "0.10.0", "gstorepkt": "0.10.0"}
"""First version that has an operation (lines 25 to 85); all others are in 0.8.0."""
BUFFER_TYPES = ("i", "o", "s")
Json = dict[str, Any]
Reader = Callable[[Any, str, set[str]], Any]
"""Reads a value, whose place is named, and adds the keys that are not read to a set."""


def decoded(content: bytes, *, repeats: bool = True) -> object:
    """Decode a file as nlohmann's JSON does: after a byte order mark, without NaN, the last of keys if it `repeats`."""
    hook = None if repeats else _unique_keys
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=int, object_pairs_hook=hook)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"the file is not JSON ({' '.join(str(error).split())[:200]})") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {shown(twice)} is repeated in one object")
    return entries


def load(document: object, version: str, ignored: set[str]) -> Json:
    """Return what the loader reads of a decoded plan, as it reads it; `FileFormatError` where it would refuse it."""
    top: Json = _PLAN(document, "the plan", ignored)
    if not isinstance(top["gpus"], list) or not top["gpus"]:
        _refuse("the plan has no list of gpus")
    # Line 128 reads the smallest size as a signed number of 32 bits, and line 297 divides by the alignment.
    top["min_message_size"] %= 2**32
    if top["buffer_alignment"] <= 0 or top["min_message_size"] >= 2**31:
        _refuse("buffer_alignment is not above 0, or min_message_size is not from 0 to 2^31 - 1")
    top["protocol"] = "LL" if top["protocol"] == "LL" else "Simple"  # line 240
    top["gpus"] = [_GPU(gpu, f"gpu {rank}", ignored) for rank, gpu in enumerate(top["gpus"])]
    for rank, gpu in enumerate(top["gpus"]):
        if isinstance(gpu["id"], bool) or gpu["id"] != rank:  # line 253
            _refuse(f"gpu {rank} has id {shown(gpu['id'])}; expected its position")
        if min(gpu["input_chunks"], gpu["output_chunks"]) <= 0:  # line 298 divides by them
            _refuse(f"gpu {rank} has {gpu['input_chunks']} input chunks and {gpu['output_chunks']} output chunks")
        gpu |= {"id": rank, "channels": _channels(gpu["channels"], f"gpu {rank}", ignored)}
        for number, block in enumerate(gpu["threadblocks"]):
            where = f"gpu {rank} threadblock {number} op"
            block["ops"] = [_operation(op, f"{where} {at}", version, ignored) for at, op in enumerate(block["ops"])]
    return top


def _channels(values: list[Any], where: str, ignored: set[str]) -> list[Json]:
    """Lines 313 to 337, with the channels of one type in one entry, as the executor lists them."""
    ends_of: dict[str, list[int]] = {}
    switches = []
    for value in values:
        kind = _kind(_object(value, where, ignored).get("channel_type"), where, ignored)
        if kind == "switch":
            switches.append(_SWITCH(value, where, ignored))
            for group in switches[-1]["rank_groups"]:
                group["size"] = len(group["ranks"])  # The size goes into a field that nothing reads.
        else:
            ends_of.setdefault(kind, []).extend(_CHANNEL(value, where, ignored)["connected_to"])
    ends_of.pop("none", None)
    return [*({"channel_type": kind, "connected_to": ends} for kind, ends in ends_of.items()), *switches]


def _operation(value: object, where: str, version: str, ignored: set[str]) -> Json:
    """Lines 474 to 595: only what the operation itself uses is kept."""
    op = _OPERATION(value, where, ignored)
    name = op["name"]
    if name not in FIELDS or executor.VERSIONS.index(
        ADDED_OPERATIONS.get(name, executor.VERSIONS[0])
    ) > executor.VERSIONS.index(version):
        _refuse(f"{where} has name {shown(name)}, which is an invalid operation for MSCCL++ {version}")
    ends = (*op["src_buff"], *op["dst_buff"])
    if op["channel_type"] not in ("memory", "port") and any("buffer_id" in end for end in ends):
        _refuse(f"{where} has no channel type of remote buffers")  # line 496
    if any(end["size"] == 0 for end in ends) and version != executor.VERSIONS[-1]:  # line 621
        _refuse(f"{where} has size 0, by which MSCCL++ {version} divides")
    if op["tbg_info"]["tbg_size"] == 0:
        _refuse(f"{where} is divided among 0 threadblocks")
    if name == "flush" and op["dst_buff"]:
        raise UnsupportedError(
            f"{where} is a flush with dst_buff, without which it does nothing; collopt runs those only"
        )
    op["channel_ids"] = [channel & 255 for channel in op["channel_ids"]]
    op["ops"] = [_operation(operation, f"{where} op {at}", version, ignored) for at, operation in enumerate(op["ops"])]
    if name in executor.DATA_OPERATIONS:
        _cut_to_what_runs(op)
    own = {key: item for key, item in op.items() if key in ("name", *FIELDS[name])}
    if own.get("tbg_info") == _WHOLE or name in executor.SWITCH_OPERATIONS:
        own.pop("tbg_info", None)
    return {key: item for key, item in own.items() if item != "none"}


def _cut_to_what_runs(op: Json) -> None:
    """Change an operation that moves data to what the kernel takes of it (``execution_kernel.hpp``, from line 146)."""
    name, sources, targets = op["name"], op["src_buff"], op["dst_buff"]
    for end in (end for end in (*sources, *targets) if not end.keys() & {"type", "buffer_id", "switch_channel_id"}):
        end["type"] = BUFFER_TYPES[0]  # The value 0
    paired, on_ports = name in executor.PAIRED, op["channel_type"] == "port"
    shapes = executor.SHAPES.get(name, ("l", "l"))
    for ends, letters in zip((sources, targets), shapes, strict=True):
        del ends[len(ends) if "+" in letters else len(letters) :]
    if paired:
        first, other = (sources, targets) if name == "get" else (targets, sources)
        del other[len(first) :]
    if name in executor.SWITCH_OPERATIONS:
        op["channel_type"] = "switch"
    elif sources and on_ports:
        op["channel_ids"] = [*op["channel_ids"], *[0] * len(targets)][: len(targets)]
    shape: tuple[str, str] | None = None
    if name in executor.SHAPES:
        shape = executor.shape_of(name, op["channel_type"], len(sources), len(targets))
    for at, (end, letter) in enumerate(zip((*sources, *targets), "".join(shape or ()), strict=False)):
        _cut_place(end, letter, reads=at < len(sources) and not on_ports)
    if paired:
        _cut_pairs(name, sources, targets, on_ports=on_ports)
    elif sources:
        for end in (*sources[1:], *targets):
            end["size"] = sources[0]["size"]


def _cut_pairs(name: str, sources: list[Json], targets: list[Json], *, on_ports: bool) -> None:
    """Give both ends of a copy the size that the kernel takes, and all sources on memory the first one's buffer."""
    for source, target in zip(sources, targets, strict=False):
        if name != "get" and not on_ports and "type" in sources[0]:
            source["type"] = sources[0]["type"]
        first, other = (source, target) if name in ("get", "ppkt") else (target, source)
        other["size"] = first["size"]


def _cut_place(end: Json, letter: str, *, reads: bool) -> None:
    """Change a source or target to the buffer that the kernel takes, whatever else it names."""
    if letter in ("r", "q"):
        end.pop("type", None)
    elif letter == "p" and reads:
        end["type"] = "s"
    elif end.get("buffer_id", 9) < len(BUFFER_TYPES):  # One byte is both
        end["type"] = BUFFER_TYPES[end["buffer_id"]]


def _refuse(what: str) -> NoReturn:
    raise FileFormatError(what)


def _typed(kinds: Any, expected: str, among: tuple[str, ...] = ()) -> Reader:
    """Return a reader of values of some types, and of some texts where they are listed."""

    def read(value: Any, where: str, _: set[str]) -> Any:
        if not isinstance(value, kinds) or (among and value not in among):
            _refuse(f"{where} is {shown(value)}; expected {expected}")
        return int(value) if kinds == (int, float) else value

    return read


def _size(value: Any, where: str, ignored: set[str]) -> int:
    """Read a number of 64 bits, which true is not."""
    return int(_number("true" if isinstance(value, bool) else value, where, ignored)) % 2**64


def _list_of(reader: Reader, *, looped: bool = True) -> Reader:
    """Return a reader of what a loop over a value has: entries of objects too, and any other value itself."""

    def read(value: Any, where: str, ignored: set[str]) -> list[Any]:
        if not looped and value not in (None, {}) and not isinstance(value, list):
            _refuse(f"{where} is {shown(value)}; expected a list")
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        return [] if value is None else [reader(entry, where, ignored) for entry in entries]

    return read


def _record(required: Mapping[str, Reader], optional: Mapping[str, tuple[Reader, Any]], *unused: str) -> Reader:
    """Return a reader of objects; keys without a default stay away."""

    def read(value: Any, where: str, ignored: set[str]) -> Json:
        fields = _object(value, where, ignored)
        ignored.update(fields.keys() - {*required, *optional, *unused})
        if missing := [key for key in required if key not in fields]:
            _refuse(f"{where} has no {missing[0]}")
        readers = {**required, **{key: reader for key, (reader, _) in optional.items()}}
        record = {key: default for key, (_, default) in optional.items() if key not in fields and default is not None}
        return record | {
            key: reader(fields[key], f"{key} of {where}", ignored) for key, reader in readers.items() if key in fields
        }

    return read


_WHOLE = {"tb_id": 0, "tbg_size": 1}
_as_is = _typed(object, "")
_object = _typed(dict, "an object")
_text = _typed(str, "a text")
_boolean = _typed(bool, "true or false")
_number = _typed((int, float), "a number")
_kind = _typed(str, "memory, port, none or switch", ("memory", "port", "none", "switch"))
_buffer = _typed(str, "i, o or s", BUFFER_TYPES)
_numbers, _all = _list_of(_number), _list_of(_as_is)
_PLAN = _record(
    {"name": _text, "collective": _text, "protocol": _text, "inplace": _boolean, "gpus": _as_is},
    {
        **dict.fromkeys(("reuse_resources", "use_double_scratch_buffer"), (_boolean, False)),
        "buffer_alignment": (_number, executor.ALIGNMENT),
        "num_threads_per_block": (_number, executor.MAX_THREADS),
        "min_message_size": (_number, 0),
        "max_message_size": (_size, 2**64 - 1),
    },
)
_REFERENCE = _record({"access_channel_type": _kind, "remote_buffer_ids": _list_of(_size)}, {})
_BLOCK = _record(
    {
        "id": _size,
        "ops": _all,
        "channels": _list_of(_record({"channel_type": _kind, "channel_ids": _numbers}, {}, "buff")),
    },
    {"remote_buffer_refs": (_list_of(_REFERENCE), [])},
)
_REMOTE = _record({"rank": _number, "type": _buffer, "access_channel_types": _list_of(_kind)}, {})
_GPU = _record(
    {
        **dict.fromkeys(("input_chunks", "output_chunks", "scratch_chunks"), _number),
        "id": _as_is,
        "channels": _all,
        "remote_buffers": _list_of(_REMOTE),
        "threadblocks": _list_of(_BLOCK),
    },
    {"semaphores": (_list_of(_record({"init_value": _number}, {})), [])},
)
_CHANNEL = _record({"channel_type": _kind, "connected_to": _numbers}, {})
_GROUP = _record({"size": _number, "ranks": _numbers}, {})
_SWITCH = _record({"channel_type": _kind, "buffer_type": _buffer, "rank_groups": _list_of(_GROUP)}, {})
_END = _record(
    {"index": _number, "size": _number},
    {"type": (_buffer, None), "buffer_id": (_number, None), "switch_channel_id": (_size, None)},
)
_OPERATION = _record(
    {"name": _text},
    {
        "channel_type": (_kind, "none"),
        **dict.fromkeys(("channel_ids", "semaphore_ids"), (_list_of(_number, looped=False), [])),
        **dict.fromkeys(("src_buff", "dst_buff"), (_list_of(_END, looped=False), [])),
        "tbg_info": (_record({"tb_id": _number, "tbg_size": _number}, {}), _WHOLE),
        **dict.fromkeys(("barrier_id", "num_threadblocks"), (_number, 0)),
        "iter_context": (_record({"unit_size": _number, "num_chunks": _number}, {}), None),
        "ops": (_all, []),
    },
)
