"""Agreement of all ranks on the arguments of a collective call.

A rank that raised alone would leave the others waiting until the process group gives up.  So the ranks compare their
arguments on the first call of each kind, and all stop together if these differ; with the environment variable
``COLLOPT_DEBUG=calls`` they compare every call.

All-to-all(v) calls are compared every time.  Each rank gathers a row of numbers: a flag for refused arguments, values
that have to be equal, and values for the plan.  Rows have a fixed length, as Gloo aborts the
process where sizes differ.

After a failed exchange the ranks leave notes in their group's store, and a message names the ranks that were in another
call, that refused their arguments, or that left no note since they are late or have ended.
"""

import hashlib
import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from ...errors import ColloptError, ProgramError, UnsupportedError
from ...support.arrays import IntArray
from .arguments import OPERATIONS, Call, agreement_device, argument_error, import_torch
from .call_queue import join_at_exit, run_in_order

ELEMENTS_NAME = "the number of elements"
DIGEST_DIGITS = 15  # Hexadecimal digits of a program's digest that fit an int64 with its sign
MAX_ELEMENTS = 2**62  # Above any number; a rank that cannot tell agrees with every other
UNKNOWN = -1  # Stands for an option that is not given
FIRST_TAG = 2**30  # The first of 2^30 tags, far from the tags of other code
DEBUG_VARIABLE = "COLLOPT_DEBUG"
MIN_TIMEOUT_S = 0.001  # Torch counts in milliseconds, and takes none for no limit at all
WAIT_S = 1.0  # For the notes of other ranks, whose timeouts end about when this rank's does
POLL_S = 0.02  # Between two looks at the notes
STORE_TIMEOUT_S = 3.0  # For all notes: the store's own process may be the one that hangs

Terms = TypeVar("Terms")
_connected: WeakSet[Any] = WeakSet()  # Groups whose ranks have met on their GPUs
_agreed: WeakKeyDictionary[Any, set[tuple[object, ...]]] = WeakKeyDictionary()  # Keys of compared calls, by group
_failures: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()


def wait(work: Any, timeout: float | None) -> None:
    """Wait for one torch work; with NCCL the current stream waits instead of the process."""
    if timeout is None:
        work.wait()
    else:
        work.wait(timedelta(seconds=max(timeout, MIN_TIMEOUT_S)))


def post(group: Any, tag: int, messages: Iterable[tuple[int, bool | int, Any]]) -> list[Any]:
    """Post messages, each with its peer, whether it is a send, and its tensor, as one batch, which NCCL needs."""
    _, dist = import_torch()
    ways = [(dist.isend if is_send else dist.irecv, peer, tensor) for peer, is_send, tensor in messages]
    batch = [dist.P2POp(way, tensor, group=group, tag=tag, group_peer=peer) for way, peer, tensor in ways]
    return dist.batch_isend_irecv(batch) if batch else []


def wait_for_all(works: Sequence[Any], timeout: float | None) -> None:
    """Wait for a batch of works within one timeout for all."""
    until = None if timeout is None else time.monotonic() + timeout
    for work in works:
        wait(work, None if until is None else until - time.monotonic())


def first_line(error: Exception) -> str:
    """Return the first line of an error of torch, which often has many."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def agree(call: Call) -> int:
    """Check this rank's arguments, and on the first call of its kind, and where sizes are not known, compare them."""
    problem = argument_error(call)
    if (agreed_elements := _agreed_elements(call, problem)) is not None:
        return agreed_elements
    try:
        return run_in_order(call.group, partial(_compare_once, call, problem))
    except ProgramError as error:
        raise problem or error from None


def _call_key(call: Call) -> tuple[object, ...]:
    """Key of calls that are compared once."""
    return call.program.digest, str(call.full_tensor.dtype), call.elements, call.slices, call.op


def tag_of(call: Call, elements: int) -> int:
    """Tag of a call's messages, so that different calls never match: a message that is too long ends a Gloo process."""
    key = f"{call.program.digest} {call.full_tensor.dtype} {elements} {call.slices} {call.op}"
    return FIRST_TAG + zlib.crc32(key.encode()) % FIRST_TAG


