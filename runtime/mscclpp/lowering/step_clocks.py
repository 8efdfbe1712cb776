"""Kernel of the vector clocks that credits and acknowledgements are left out by."""

from ....support.arrays import IntArray, ShortArray, SmallArray
from ....support.kernels import kernel


@kernel
def step_clocks(
    clocks: ShortArray | SmallArray,
    sequence: IntArray,
    starts: IntArray,
    before: IntArray,
    columns: IntArray,
    steps: IntArray,
) -> None:
    """Write the clocks at the end of each step, (steps, columns), -1 where nothing is known.

    Shapes: all but `before` (steps,), and `starts` one more: where those before a step begin.
    """
    width = clocks.shape[1]
    for number in sequence:
        clock = clocks[number]
        begin, end = starts[number], starts[number + 1]
        clock[:] = -1
        for place in range(begin, end):
            known = clocks[before[place]]
            for column in range(width):
                clock[column] = max(clock[column], known[column])
        if columns[number] >= 0:
            clock[columns[number]] = steps[number]
