"""Kernels of vector clocks, for all events, and of the transitive reduction of one rank's waits."""

import numpy as np

from ...support.arrays import BoolArray, IntArray, SmallArray
from ...support.kernels import kernel_with


@kernel_with(lambda clocks, _processes, _steps, _starts, before, _columns: 3 * len(before) + 3 * len(clocks))
def write_clocks(
    clocks: SmallArray, processes: IntArray, steps: IntArray, starts: IntArray, before: IntArray, column_of: IntArray
) -> None:
    """Write the last known step of some processes at each event, (events, columns), -1 for none.

    Shapes: `processes`, `steps`, `starts` and `before` as in `EventGraph`; `column_of` (processes + 1,), -1 for none.
    """
    for event in range(len(steps)):
        clock = clocks[event]
        clock[:] = -1
        for place in range(starts[event], starts[event + 1]):
            if before[place] >= 0:
                clock[:] = np.maximum(clock, clocks[before[place]])
        column = column_of[processes[event]]
        if column >= 0:
            clock[column] = max(clock[column], steps[event])


@kernel_with(lambda _processes, steps, *_: 15 * len(steps))
def needed_waits(processes: IntArray, steps: IntArray, starts: IntArray, before: IntArray, width: int) -> BoolArray:
    """Mark the waits that no other wait implies (transitive reduction), (waits,).

    Shapes: as in `EventGraph`, `width`: number of processes; an event waits for `before`, at most one of each process,
    and for the event before it of its own process.
    """
    is_needed = np.zeros(len(before), dtype=np.bool_)
    # A clock changes only at events that wait, so each of these has one; row 0 knows nothing.
    clocks = np.empty((len(steps) + 1, width), dtype=np.int32)
    clocks[0] = -1
    current, clock_of, used = np.zeros(width, dtype=np.int64), np.zeros(len(steps), dtype=np.int64), 1
    for event in range(len(steps)):
        process = processes[event]
        clock, joined, missing = clocks[current[process]], clocks[used], False
        # Leave out steps that the process knows already.
        for place in range(starts[event], starts[event + 1]):
            other = before[place]
            is_needed[place] = processes[other] != process and clock[processes[other]] < steps[other]
            if is_needed[place]:
                if not missing:
                    joined[:] = clock
                missing = True
                joined[:] = np.maximum(joined, clocks[clock_of[other]])
        if missing:
            # Leave out steps that come before other awaited ones.
            for place in range(starts[event], starts[event + 1]):
                other = before[place]
                is_needed[place] = is_needed[place] and joined[processes[other]] < steps[other]
            for place in range(starts[event], starts[event + 1]):
                if is_needed[place]:
                    joined[processes[before[place]]] = steps[before[place]]
            current[process] = used
            used += 1
        clock_of[event] = current[process]
    return is_needed