def description(call: Call) -> str:
    """Describe a call in the words of the post-mortem."""
    tensor = call.full_tensor
    what = "" if tensor is None else f" of {tensor.numel()} elements of {str(tensor.dtype).removeprefix('torch.')}"
    how = f" by {call.op}" if call.program.layout.reduces else ""
    return f"in an {call.program.collective}{what}{how}, program {call.program.digest[:8]}, slices {call.slices}"


def _agreed_elements(call: Call, problem: ColloptError | None) -> int | None:
    """Return the elements of a call whose key has been compared before; None for others."""
    if os.environ.get(DEBUG_VARIABLE) == "calls":
        return None
    agreed_keys = _agreed.setdefault(call.group, set())
    if problem is not None:
        if (call.program.digest,) in agreed_keys and call.is_size_known:
            # The others are past the point where they could be told before their timeout.
            leave_note(call.group, f"refused its arguments: {problem}")
            raise problem
        return None
    return call.elements if call.is_size_known and _call_key(call) in agreed_keys else None


def _compare_once(call: Call, problem: ColloptError | None) -> int:
    """Compare a call, unless a callback has compared its key meanwhile: other ranks may not compare it then either."""
    if (agreed_elements := _agreed_elements(call, problem)) is not None:
        return agreed_elements
    elements = _compare(call, problem, None if problem else call.elements)
    connect(call.group, call.full_tensor.device, call.timeout)
    _agreed.setdefault(call.group, set()).update({_call_key(call), (call.program.digest,)})
    return elements


def connect(group: Any, device: Any, timeout: float | None) -> None:
    """Run a first collective on GPUs, which NCCL needs before a batch of messages, unless the comparison was one."""
    torch, dist = import_torch()
    if device.type != "cuda" or group in _connected or agreement_device(group).type == "cuda":
        return
    if dist.get_backend(group) != "gloo":
        wait(dist.all_reduce(torch.zeros(1, device=device), group=group, async_op=True), timeout)
    _connected.add(group)


def _compare(call: Call, problem: ColloptError | None, elements: int | None) -> int:
    """Compare this rank's call with the others'; return the elements, or raise on all ranks if they differ."""
    torch, dist = import_torch()
    names = ("a rank whose arguments are wrong", "the program", "the element type", ELEMENTS_NAME, "slices", "op")
    values = [1, *[0] * (len(names) - 1)]
    if problem is None:
        program, kind = int(call.program.digest[:DIGEST_DIGITS], 16), zlib.crc32(str(call.full_tensor.dtype).encode())
        values = [0, program, kind, elements or 0, call.slices, OPERATIONS.index(call.op)]
    device = agreement_device(call.group)
    # The largest negative is the smallest negated: one all-reduce gives both extremes.
    negated = [-value for value in values]
    if problem is None and elements is None:
        negated[names.index(ELEMENTS_NAME)] = -MAX_ELEMENTS
    extremes = torch.tensor([*values, *negated], dtype=torch.int64, device=device)
    try:
        wait(dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=call.group, async_op=True), call.timeout)
    except RuntimeError as error:
        why = "" if problem else explained(call.group, description(call))
        raise problem or ProgramError(f"the ranks could not agree on the call: {first_line(error)}{why}") from error
    if problem is not None:
        raise problem
    largest, smallest = extremes[: len(values)].tolist(), (-extremes[len(values) :]).tolist()
    if largest[0]:
        raise ProgramError("another rank refused its arguments, so this one stops too; that rank's message says why")
    for name, highest, lowest in zip(names, largest, smallest, strict=True):
        if highest != lowest:
            why = explained(call.group, description(call))
            raise ProgramError(f"the ranks disagree about {name}; all have to make the same call{why}")
    return int(largest[names.index(ELEMENTS_NAME)])


