"""What MSCCL++'s loader makes of a plan file: a model of ``execution_plan.cc``, whose lines are those of 0.9.0.

It reads the keys that it knows by the rules of nlohmann's JSON: numbers are cut to whole ones, null is an empty list,
a wrong type is an error, and a missing key is mostly undefined behavior, which counts as refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from ....errors import FileFormatError, UnsupportedError
from ....support.validation import shown
from .execution_plan import ALIGNMENT, DATA_OPERATIONS, MAX_THREADS, SWITCH_OPERATIONS, VERSIONS
from .operations import FIELDS, OTHER_OPERATIONS

ADDED_OPERATIONS = {"recpkt": "0.9.0", "recspkt": "0.9.0", "gstore": "0.10.0", "gstorepkt": "0.10.0"}
"""First version that has an operation (lines 25 to 85); all others are in 0.8.0."""
BUFFER_TYPES = ("i", "o", "s")
CHANNEL_TYPES = ("memory", "port", "none", "switch")
OPERATION_KEYS = (
    "name", "channel_type", "channel_ids", "tbg_info", "src_buff", "dst_buff", "barrier_id", "num_threadblocks",
    "semaphore_ids", "iter_context", "ops",
)  # fmt: skip
REQUIRED: Any = object()
Json = dict[str, Any]


def decoded(content: bytes) -> object:
    """Decode a file as nlohmann's JSON does: after a byte order mark, without NaN, the last of repeated keys."""
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=_not_a_number)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"the file is not JSON ({' '.join(str(error).split())[:200]})") from None


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


