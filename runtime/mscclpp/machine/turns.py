"""Kernels that run the thread blocks of an execution plan, and the proxies of its port channels, by turns at random."""

import numpy as np

from ....support.arrays import IntArray
from ....support.kernels import kernel
from . import fields
from .clocks import access, closed_row, joined_row, part, segments, thread_token, token, wait_for
from .code import Code
from .state import State


@kernel
def run_turns(code: Code, state: State, memory: IntArray, seed: int) -> None:
    """Run until all processes have finished or wait, or one of them cannot go on."""
    random, blocks = np.uint64(seed), len(code.firsts) - 1
    for rank in range(code.ranks.max() + 1):
        # What a GPU knows when it starts: that it has.
        part(state, -1, len(code.ranks) + rank, 1, -1, 0)
        token(state, closed_row(state), -1, 0, -1, 0)
    while state.counts[fields.RUNNABLE] > 0 and state.counts[fields.STATUS] == 0:
        # Knuth's linear congruential generator
        random = random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        turn = np.int64((random >> np.uint64(33)) % np.uint64(state.counts[fields.RUNNABLE]))
        process = state.runnable[turn]
        goes_on = (
            _block_turn(code, state, memory, process) if process < blocks else _proxy_turn(code, state, memory, process)
        )
        if not goes_on:
            state.counts[fields.RUNNABLE] -= 1
            state.runnable[turn] = state.runnable[state.counts[fields.RUNNABLE]]


@kernel
def _block_turn(code: Code, state: State, memory: IntArray, block: int) -> bool:
    """Run the next operation of a block; False if there is none, or it has to wait."""
    process = state.processes[block]
    if process[fields.AT] == code.firsts[block + 1]:
        return False
    operation = code.operations[process[fields.AT]]
    if operation[fields.CODE] == fields.WAIT:
        for number in code.arguments[operation[fields.END] : operation[fields.LAST]]:
            if state.heads[number] == state.tails[number]:
                state.sleeping[block], state.sleepers[number] = state.sleepers[number], block
                return False
    at = process[fields.SLICE] if operation[fields.PIPED] else -1
    process[fields.COUNT] += 1
    if operation[fields.LOOP] >= 0 and process[fields.SLICE] + 2 < code.segments.shape[1]:
        process[fields.SLICE], process[fields.AT] = process[fields.SLICE] + 1, operation[fields.LOOP]
    else:
        process[fields.SLICE] = 0 if operation[fields.LOOP] >= 0 else process[fields.SLICE]
        process[fields.AT] += 1
    if operation[fields.CODE] == fields.NOP:
        process[fields.ROW], process[fields.SYNCED] = joined_row(state, block, -1), process[fields.COUNT]
    elif operation[fields.CODE] in (fields.WAIT, fields.SIGNAL):
        _exchange(code, state, block, operation)
    elif operation[fields.CODE] == fields.JOB:
        _request(code, state, block, operation, at)
    else:
        _work(code, state, memory, block, operation, at)
    return True


@kernel
def _exchange(code: Code, state: State, block: int, operation: IntArray) -> None:
    """Take a token of each resource, or give one to each."""
    for thread, number in enumerate(code.arguments[operation[fields.END] : operation[fields.LAST]]):
        if operation[fields.CODE] == fields.WAIT:
            found = state.queue[state.heads[number]]
            state.heads[number] += 1
            if found >= 0:
                wait_for(state, block, thread, found)
        elif number < 0:
            state.counts[fields.STATUS], state.counts[fields.WHERE] = fields.NO_OTHER_END, -1 - number
            return
        else:
            # A relaxed one keeps no accesses in order; its arrival alone shows that this GPU has started.
            _release(
                state, number, code.ranks[block] if operation[fields.RELAXED] else thread_token(state, block, thread)
            )


@kernel
def _release(state: State, number: int, found: int) -> None:
    """Give a token to a resource, and wake who sleeps for it."""
    state.queue[state.tails[number]] = found
    state.tails[number] += 1
    process, state.sleepers[number] = state.sleepers[number], -1
    while process >= 0:
        state.runnable[state.counts[fields.RUNNABLE]] = process
        state.counts[fields.RUNNABLE] += 1
        process = state.sleeping[process]


@kernel
def _request(code: Code, state: State, block: int, operation: IntArray, at: int) -> None:
    """Give each proxy a job: a copy, a signal, or both."""
    places, blocks = operation[fields.SPLIT] - operation[fields.BEGIN], len(code.firsts) - 1
    for thread, proxy in enumerate(code.arguments[operation[fields.END] : operation[fields.LAST]]):
        number, port = state.counts[fields.JOBS], proxy - blocks
        job = state.jobs[number]
        job[0] = code.ranks[block] if operation[fields.RELAXED] else thread_token(state, block, thread)
        job[1], job[2], job[3], job[4] = -1, -1, operation[fields.SIGNALS], at
        if thread < places:
            job[1], job[2] = (
                code.arguments[operation[fields.BEGIN] + thread],
                code.arguments[operation[fields.SPLIT] + thread],
            )
        state.counts[fields.JOBS] += 1
        state.job_queue[state.job_tails[port]] = number
        state.job_tails[port] += 1
        if state.job_tails[port] == state.job_heads[port] + 1:
            state.runnable[state.counts[fields.RUNNABLE]] = proxy
            state.counts[fields.RUNNABLE] += 1