def digest(data: bytes) -> int:
    """Return a hash that fits a signed int64, less than its maximum."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest())


def coded(option: int | None) -> int:
    """Return an option as a number that ranks compare."""
    return UNKNOWN if option is None else min(option, MAX_ELEMENTS)


def gathered(numbers: Sequence[int], group: Any, timeout: float | None, call: str) -> IntArray:
    """All-gather the numbers of a call, such as "the dispatch"; shape (ranks, numbers)."""
    torch, dist = import_torch()
    device = agreement_device(group)
    try:
        mine = torch.tensor(numbers, dtype=torch.int64, device=device)
        table = torch.empty((dist.get_world_size(group), len(numbers)), dtype=torch.int64, device=device)
        wait(dist.all_gather(list(table.unbind()), mine, group=group, async_op=True), timeout)
        rows: IntArray = table.cpu().numpy()
    except RuntimeError as error:
        why = explained(group, f"in {call}")
        raise ProgramError(f"the ranks could not agree on {call}: {first_line(error)}{why}") from error
    return rows


def checked(check: Callable[[], Terms]) -> Terms | UnsupportedError:
    """Return the result of a check, or its error, which this rank raises once the others know of it."""
    try:
        return check()
    except UnsupportedError as error:
        return error


def refuse(error: UnsupportedError, length: int, group: Any, timeout: float | None, call: str) -> NoReturn:
    """Raise an error once the other ranks know that there is one, from a row of their `length`."""
    try:
        gathered([1] + [0] * (length - 1), group, timeout, call)
    except ProgramError:
        raise error from None
    raise error


def compare(
    table: IntArray,
    call: str,
    names: Sequence[str],
    digested: Sequence[str],
    words: Mapping[str, Mapping[int, str]] | None = None,
) -> None:
    """Raise on all ranks alike if a rank refused, or if they differ in the columns after the first.

    Messages have the values of `names`, as `words` for codes, but not the digests of `digested`.
    """
    if table[:, 0].any():
        raise UnsupportedError(
            f"rank {int(table[:, 0].argmax())} refused its arguments of {call}, so all stop; that rank's message "
            "says why"
        )
    for at, name in enumerate((*names, *digested)):
        column = table[:, at + 1]
        if (other := int(np.argmax(column != column[0]))) != 0:
            texts = {UNKNOWN: "not given", **(words or {}).get(name, {})}
            one, two = (texts.get(value, value) for value in column[[0, other]].tolist())
            is_told = at < len(names)
            values = f": {one} on rank 0, {two} on rank {other}" if is_told else f", such as ranks 0 and {other}"
            raise UnsupportedError(f"the ranks disagree about {name}{values}; all have to make the same call")


def leave_note(group: Any, note: str) -> None:
    """Leave a note for ranks that will fail for want of this one."""
    _in_thread(lambda: _notes(group, note, wait_s=0))


def explained(group: Any, note: str) -> str:
    """Leave a note about this rank's call, and return the explanation of the failure for the end of its message."""
    notes: list[str | None] = []
    _in_thread(lambda: notes.extend(_notes(group, note, WAIT_S)))
    absent = [rank for rank, text_of_rank in enumerate(notes) if text_of_rank is None]
    by_note: dict[str, list[int]] = {}
    for rank, text_of_rank in enumerate(notes):
        if text_of_rank is not None:
            by_note.setdefault(text_of_rank, []).append(rank)
    words = f"; {_ranks(absent)} gave no sign: late, or ended" if absent else ""
    if len(by_note) > 1:
        words += "; the ranks differ: " + ", but ".join(f"{_ranks(ranks)} {text}" for text, ranks in by_note.items())
    return words


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _in_thread(job: Any) -> None:
    thread = Thread(target=job, name="collopt-diagnosis", daemon=True)
    thread.start()
    join_at_exit(thread)
    thread.join(STORE_TIMEOUT_S)


def _notes(group: Any, note: str, wait_s: float) -> list[str | None]:
    """Write this rank's note, and return the notes of all ranks that arrive in time."""
    _, dist = import_torch()
    size, own = dist.get_world_size(group), dist.get_rank(group)
    notes: list[str | None] = [None] * size
    notes[own] = note
    counter = _failures.setdefault(group, Counter())
    keys = [f"collopt-failure-{group.group_name}-{counter['failures']}-{rank}" for rank in range(size)]
    counter["failures"] += 1
    until = time.monotonic() + wait_s
    with suppress(RuntimeError, KeyError, ValueError):  # Without a store there is nothing to tell.
        store = dist.distributed_c10d._get_process_group_store(group)
        store.set(keys[own], note)
        while None in notes and time.monotonic() < until:
            for rank, text in enumerate(notes):
                if text is None and store.check([keys[rank]]):
                    notes[rank] = store.get(keys[rank]).decode()
            time.sleep(POLL_S)
    return notes