class Loader:
    """Loads a decoded plan as one version does; `ignored` are the keys that it has not read."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.ignored: set[str] = set()

    def load(self, document: object) -> Json:
        """Return what the loader reads of the document, as it reads it; `FileFormatError` where it would refuse it."""
        gpus = self._of(document, "the plan").get("gpus")
        if not isinstance(gpus, list) or not gpus:
            self._fail("the plan has no list of gpus")
        top = self._read(
            document,
            "the plan",
            {
                **dict.fromkeys(("name", "collective", "protocol"), (self._text, REQUIRED)),
                "inplace": (self._boolean, REQUIRED),
                "reuse_resources": (self._boolean, False),
                "use_double_scratch_buffer": (self._boolean, False),
                "buffer_alignment": (self._int, ALIGNMENT),
                "num_threads_per_block": (self._int, MAX_THREADS),
                "min_message_size": (self._int32, 0),
                "max_message_size": (self._size, 2**64 - 1),
                "gpus": (self._as_is, REQUIRED),
            },
        )
        # Line 128 reads the smallest size as a signed number of 32 bits, and line 297 divides by the alignment.
        if top["buffer_alignment"] <= 0 or top["min_message_size"] < 0:
            self._fail("buffer_alignment is not above 0, or min_message_size is not from 0 to 2^31 - 1")
        protocol = "LL" if top["protocol"] == "LL" else "Simple"  # line 240
        return top | {"protocol": protocol, "gpus": [self._gpu(gpu, rank) for rank, gpu in enumerate(gpus)]}

    def _gpu(self, value: object, rank: int) -> Json:
        where = f"gpu {rank}"
        keys = ("input_chunks", "output_chunks", "scratch_chunks")
        gpu = self._read(
            value,
            where,
            {
                "id": (self._as_is, REQUIRED),
                **dict.fromkeys(keys, (self._int, REQUIRED)),
                **dict.fromkeys(("channels", "remote_buffers", "threadblocks"), (self._each, REQUIRED)),
                "semaphores": (self._each, ()),
            },
        )
        if isinstance(gpu["id"], bool) or gpu["id"] != rank:  # line 253
            self._fail(f"{where} has id {shown(gpu['id'])}; expected its position")
        if not (gpu["input_chunks"] > 0 and gpu["output_chunks"] > 0):  # line 298 divides by them
            self._fail(f"{where} has {gpu['input_chunks']} input chunks and {gpu['output_chunks']} output chunks")
        number = (self._int, REQUIRED)
        buffer, kinds = (self._buffer, REQUIRED), (self._kinds, REQUIRED)
        return gpu | {
            "id": rank,
            "channels": self._channels(gpu["channels"], where),
            "remote_buffers": [
                self._read(each, where, {"rank": number, "type": buffer, "access_channel_types": kinds})
                for each in gpu["remote_buffers"]
            ],
            "semaphores": [self._read(each, where, {"init_value": number}) for each in gpu["semaphores"]],
            "threadblocks": [
                self._block(each, f"{where} threadblock {number}") for number, each in enumerate(gpu["threadblocks"])
            ],
        }

    def _channels(self, values: list[Any], where: str) -> list[Json]:
        """Lines 313 to 337, with the channels of one type in one entry, as the executor lists them."""
        found: dict[str, list[int]] = {}
        switches = []
        for value in values:
            kind = self._kind(self._of(value, where).get("channel_type"), where)
            keys = ("buffer_type", "rank_groups") if kind == "switch" else ("connected_to",)
            readers = {key: (self._buffer if key == "buffer_type" else self._each, REQUIRED) for key in keys}
            channel = self._read(value, where, {"channel_type": (self._text, REQUIRED)} | readers)
            if kind == "switch":
                numbers = {"size": (self._int, REQUIRED), "ranks": (self._ints, REQUIRED)}
                groups = [self._read(each, where, numbers) for each in channel["rank_groups"]]
                # The size goes into a field that nothing reads.
                groups = [group | {"size": len(group["ranks"])} for group in groups]
                switches.append(channel | {"rank_groups": groups})
            elif kind != "none":
                found.setdefault(kind, []).extend(self._ints(channel["connected_to"], where))
        return [*({"channel_type": kind, "connected_to": ends} for kind, ends in found.items()), *switches]

    def _block(self, value: object, where: str) -> Json:
        entries = (self._each, REQUIRED)
        block = self._read(
            value,
            where,
            {"id": (self._size, REQUIRED), "ops": entries, "channels": entries, "remote_buffer_refs": (self._each, ())},
        )
        for key, kind, ids, reader in (
            ("channels", "channel_type", "channel_ids", self._ints),
            ("remote_buffer_refs", "access_channel_type", "remote_buffer_ids", self._sizes),
        ):
            readers = {kind: (self._kind, REQUIRED), ids: (reader, REQUIRED)}
            block[key] = [self._read(each, where, readers, ("buff",)) for each in block[key]]
        return block | {"ops": [self._operation(each, f"{where} op {at}") for at, each in enumerate(block["ops"])]}

    def _operation(self, value: object, where: str) -> Json:
        """Lines 474 to 595: only what the operation itself uses is kept."""
        name = self._text(self._of(value, where).get("name"), where)
        known = name in FIELDS or name in OTHER_OPERATIONS
        if not known or VERSIONS.index(ADDED_OPERATIONS.get(name, VERSIONS[0])) > VERSIONS.index(self.version):
            self._fail(f"{where} has name {shown(name)}, which is an invalid operation for MSCCL++ {self.version}")
        ids = dict.fromkeys(("channel_ids", "semaphore_ids"), (self._array, ()))
        found = self._read(
            value,
            where,
            {
                "name": (self._text, REQUIRED),
                "channel_type": (self._kind, "none"),
                **ids,
                **dict.fromkeys(("tbg_info", "iter_context"), (self._of, {})),
                **dict.fromkeys(("src_buff", "dst_buff"), (self._array, ())),
                "ops": (self._each, ()),
            },
            OPERATION_KEYS,
        )
        found["channel_ids"] = [self._int(each, where) & 255 for each in found["channel_ids"]]
        found["semaphore_ids"] = self._ints(list(found["semaphore_ids"]), where)
        for key in ("src_buff", "dst_buff"):
            found[key] = [self._end(each, f"{key} of {where}") for each in found[key]]
            if found["channel_type"] not in CHANNEL_TYPES[:2] and any("buffer_id" in end for end in found[key]):
                self._fail(f"{where} has no channel type of remote buffers")  # line 496
        group = {key: self._int(found["tbg_info"].get(key, part), where) for key, part in _WHOLE.items()}
        if group != _WHOLE:
            if group["tbg_size"] == 0:
                self._fail(f"{where} is divided among 0 threadblocks")
            raise UnsupportedError(f"{where} has a part of an operation (tbg_info), which collopt does not run")
        if found["iter_context"]:
            numbers = dict.fromkeys(("unit_size", "num_chunks"), (self._int, REQUIRED))
            found["iter_context"] = self._read(found["iter_context"], where, numbers)
        found["ops"] = [self._operation(each, f"{where} op {at}") for at, each in enumerate(found["ops"])]
        if found["name"] in DATA_OPERATIONS:
            _cut_to_what_runs(found)
        return {key: item for key, item in found.items() if key in ("name", *FIELDS.get(name, ()))}

    def _end(self, value: object, where: str) -> Json:
        optional = ("type", "buffer_id", "switch_channel_id")
        present = [key for key in optional if key in self._of(value, where)]
        readers = {"type": self._buffer, "switch_channel_id": self._size}
        end = self._read(
            value, where, {key: (readers.get(key, self._int), REQUIRED) for key in ("index", "size", *present)}
        )
        if end["size"] == 0 and self.version != VERSIONS[-1]:  # line 621
            self._fail(f"{where} has size 0, by which MSCCL++ {self.version} divides")
        return end if present else end | {"type": BUFFER_TYPES[0]}  # The value 0

    def _read(
        self, value: object, where: str, readers: Mapping[str, tuple[Any, Any]], unused: tuple[str, ...] = ()
    ) -> Json:
        """Read the keys of an object by their readers, or take their defaults."""
        given = self._of(value, where)
        self.ignored.update(key for key in given if key not in readers and key not in unused)
        found: Json = {}
        for key, (reader, default) in readers.items():
            if key in given:
                found[key] = reader(given[key], f"{key} of {where}")
            elif default is REQUIRED:
                self._fail(f"{where} has no {key}")
            else:
                found[key] = default
        return found

    def _of(self, value: object, where: str) -> Json:
        return value if isinstance(value, dict) else self._fail(f"{where} is {shown(value)}; expected an object")

    def _text(self, value: object, where: str) -> str:
        return value if isinstance(value, str) else self._fail(f"{where} is {shown(value)}; expected a text")

    def _kind(self, value: object, where: str) -> str:
        kind = self._text(value, where)
        return kind if kind in CHANNEL_TYPES else self._fail(f"{where} is channel type {shown(kind)}")

    def _kinds(self, value: object, where: str) -> list[str]:
        return [self._kind(each, where) for each in self._each(value, where)]

    def _buffer(self, value: object, where: str) -> str:
        letter = self._text(value, where)
        return letter if letter in BUFFER_TYPES else self._fail(f"{where} is buffer type {shown(letter)}")

    def _boolean(self, value: object, where: str) -> bool:
        return value if isinstance(value, bool) else self._fail(f"{where} is {shown(value)}; expected true or false")

    def _int(self, value: object, where: str) -> int:
        return int(value) if isinstance(value, int | float) else self._fail(f"{where} is {shown(value)}, no number")

    def _int32(self, value: object, where: str) -> int:
        number = self._int(value, where) % 2**32
        return number - 2**32 * (number >= 2**31)

    def _size(self, value: object, where: str) -> int:
        return self._fail(f"{where} is true or false") if isinstance(value, bool) else self._int(value, where) % 2**64

    def _as_is(self, value: object, _: str) -> object:
        return value

    def _each(self, value: object, _: str) -> list[Any]:
        """Entries that a loop over a value has: those of an object too, and any other value itself."""
        return value if isinstance(value, list) else [*value.values()] if isinstance(value, dict) else _itself(value)

    def _array(self, value: object, where: str) -> list[Any]:
        """Entries that are looked up by their number, which only a list has."""
        entries = self._each(value, where)
        return entries if isinstance(value, list) or not entries else self._fail(f"{where} is {shown(value)}, no list")

    def _ints(self, value: object, where: str) -> list[int]:
        return [self._int(each, where) for each in self._each(value, where)]

    def _sizes(self, value: object, where: str) -> list[int]:
        return [self._size(each, where) for each in self._each(value, where)]

    def _fail(self, what: str) -> NoReturn:
        raise FileFormatError(what)


def _cut_to_what_runs(found: Json) -> None:
    """Change an operation that moves data to what the kernel takes of it (``execution_kernel.hpp``, from line 146)."""
    name, sources, targets = found["name"], found["src_buff"], found["dst_buff"]
    if name in SWITCH_OPERATIONS:
        found["channel_type"] = "switch"
    if name not in ("put", "pws"):
        del targets[1:], sources[len(sources) if name == "re" else 1 :]
        for end in (*sources[1:], *targets):
            end["size"] = sources[0]["size"] if sources else end["size"]
        return
    del sources[len(targets) :]
    # Memory is written by its address, so which channel is named does not matter there.
    given = found["channel_ids"] if found["channel_type"] == "port" else []
    found["channel_ids"] = [*given, *[0] * len(targets)][: len(targets)]
    for source, target in zip(sources, targets, strict=False):
        source["size"] = target["size"]
        if source.get("buffer_id", 9) < len(BUFFER_TYPES):  # One byte is both
            source["type"] = BUFFER_TYPES[source["buffer_id"]]


_WHOLE = {"tb_id": 0, "tbg_size": 1}


def _itself(value: object) -> list[Any]:
    return [] if value is None else [value]