@kernel
def _proxy_turn(code: Code, state: State, memory: IntArray, proxy: int) -> bool:
    """Do the next job of a proxy; False if there are no more."""
    port, process = proxy - len(code.firsts) + 1, state.processes[proxy]
    job = state.jobs[state.job_queue[state.job_heads[port]]]
    state.job_heads[port] += 1
    process[fields.COUNT] += 1
    found = state.tokens[job[0]]
    if job[1] >= 0:
        access(code, state, proxy, found, job[1], job[4], False)
        access(code, state, proxy, found, job[2], job[4], True)
        _copy(code, state, memory, job[1], job[2], job[4])
    if job[3] and code.others[port] < 0:
        state.counts[fields.STATUS], state.counts[fields.WHERE] = fields.NO_OTHER_END, port
    elif job[3]:
        _release(state, code.others[port], token(state, found[0], found[1], found[2], proxy, process[fields.COUNT]))
    return bool(state.job_heads[port] < state.job_tails[port])


@kernel
def _work(code: Code, state: State, memory: IntArray, block: int, operation: IntArray, at: int) -> None:
    """Copy or add up, all threads of a block together."""
    begin, split, end = operation[fields.BEGIN], operation[fields.SPLIT], operation[fields.END]
    # What all threads know, and not what the first one does: each of them does its share.
    found = state.tokens[
        token(state, state.processes[block, fields.ROW], block, state.processes[block, fields.SYNCED], -1, 0)
    ]
    state.counts[fields.TOKENS] -= 1
    for place in code.arguments[begin:split]:
        access(code, state, block, found, place, at, False)
    for place in code.arguments[split:end]:
        if not code.places[place, fields.SILENT]:
            access(code, state, block, found, place, at, True)
    if operation[fields.CODE] == fields.COPY:
        for number in range(end - split):
            _copy(code, state, memory, code.arguments[begin + number], code.arguments[split + number], at)
        return
    first, last = segments(code, code.arguments[split], at)
    total = np.zeros(code.edges[last] - code.edges[first], dtype=np.int64)
    for number in range(begin, end):
        place = code.arguments[number]
        if code.places[place, fields.BEYOND]:
            state.counts[fields.STATUS], state.counts[fields.WHERE] = fields.BEYOND_END, place
            return
        first, last = segments(code, place, at)
        if number < split:
            total += memory[code.edges[first] : code.edges[last]]
        else:
            memory[code.edges[first] : code.edges[last]] = total


@kernel
def _copy(code: Code, state: State, memory: IntArray, source: int, target: int, at: int) -> None:
    for place in (source, target):
        if code.places[place, fields.BEYOND]:
            state.counts[fields.STATUS], state.counts[fields.WHERE] = fields.BEYOND_END, place
            return
    first, last = segments(code, source, at)
    data = memory[code.edges[first] : code.edges[last]].copy()
    first, last = segments(code, target, at)
    memory[code.edges[first] : code.edges[last]] = data


@kernel
def ask_ends(code: Code, state: State, bounds: IntArray) -> None:
    """Ask for all accesses to the memory of each GPU at the end of its kernel.  `bounds`: elements, (ranks + 1,)."""
    blocks, segment = len(code.firsts) - 1, 0
    latest, where = np.zeros(len(code.ranks), dtype=np.int64), np.zeros(len(code.ranks), dtype=np.int64)
    for block in range(blocks):
        state.processes[block, fields.ROW] = joined_row(state, block, -1)
    for rank in range(len(bounds) - 1):
        for block in range(blocks):
            if code.ranks[block] == rank:
                part(state, state.processes[block, fields.ROW], block, state.processes[block, fields.COUNT], -1, 0)
        row = closed_row(state)
        latest[:] = 0
        while segment < len(code.edges) and code.edges[segment] < bounds[rank + 1]:
            process, step = state.writers[segment, 0], state.writers[segment, 1]
            node = state.reader_heads[segment]
            while process >= 0 or node >= 0:
                if process >= 0 and step > latest[process]:
                    latest[process], where[process] = step, segment
                process = -1
                if node >= 0:
                    process, step = state.readers[node, 0], state.readers[node, 1]
                    node = state.readers[node, 2]
            segment += 1
        for process in range(len(latest)):
            if latest[process]:
                query = state.queries[state.counts[fields.QUERIES]]
                query[0], query[1], query[2], query[3] = row, process, latest[process], -1
                query[4], query[5], query[6] = rank, fields.FINISH, where[process]
                state.counts[fields.QUERIES] += 1
