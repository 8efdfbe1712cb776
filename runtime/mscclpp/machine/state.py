"""What the thread blocks and proxies of a running plan know, as arrays; see `turns`.

A *token* is what a signal carries: a row of a clock, and up to two processes with the step that they are known to have
reached.  A *row* is the maximum of such *parts*.  Rows are worked out afterwards, for few processes at a time.
"""

from typing import NamedTuple

import numpy as np

from ....support.arrays import IntArray, SmallArray
from . import fields
from .code import Code


class State(NamedTuple):
    """Processes (processes, 6); counts of what is used of the other arrays, and how the run ended (11,).

    `runnable`, `sleeping` (processes,): the next that sleeps for the same; `sleepers`, `heads`, `tails` (resources,),
    with tokens in `queue`; `job_heads`, `job_tails` (port channels,), with jobs in `job_queue`.  `tokens` (tokens, 5):
    row, process, step, process, step; `jobs` (jobs, 5): token, source, target, whether it signals, slice; `nodes`
    (nodes, 3): thread, token and next of what threads of a block waited for; `parts` (parts, 5) as tokens, of rows that
    end at `row_ends`; `queries` (queries, 7): a row that has to know of a process' step, and why; `writers` (segments,
    2): process and step; `readers` (readers, 3): process, step and next, from `reader_heads` (segments,) on.
    """

    processes: IntArray
    counts: IntArray
    runnable: IntArray
    sleeping: IntArray
    sleepers: IntArray
    heads: IntArray
    tails: IntArray
    queue: SmallArray
    job_heads: IntArray
    job_tails: IntArray
    job_queue: SmallArray
    tokens: SmallArray
    jobs: SmallArray
    nodes: SmallArray
    row_ends: IntArray
    parts: SmallArray
    queries: SmallArray
    writers: SmallArray
    readers: SmallArray
    reader_heads: SmallArray


def first_state(code: Code, initial: IntArray) -> State:
    """Return the state before the first turn, with room for all that may come."""
    operations, executions = code.operations, code.executions
    lengths = operations[:, fields.LAST] - operations[:, fields.END]
    amounts = np.repeat(executions, lengths)  # Of all arguments that are no places
    begins = np.repeat(operations[:, fields.END] - np.cumsum(lengths) + lengths, lengths)
    numbers, codes = code.arguments[begins + np.arange(len(begins))], np.repeat(operations[:, fields.CODE], lengths)
    num_blocks, num_ports, ranks = len(code.firsts) - 1, len(code.others), int(code.ranks.max()) + 1
    jobs = np.bincount(numbers[codes == fields.JOB] - num_blocks, amounts[codes == fields.JOB], num_ports).astype(
        np.int64
    )
    gives = (codes != fields.WAIT) & (codes != fields.JOB) & (numbers >= 0)
    room = initial + np.bincount(numbers[gives], amounts[gives], len(initial)).astype(np.int64)
    signalling = code.others >= 0
    np.add.at(room, code.others[signalling], jobs[signalling])
    given, taken = int(amounts[codes != fields.WAIT].sum()), int(amounts[codes == fields.WAIT].sum())
    rows = 2 * ranks + num_blocks + given + int(executions[operations[:, fields.CODE] == fields.NOP].sum())
    accesses = int((code.segments[:, -1] - code.segments[:, 0]).sum())
    processes = np.zeros((len(code.ranks), 6), dtype=np.int64)
    processes[:, fields.ROW], processes[:, fields.WAITED], processes[:num_blocks, fields.AT] = (
        code.ranks,
        -1,
        code.firsts[:-1],
    )
    tails, job_ends, ends = np.cumsum(room) - room, np.cumsum(jobs), np.cumsum(room)

    def table(rows: int, columns: int) -> SmallArray:
        return np.empty((rows + 1, columns), dtype=np.int32)

    found = State(
        processes,
        np.zeros(11, dtype=np.int64),
        np.arange(len(processes)),
        np.full(len(processes), -1),
        np.full(len(room), -1),
        ends - room,
        tails + initial,
        np.full(int(room.sum()), -1, dtype=np.int32),
        job_ends - jobs,
        job_ends - jobs,
        np.empty(int(jobs.sum()), dtype=np.int32),
        table(ranks + 3 * given, 5),
        table(given, 5),
        table(given + taken, 3),
        np.zeros(rows + 1, dtype=np.int64),
        table(2 * rows + 2 * given + taken + 2 * num_blocks, 5),
        table(4 * accesses, 7),
        np.full((len(code.edges), 2), -1, dtype=np.int32),
        table(accesses, 3),
        np.full(len(code.edges), -1, dtype=np.int32),
    )
    found.counts[fields.RUNNABLE], found.counts[fields.FREE] = num_blocks, -1
    return found
