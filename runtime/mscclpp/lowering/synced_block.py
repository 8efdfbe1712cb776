"""A thread block of MSCCL++ operations, and the syncs that its threads need.

The first thread of a block waits, signals and acquires; all of its threads copy and add.  So a ``nop``, which makes
the threads of a block wait for each other, stands between a wait and what relies on it, between copying or adding and
the signal or release that tells of it, and between two operations of which one writes what the other one touches.  It
is left out where the first thread relies on its own wait.
"""

from __future__ import annotations

from ..format.execution_plan import Operation, Place

__all__ = ["SyncedBlock"]


class SyncedBlock:
    """Operations of one thread block, with the syncs between them that its threads need."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._waited: set[int] = set()  # Threads that know what the others do not.
        self._reads: list[Place] = []  # Since the last sync.
        self._writes: list[Place] = []

    def sync(self) -> None:
        """Let all threads know what any of them has done or heard."""
        if self._waited or self._reads or self._writes:
            self.operations.append(Operation("nop"))
            self._waited.clear()
            self._reads.clear()
            self._writes.clear()

    def hear(self, operation: Operation) -> None:
        """Append an operation by which each of the first threads waits for something."""
        self.operations.append(operation)
        self._waited.update(range(_threads(operation)))

    def tell(self, operation: Operation) -> None:
        """Append an operation by which the first threads tell others what the block has done."""
        alone = _threads(operation) == 1 and self._waited <= {0}
        if self._reads or self._writes or (self._waited and not alone):
            self.sync()
        self.operations.append(operation)

    def work(self, operation: Operation) -> None:
        """Append an operation in which all threads take part."""
        reads, writes = operation.sources, operation.targets
        clash = any(_overlap(one, other) for one in writes for other in (*self._reads, *self._writes))
        if self._waited or clash or any(_overlap(one, other) for one in reads for other in self._writes):
            self.sync()
        self.operations.append(operation)
        self._reads.extend(reads)
        self._writes.extend(writes)


def _threads(operation: Operation) -> int:
    return max(len(operation.channels), len(operation.semaphores))


def _overlap(one: Place, other: Place) -> bool:
    if one.rank != other.rank or ("scratch" in (one.buffer, other.buffer) and one.buffer != other.buffer):
        return False
    # Input and output may be one memory, at an offset that does not matter here.
    return one.buffer != other.buffer or (one.start < other.start + other.count and other.start < one.start + one.count)
