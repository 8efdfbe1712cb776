"""Lint of an MSCCL++ execution plan: whether it loads, deadlocks or computes wrong results, and for which sizes.

A plan is refused that the executor would refuse, misread or run out of bounds on; it checks less itself.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from ...errors import FileFormatError, ProgramError, UnsupportedError
from ...support.files import name_of, read_bytes
from ...support.seed import current_seed
from ...support.validation import shown
from ..programs.findings import Finding, LintReport, Window
from . import executor
from .check import PlanError
from .execution_plan import ExecutionPlan
from .interpret import run_execution_plan
from .lower import DEFAULT_THREAD_BLOCKS
from .reader import FIELDS, MAX_BYTES_OF_FILE, OTHER_OPERATIONS, parse_document

RUNTIME = "mscclpp"
STORE = "gstore"  # Which versions before 0.10.0 refuse as an invalid operation
STORE_NEEDS = "gstore is an invalid operation for MSCCL++ 0.9.0; it runs since 0.10.0, of July 2026"
EQUAL_OFFSETS = (
    "input and output have to begin at the same offsets of their allocations on all ranks (symmetric buffers), and to "
    "end within 4 GiB of their start, as a rank adds its own offsets to what it accesses on others"
)
SUM_TYPES = (
    "switches add 32-bit integers and floating point, not 8-bit integers, nor 8-bit floating point before sm_100a; "
    "plan with in_network=False (--no-in-network) for these"
)
SWITCH_NEEDS = (
    "switch channels need NVLS, and buffers of one size at one offset in allocations that can be multicast, such as "
    "those of mscclpp.GpuBuffer"
)
UNIQUE = "plan names must be unique within a process: their setup is cached by name"
DIRECT = "pass it to mscclpp.ExecutionPlan(path, rank) and pass that to Executor.execute"
LOADING = {
    "0.8.0": "or set MSCCLPP_EXECUTION_PLAN_DIR to a folder of nothing but plans, which libmscclpp_nccl.so loads",
    "": "or register it, with a selector, before libmscclpp_nccl.so makes a communicator; no folder is searched",
}


def lint_plan(
    path: str | os.PathLike[str], version: str | None = None, *, max_thread_blocks: int = DEFAULT_THREAD_BLOCKS
) -> LintReport:
    """Check whether MSCCL++, by default its first version with all operations of the file, runs it correctly."""
    if version not in (None, *executor.VERSIONS):
        raise UnsupportedError(
            f"version is {shown(version)}; those known of {RUNTIME} are {', '.join(executor.VERSIONS)}"
        )
    ignored: set[str] = set()
    plan = _loaded(path, executor.MAIN if version is None else version, ignored)
    if isinstance(plan, Finding):
        return _report(path, version, None, [plan])
    findings = []
    if (blocks := max(len(gpu.thread_blocks) for gpu in plan.gpus)) > max_thread_blocks:
        message = f"a GPU has {blocks} thread blocks, which wait for each other, and runs {max_thread_blocks} at once"
        findings.append(Finding("hangs", message, ""))
    findings += _run_findings(plan)
    names = {operation.name for operation in plan.operations()}
    notes = {
        STORE_NEEDS: STORE in names,
        f"the loader does not read {shown(sorted(ignored))}": bool(ignored),
        EQUAL_OFFSETS: _needs_equal_offsets(plan),
        SUM_TYPES: "glres" in names,
        SWITCH_NEEDS: any(gpu.switches for gpu in plan.gpus),
        f"the plan is for one root, and every {plan.collective} can pick it, whatever its root": (
            plan.collective.has_one_root
        ),
        "the executor always sums, whatever reduction operation the call requests": plan.collective.reduces,
    }
    findings += [Finding("note", message, "") for message, applies in notes.items() if applies]
    return _report(path, version, plan, findings)


def _loaded(path: str | os.PathLike[str], version: str, ignored: set[str]) -> ExecutionPlan | Finding:
    """Load a plan, or say why it does not run."""
    where, content = name_of(path), read_bytes(path, MAX_BYTES_OF_FILE)
    try:
        return parse_document(load(decoded(content), version, ignored), where)
    except PlanError as error:
        return Finding(error.severity, _without(where, error), "")
    except FileFormatError as error:
        return Finding("rejected", _without(where, error), "")
    except UnsupportedError as error:
        return Finding("not checked", _without(where, error), "")


def _run_findings(plan: ExecutionPlan) -> Iterator[Finding]:
    """Run a plan with buffers that start their allocations, then with some that do not."""
    where = ""
    try:
        run_execution_plan(plan, interleavings=1, seed=current_seed(), pads=(0, 0))
        where = "where a buffer begins behind the start of its allocation, as most tensors of PyTorch do: "
        run_execution_plan(plan, interleavings=1, seed=current_seed())
    except ProgramError as error:
        yield Finding("hangs" if "deadlocks" in str(error) else "wrong data", f"{where}{error}", "")
    except UnsupportedError as error:
        yield Finding("not checked", str(error), "")


def _needs_equal_offsets(plan: ExecutionPlan) -> bool:
    """Whether GPUs access inputs or outputs of each other, which they take to begin where their own do."""
    remote = any(place.buffer != "scratch" for operation in plan.operations() for place in operation.remote_places)
    return remote or any(group.buffer != "scratch" for gpu in plan.gpus for group in gpu.switches)


def _report(
    path: str | os.PathLike[str], version: str | None, plan: ExecutionPlan | None, findings: list[Finding]
) -> LintReport:
    if version is None:
        stores = plan is not None and any(operation.name == STORE for operation in plan.operations())
        version = executor.STORING[0] if stores else executor.VERSION
    if plan is None:
        return LintReport(str(path), RUNTIME, version, tuple(findings), loading=loading_lines(version))
    place = "in place" if plan.in_place else "out of place"
    multiple = plan.smallest_message
    low, high = max(plan.min_bytes, multiple), min(plan.max_bytes, plan.largest_message)
    # In 0.8.0 the selector of a plan compares its largest size by "less than" (nccl.cu, line 623).
    window = Window(
        plan.collective.nccl_name, plan.num_ranks, plan.in_place, low, high + (version != executor.VERSIONS[0])
    )
    return LintReport(
        str(path),
        RUNTIME,
        version,
        tuple(findings),
        f"{plan.collective} on {plan.num_ranks} ranks, {place}, from {low} to {high} bytes",
        loading=(*loading_lines(version), f"only calls of a multiple of {multiple} bytes can run it"),
        windows=(window,),
    )


def loading_lines(version: str) -> tuple[str, ...]:
    """Say how a version is made to load plans."""
    return DIRECT, LOADING.get(version, LOADING[""]), UNIQUE


def _without(where: str, error: Exception) -> str:
    """Remove the file name from a message, as the report has it."""
    return str(error).removeprefix(f"{where}: ")


ADDED_OPERATIONS = {"recpkt": "0.9.0", "recspkt": "0.9.0", "gstore": "0.10.0", "gstorepkt": "0.10.0"}
"""First version that has an operation (lines 25 to 85); all others are in 0.8.0."""
BUFFER_TYPES = ("i", "o", "s")
Json = dict[str, Any]
Reader = Callable[[Any, str, set[str]], Any]
"""Reads a value, whose place is named, and adds the keys that are not read to a set."""


def decoded(content: bytes) -> object:
    """Decode a file as nlohmann's JSON does: after a byte order mark, without NaN, the last of repeated keys."""
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=int)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"the file is not JSON ({' '.join(str(error).split())[:200]})") from None


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
    is_listed = name in FIELDS or name in OTHER_OPERATIONS
    if not is_listed or executor.VERSIONS.index(
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
    if op["tbg_info"] != _WHOLE:
        raise UnsupportedError(f"{where} is a part of an operation (tbg_info), which collopt does not run")
    op["channel_ids"] = [channel & 255 for channel in op["channel_ids"]]
    op["ops"] = [_operation(operation, f"{where} op {at}", version, ignored) for at, operation in enumerate(op["ops"])]
    if name in executor.DATA_OPERATIONS:
        _cut_to_what_runs(op)
    return {key: item for key, item in op.items() if key in ("name", *FIELDS.get(name, ()))}


def _cut_to_what_runs(op: Json) -> None:
    """Change an operation that moves data to what the kernel takes of it (``execution_kernel.hpp``, from line 146)."""
    name, sources, targets = op["name"], op["src_buff"], op["dst_buff"]
    if name in executor.SWITCH_OPERATIONS:
        op["channel_type"] = "switch"
    for end in (*sources, *targets):
        if not end.keys() & {"type", "buffer_id", "switch_channel_id"}:
            end["type"] = BUFFER_TYPES[0]  # The value 0
    if name not in ("put", "pws"):
        del targets[1:], sources[len(sources) if name == "re" else 1 :]
        for end in (*sources[1:], *targets):
            end["size"] = sources[0]["size"] if sources else end["size"]
        return
    del sources[len(targets) :]
    # Memory is written by its address, so which channel is named does not matter there.
    channels = op["channel_ids"] if op["channel_type"] == "port" else []
    op["channel_ids"] = [*channels, *[0] * len(targets)][: len(targets)]
    for source, target in zip(sources, targets, strict=False):
        source["size"] = target["size"]
        if source.get("buffer_id", 9) < len(BUFFER_TYPES):  # One byte is both
            source["type"] = BUFFER_TYPES[source["buffer_id"]]


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
        "iter_context": (_record({"unit_size": _number, "num_chunks": _number}, {}), None),
        "ops": (_all, []),
    },
    *("barrier_id", "num_threadblocks"),
)
