"""Agreement of all ranks on a call, and explanations of calls that failed.

A rank that raised alone would leave the others waiting.  So the ranks gather rows of numbers: the kind of call, whether
its arguments are refused, and what has to be equal.  All rows have one length, as Gloo aborts where sizes differ.
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
from ..programs.program import check_seconds
from .arguments import Call, agreement_device, check_call, import_torch
from .call_queue import MAX_SECONDS, join_at_exit, run_in_order

PLAN, ALL_TO_ALL, DISPATCH, COMBINE, PLANNING, RESHARDING = CALLS = (
    "the run of a plan", "the all-to-all", "the dispatch", "the combine", "the planning of a collective",
    "the resharding",
)  # fmt: skip
ROW = 32  # Numbers in the row of a call
HEAD = 2  # The kind of call, and 1 for refused arguments
UNKNOWN = -1  # Stands for an option that is not given, and for a size that a rank cannot tell
MAX_NUMBER = 2**62
FIRST_DIGEST = 2**56  # The first of 2^48 numbers that stand for texts
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
        work.wait(timedelta(seconds=min(max(timeout, MIN_TIMEOUT_S), MAX_SECONDS)))


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


def checked(call: str, check: Callable[[], Terms]) -> Terms | ColloptError:
    """Return the result of a check, or its error, which this rank raises once the others know of it."""
    try:
        return check()
    except (UnsupportedError, ProgramError) as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever is wrong, the other ranks have to be told.
        kind = "" if isinstance(error, ColloptError) else f"{type(error).__name__}: "
        return UnsupportedError(f"the arguments of {call} cannot be read: {kind}{first_line(error)}")


def refuse(call: str, error: ColloptError, group: Any, timeout: float | None) -> NoReturn:
    """Raise an error once the other ranks know that there is one."""
    leave_note(group, f"refused its arguments of {call}: {error}")
    with suppress(ProgramError):
        _rows(call, True, [], group, timeout)
    raise error


def agree_on(
    call: str,
    equal: Mapping[str, object],
    numbers: Sequence[int],
    group: Any,
    timeout: float | None,
    size: str | None = None,
) -> IntArray:
    """Compare a call with those of all ranks, and return the `numbers` of all; shape (ranks, numbers).

    Raises `ProgramError` on all ranks alike if calls differ in kind, in `equal` or in the first number, if that is a
    `size`, or a rank refused its arguments.
    """
    table = _rows(call, False, [*map(_coded, equal.values()), *numbers], group, timeout)
    first = HEAD + len(equal)
    try:
        _check_rows(call, equal, table)
        if size is not None:
            agreed_size(size, table[:, first])
    except ProgramError as error:
        stop(error, group)
    return table[:, first : first + len(numbers)]


def stop(error: ProgramError, group: Any) -> NoReturn:
    """Raise an error that all ranks have, with a note for those not as far: this rank may end and disconnect them."""
    leave_note(group, f"stopped, as {error}")
    raise error


def _check_rows(call: str, equal: Iterable[str], table: IntArray) -> None:
    """Check that all ranks make the same call, with arguments that none refused, and what has to be equal."""
    if (stray := int(np.argmax(table[:, 0] != table[0, 0]))) != 0:
        one, two = (CALLS[kind] for kind in table[[0, stray], 0].tolist())
        raise ProgramError(f"the ranks make different calls: {one} on rank 0, {two} on rank {stray}")
    if table[:, 1].any():
        refusing = int(table[:, 1].argmax())
        raise ProgramError(
            f"rank {refusing} refused its arguments of {call}, so all stop; that rank's message says why"
        )
    for name, column in zip(equal, table.T[HEAD:], strict=False):
        require_equal(name, column)


def require_equal(name: str, numbers: IntArray, ranks: Sequence[int] | None = None) -> None:
    """Raise on all ranks alike if the numbers of the `ranks`, by default of all, differ."""
    values = numbers.tolist()
    ranks = range(len(values)) if ranks is None else ranks
    if stray := next((rank for rank in ranks if values[rank] != values[ranks[0]]), None):
        pair = ranks[0], stray
        texts = ["not given" if values[rank] == UNKNOWN else str(values[rank]) for rank in pair]
        places = ": " + ", ".join(f"{text} on rank {rank}" for text, rank in zip(texts, pair, strict=True))
        if max(values[rank] for rank in pair) >= FIRST_DIGEST:
            places = f", such as ranks {pair[0]} and {pair[1]}"
        raise ProgramError(f"the ranks disagree about {name}{places}; all have to make the same call")


def agreed_size(name: str, sizes: IntArray) -> int:
    """Return the size on which all ranks that can tell it agree; 0 if none can."""
    telling = np.flatnonzero(sizes != UNKNOWN).tolist()
    require_equal(name, sizes, telling)
    return int(sizes[telling[0]]) if telling else 0


def _coded(value: object) -> int:
    if value is None:
        return UNKNOWN
    if isinstance(value, (int, np.integer)):
        return min(int(value), MAX_NUMBER)
    return digest(value if isinstance(value, bytes) else str(value).encode())


def digest(data: bytes) -> int:
    """Return a number that stands for some bytes."""
    return FIRST_DIGEST + int.from_bytes(hashlib.blake2b(data, digest_size=6).digest())


def _rows(call: str, is_refused: bool, numbers: Sequence[int], group: Any, timeout: float | None) -> IntArray:
    row = [CALLS.index(call), int(is_refused), *numbers]
    assert len(row) <= ROW  # Or the process would end.
    return gathered(row + [0] * (ROW - len(row)), group, timeout, call)


def gathered(numbers: Sequence[int], group: Any, timeout: float | None, call: str) -> IntArray:
    """All-gather as many numbers of each rank; shape (ranks, numbers)."""
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


def connect(group: Any, device: Any, timeout: float | None) -> None:
    """Run a first collective on GPUs, which NCCL needs before a batch of messages, unless the comparison was one."""
    torch, dist = import_torch()
    if device.type != "cuda" or group in _connected or agreement_device(group).type == "cuda":
        return
    if dist.get_backend(group) != "gloo":
        wait(dist.all_reduce(torch.zeros(1, device=device), group=group, async_op=True), timeout)
    _connected.add(group)


def agree(call: Call) -> int:
    """Check this rank's run of a plan, and compare the first one of each kind; return the elements in all.

    Runs are always compared where sizes are not known, and with the environment variable ``COLLOPT_DEBUG=calls``.
    """
    problem = checked(PLAN, partial(check_call, call))
    if (elements := _agreed_elements(call, problem)) is not None:
        return elements
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
    how = f" by {call.op}" if call.program.layout.reduces else ""
    return (
        f"in an {call.program.collective} of {tensor.numel()} elements of {str(tensor.dtype).removeprefix('torch.')}"
        f"{how}, program {call.program.digest[:8]}, slices {call.slices}"
    )


def _agreed_elements(call: Call, problem: ColloptError | None) -> int | None:
    """Return the elements of a call whose key has been compared before; None for others."""
    if os.environ.get(DEBUG_VARIABLE) == "calls":
        return None
    agreed_keys = _agreed.setdefault(call.group, set())
    if problem is None:
        return call.elements if call.is_size_known and _call_key(call) in agreed_keys else None
    if (call.program.digest,) in agreed_keys and call.is_size_known:
        # The others are past the point where they could be told before their timeout.
        leave_note(call.group, f"refused its arguments: {problem}")
        raise problem
    return None


def bounded_timeout(timeout: Any) -> float | None:
    """Timeout in seconds that torch can count; None for an invalid one, which all ranks refuse later."""
    with suppress(UnsupportedError):
        check_seconds("timeout", timeout)
        return float(min(timeout, MAX_SECONDS))
    return None


def _compare_once(call: Call, problem: ColloptError | None) -> int:
    """Compare a call, unless a callback has compared its key meanwhile: other ranks may not compare it then either."""
    if (elements := _agreed_elements(call, problem)) is not None:
        return elements
    seconds = bounded_timeout(call.timeout)
    if problem is not None:
        refuse(PLAN, problem, call.group, seconds)
    equal = {"the program": call.program.digest, "the element type": call.full_tensor.dtype}
    equal |= {"slices": call.slices, "op": call.op}
    size = UNKNOWN if call.elements is None else call.elements
    name = "the number of elements"
    elements = agreed_size(name, agree_on(PLAN, equal, [size], call.group, seconds, name)[:, 0])
    connect(call.group, call.full_tensor.device, call.timeout)
    _agreed.setdefault(call.group, set()).update({_call_key(call), (call.program.digest,)})
    return elements


def leave_note(group: Any, note: str) -> None:
    """Leave a note for ranks that will fail for want of this one."""
    _in_thread(lambda: _notes(group, note, wait_s=0))


def explained(group: Any, note: str) -> str:
    """Leave a note about this rank's call, and explain the failure by the notes of all, for the end of its message."""
    notes: list[str | None] = []
    _in_thread(lambda: notes.extend(_notes(group, note, WAIT_S)))
    by_note: dict[str | None, list[int]] = {}
    for rank, text in enumerate(notes):
        by_note.setdefault(text, []).append(rank)
    absent = by_note.pop(None, None)
    words = f"; {_ranks(absent)} gave no sign: late, or ended" if absent else ""
    if len(by_note) > 1:
        words += "; the ranks differ: " + ", but ".join(f"{_ranks(ranks)} {text}" for text, ranks in by_note.items())
    return words


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _in_thread(job: Callable[[], object]) -> None:
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
