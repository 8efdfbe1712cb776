"""Post-mortem of a failed exchange: ranks leave a note in their group's store, and tell what the others' notes explain.

A rank that waits in vain only knows of a timeout.  Who is in another call, or refused its arguments, has left a note;
who has not is late or has ended.
"""

import time
from collections import Counter
from contextlib import suppress
from threading import Thread
from typing import Any
from weakref import WeakKeyDictionary

from .arguments import import_torch
from .call_queue import join_at_exit

WAIT_S = 1.0  # For the notes of others, whose timeouts end about when this rank's does
POLL_S = 0.02
STORE_TIMEOUT_S = 3.0  # For all of it: the store's own process may be the one that hangs

_failures: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()


def leave_note(group: Any, note: str) -> None:
    """Leave a note for ranks that will fail for want of this one."""
    _in_thread(lambda: _notes(group, note, wait_s=0))


def explained(group: Any, note: str) -> str:
    """Leave a note of what this rank was doing, and return what explains the failure, to be added to its message."""
    notes: list[str | None] = []
    _in_thread(lambda: notes.extend(_notes(group, note, WAIT_S)))
    absent = [rank for rank, each in enumerate(notes) if each is None]
    by_note: dict[str, list[int]] = {}
    for rank, each in enumerate(notes):
        if each is not None:
            by_note.setdefault(each, []).append(rank)
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
    """Write this rank's note, and return those of all ranks once they are there, or time is over."""
    _, dist = import_torch()
    size, own = dist.get_world_size(group), dist.get_rank(group)
    found: list[str | None] = [None] * size
    found[own] = note
    counter = _failures.setdefault(group, Counter())
    keys = [f"collopt-failure-{group.group_name}-{counter['failures']}-{rank}" for rank in range(size)]
    counter["failures"] += 1
    until = time.monotonic() + wait_s
    with suppress(RuntimeError, KeyError, ValueError):  # Without a store there is nothing to tell.
        store = dist.distributed_c10d._get_process_group_store(group)
        store.set(keys[own], note)
        while None in found and time.monotonic() < until:
            for rank, each in enumerate(found):
                if each is None and store.check([keys[rank]]):
                    found[rank] = store.get(keys[rank]).decode()
            time.sleep(POLL_S)
    return found
