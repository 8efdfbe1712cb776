"""Kernels that run execution plans: turns of thread blocks and proxies, the data that these move, and their events.

A turn is a row (process, operation, slice, thread).  A thread block runs its next operation, with -1 for the thread.
The proxy of a port channel serves its next request, and the thread is the one that made it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray, SmallArray
from ...support.kernels import kernel, kernel_with
from .code import (
    BEGIN,
    BEYOND,
    CALL,
    CODE,
    COPY,
    END,
    FIRST_PACKET,
    JOB,
    LAST,
    LAST_PACKET,
    LOOP,
    NOP,
    PIPED,
    RELAXED,
    SIGNAL,
    SIGNALS,
    SIZE,
    SPLIT,
    START,
    STRIDE,
    SUM,
    UNIT,
    WAIT,
    Code,
)

PROCESS, OPERATION, SLICE, THREAD = range(4)
"""Columns of turns."""
RUNNABLE, TURNS, NO_END = range(3)
"""Counts of a run: of runnable processes, of turns, and number of a channel without another end, or -1."""
THREADS = 2**16
"""A request is its turn times this, plus its thread."""


class Queues(NamedTuple):
    """First-in first-out queues of numbers: `firsts` and `lasts` (queues,); `values` and `following` (entries,)."""

    firsts: IntArray
    lasts: IntArray
    values: IntArray
    following: IntArray
    used: IntArray  # (1,)

    @classmethod
    def of(cls, queues: int, entries: int) -> Queues:
        """Make empty queues, with room for so many entries in all."""
        firsts, lasts = np.full((2, queues), -1)
        values, following = np.empty((2, entries), dtype=np.int64)
        return cls(firsts, lasts, values, following, np.zeros(1, dtype=np.int64))


@kernel
def push(queues: Queues, number: int, value: int) -> None:
    """Append a value to a queue."""
    entry = queues.used[0]
    queues.used[0] += 1
    queues.values[entry] = value
    if queues.firsts[number] < 0:
        queues.firsts[number] = entry
    else:
        queues.following[queues.lasts[number]] = entry
    queues.lasts[number] = entry


@kernel
def pop(queues: Queues, number: int) -> int:
    """Return the first value of a queue that is not empty."""
    entry = queues.firsts[number]
    queues.firsts[number] = -1 if entry == queues.lasts[number] else queues.following[entry]
    return int(queues.values[entry])


class Run(NamedTuple):
    """State of a run: the turns so far, and the position of each process.

    Shapes: `turns` (turns, 4); `at`, `slices` and `sleeping`, the next block that sleeps for the same (blocks,);
    `runnable` (processes,); `signals` (resources,) and `sleepers`, the first block that sleeps for each of them and of
    the packets; `flags`: the last call that wrote each packet, 0 for none; `counts` (3,).
    """

    turns: SmallArray
    at: IntArray
    slices: IntArray
    sleeping: IntArray
    runnable: IntArray
    signals: IntArray
    sleepers: IntArray
    flags: IntArray
    requests: Queues  # To each proxy
    counts: IntArray

    @classmethod
    def of(cls, code: Code, initial: IntArray) -> Run:
        """Return the state before the first turn."""
        blocks, resources = len(code.firsts) - 1, len(initial)
        requests = code.executions * (code.operations[:, CODE] == JOB)
        room = int((code.executions + requests * (code.operations[:, LAST] - code.operations[:, END])).sum())
        return cls(
            turns=np.empty((room, 4), dtype=np.int32),
            at=code.firsts[:-1].copy(),
            slices=np.zeros(blocks, dtype=np.int64),
            sleeping=np.full(blocks, -1),
            runnable=np.arange(len(code.ranks)),
            signals=initial.copy(),
            sleepers=np.full(resources + code.packets, -1),
            flags=np.zeros(code.packets, dtype=np.int64),
            requests=Queues.of(len(code.other_ends), room),
            counts=np.array([blocks, 0, -1]),
        )


@kernel_with(lambda _code, run, _seed: 60 * len(run.turns))
def run_turns(code: Code, run: Run, seed: int) -> None:
    """Take turns at random until all processes have finished or wait, or one signals where there is no other end."""
    random, blocks = np.uint64(seed), len(run.at)
    while run.counts[RUNNABLE] > 0 and run.counts[NO_END] < 0:
        # Knuth's linear congruential generator
        random = random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        place = np.int64((random >> np.uint64(33)) % np.uint64(run.counts[RUNNABLE]))
        process = run.runnable[place]
        goes_on = _block_turn(code, run, process) if process < blocks else _proxy_turn(code, run, process)
        if not goes_on:
            run.counts[RUNNABLE] -= 1
            run.runnable[place] = run.runnable[run.counts[RUNNABLE]]


@kernel
def _block_turn(code: Code, run: Run, block: int) -> bool:
    """Run the next operation of a block; False if there is none, or it has to wait."""
    at, blocks = run.at[block], len(run.at)
    if at == code.firsts[block + 1]:
        return False
    operation = code.operations[at]
    numbers = code.arguments[operation[END] : operation[LAST]]
    missing = _missing_signal(code, run, at)
    if missing >= 0:
        run.sleeping[block], run.sleepers[missing] = run.sleepers[missing], block
        return False
    turn = run.counts[TURNS]
    row = run.turns[turn]
    row[PROCESS], row[OPERATION], row[THREAD] = block, at, -1
    row[SLICE] = run.slices[block] if operation[PIPED] else -1
    run.counts[TURNS] += 1
    # A pipeline begins again until all slices are through.
    if operation[LOOP] >= 0 and run.slices[block] + 1 < code.slices:
        run.slices[block], run.at[block] = run.slices[block] + 1, operation[LOOP]
    else:
        run.slices[block] = 0 if operation[LOOP] >= 0 else run.slices[block]
        run.at[block] += 1
    _flag_targets(code, run, at)
    for thread, number in enumerate(numbers):
        if operation[CODE] == WAIT:
            run.signals[number] -= 1
        elif operation[CODE] == SIGNAL:
            _signal(run, number)
        else:
            if run.requests.firsts[number - blocks] < 0:
                _wake(run, number)
            push(run.requests, number - blocks, turn * THREADS + thread)
    return True


@kernel
def _proxy_turn(code: Code, run: Run, proxy: int) -> bool:
    """Serve the next request to a proxy; False if there are no more."""
    port = proxy - len(run.at)
    request, row = pop(run.requests, port), run.turns[run.counts[TURNS]]
    row[:] = run.turns[request // THREADS]
    row[PROCESS], row[THREAD] = proxy, request % THREADS
    run.counts[TURNS] += 1
    operation, thread = code.operations[row[OPERATION]], row[THREAD]
    if thread < operation[SPLIT] - operation[BEGIN]:
        # A copy of packets that are not there yet has no valid flags.
        source, call = code.places[code.arguments[operation[BEGIN] + thread]], code.calls[row[OPERATION]]
        for packet in range(source[FIRST_PACKET], source[LAST_PACKET]):
            if run.flags[packet] != code.calls[row[OPERATION]]:
                call = 0
        _flag(code, run, code.arguments[operation[SPLIT] + thread], call)
    if operation[SIGNALS]:
        _signal(run, code.other_ends[port])
    if operation[SIGNALS] == 2:
        _signal(run, code.flushes[port])
    return bool(run.requests.firsts[port] >= 0)


@kernel
def _signal(run: Run, number: int) -> None:
    """Give a resource a signal, and wake the blocks that sleep for it."""
    if number < 0:
        run.counts[NO_END] = -1 - number
        return
    run.signals[number] += 1
    _wake_sleepers(run, number)


@kernel
def _missing_signal(code: Code, run: Run, at: int) -> int:
    """Return a resource without a signal for an operation, or, after them, a packet not written in its call, or -1."""
    operation = code.operations[at]
    if operation[CODE] == WAIT:
        for number in code.arguments[operation[END] : operation[LAST]]:
            if run.signals[number] <= 0:
                return int(number)
    if operation[CODE] not in (COPY, SUM):
        return -1
    for argument in range(code.operations[at, BEGIN], code.operations[at, SPLIT]):
        place = code.places[code.arguments[argument]]
        for packet in range(place[FIRST_PACKET], place[LAST_PACKET]):
            if run.flags[packet] != code.calls[at]:
                return len(run.signals) + packet
    return -1


@kernel
def _flag_targets(code: Code, run: Run, at: int) -> None:
    """Set the flags of all packets that a block writes."""
    if code.operations[at, CODE] in (COPY, SUM):
        for argument in range(code.operations[at, SPLIT], code.operations[at, END]):
            _flag(code, run, code.arguments[argument], code.calls[at])


@kernel
def _flag(code: Code, run: Run, place: int, call: int) -> None:
    """Set the flags of all packets of a place, and wake who waits for them."""
    for packet in range(code.places[place, FIRST_PACKET], code.places[place, LAST_PACKET]):
        run.flags[packet] = call
        _wake_sleepers(run, len(run.signals) + packet)


@kernel
def _wake_sleepers(run: Run, number: int) -> None:
    block, run.sleepers[number] = run.sleepers[number], -1
    while block >= 0:
        _wake(run, block)
        block = run.sleeping[block]


@kernel
def _wake(run: Run, process: int) -> None:
    run.runnable[run.counts[RUNNABLE]] = process
    run.counts[RUNNABLE] += 1


@kernel_with(lambda _code, turns, _memory: 30 * len(turns))
def move_data(code: Code, turns: SmallArray, memory: IntArray) -> tuple[int, int]:
    """Copy and add up; return how many turns went well, and a place beyond the end of its allocation, or -1."""
    for number in range(len(turns)):
        operation, at, thread = code.operations[turns[number, OPERATION]], turns[number, SLICE], turns[number, THREAD]
        begin, split, end = operation[BEGIN], operation[SPLIT], operation[END]
        if operation[CODE] == JOB and not 0 <= thread < split - begin:
            continue  # A proxy copies, not the block that requests it; some only signal.
        for argument in range(begin, end):
            place = code.arguments[argument]
            is_own = operation[CODE] != JOB or argument in (begin + thread, split + thread)
            if is_own and code.places[place, BEYOND]:
                return number, place
        if operation[CODE] == SUM:
            low, high, step = _span(code, code.arguments[begin], at)
            total = np.zeros((high - low) // step, dtype=np.int64)
            for argument in range(begin, end):
                low, high, step = _span(code, code.arguments[argument], at)
                if argument < split:
                    total += memory[low:high:step]
                else:
                    memory[low:high:step] = total
            continue
        for copied in range(end - split):
            if operation[CODE] == COPY or copied == thread:
                low, high, step = _span(code, code.arguments[begin + copied], at)
                data = memory[low:high:step].copy()
                low, high, step = _span(code, code.arguments[split + copied], at)
                memory[low:high:step] = data
    return len(turns), -1


@kernel
def _span(code: Code, place: int, at: int) -> tuple[int, int, int]:
    """First element, the one after the last, and the step, of a slice of a place, or of the whole place (-1)."""
    start, unit, step = code.places[place, START], code.places[place, UNIT], code.places[place, STRIDE]
    if at < 0:
        return start, start + code.places[place, SIZE] * step, step
    return start + unit * at, start + unit * (at + 1), step


class Events(NamedTuple):
    """Events of a run, the first four fields as in `EventGraph`: starts of GPUs first, their ends last.

    `of_turns`, `steps_of_turns` (turns,): the event with what each turn knows, and its number among the turns of its
    process; `knowledge` (blocks, threads + 1): the event with what each thread of a block knows, and all of them;
    `tokens`: events of the signals of each resource and the requests to each proxy; `last_tokens` (resources,): the
    last one; `started` (ranks,): with which the call of a GPU began; `packets` (packets,): of the last write of each,
    and `last_packets` (processes,): of each process, whose packets are steps of a process of their own, as they show
    nothing but themselves; `used` (2,): events and `before`.
    """

    processes: IntArray
    steps: IntArray
    starts: IntArray
    before: IntArray
    of_turns: IntArray
    steps_of_turns: IntArray
    knowledge: IntArray
    tokens: Queues
    last_tokens: IntArray
    started: IntArray
    packets: IntArray
    last_packets: IntArray
    used: IntArray

    @classmethod
    def of(cls, code: Code, turns: SmallArray, initial: IntArray) -> Events:
        """Make room for the events of some turns."""
        operations = code.operations[turns[:, OPERATION]]
        lengths = operations[:, LAST] - operations[:, END]
        waits, blocks = int(lengths[operations[:, CODE] == WAIT].sum()), len(code.firsts) - 1
        widths = code.places[:, LAST_PACKET] - code.places[:, FIRST_PACKET]
        of_arguments = np.concatenate([widths, [0]])[np.clip(code.arguments, 0, len(widths))]
        read = np.concatenate([[0], np.cumsum(of_arguments)])
        packets = int((read[operations[:, SPLIT]] - read[operations[:, BEGIN]]).sum())
        tokens = int(lengths.sum()) + 2 * len(turns)
        size = 2 * code.num_ranks + blocks + 4 * len(turns) + waits + tokens
        threads = int((code.operations[:, LAST] - code.operations[:, END]).max(initial=1))
        return cls(
            processes=np.full(size, -1),
            steps=np.zeros(size, dtype=np.int64),
            starts=np.zeros(size + 1, dtype=np.int64),
            before=np.empty(3 * waits + 7 * len(turns) + 3 * blocks + 2 * tokens + packets, dtype=np.int64),
            of_turns=np.full(len(turns), -1),
            steps_of_turns=np.zeros(len(turns), dtype=np.int64),
            knowledge=np.repeat(code.ranks[:blocks, None], threads + 1, axis=1),
            tokens=Queues.of(len(initial) + len(code.other_ends), int(initial.sum()) + tokens),
            last_tokens=np.full(len(initial), -1),
            started=np.arange(code.num_ranks),
            packets=np.full(code.packets, -1),
            last_packets=np.full(len(code.ranks), -1),
            used=np.zeros(2, dtype=np.int64),
        )


@kernel_with(lambda _code, turns, _initial, _events, _executed: 60 * len(turns))
def write_events(code: Code, turns: SmallArray, initial: IntArray, events: Events, executed: int) -> None:
    """Write the events of turns; a GPU that has started is a process of its own, after those of the code.

    With 1 for `executed`, relaxed signals and packets tell of all that was executed before them, as for reads; with 0
    only of what can be seen in memory.
    """
    blocks, resources, counts = len(code.firsts) - 1, len(initial), np.zeros(len(code.ranks), dtype=np.int64)
    for rank in range(code.num_ranks):
        _event(events, len(code.ranks) + rank, 1)
    for resource in range(resources):
        for _ in range(initial[resource]):
            push(events.tokens, resource, -1)
    for turn in range(len(turns)):
        process, operation = turns[turn, PROCESS], code.operations[turns[turn, OPERATION]]
        counts[process] += 1
        events.steps_of_turns[turn] = counts[process]
        if process < blocks:
            # All threads share the work, so it only knows what all of them know.
            events.of_turns[turn] = events.knowledge[process, -1]
            _block_events(code, events, process, operation, counts[process], resources, executed)
            if operation[CODE] in (COPY, SUM):
                _read_packets(code, events, turn, process, operation)
                last_event = events.knowledge[process, -1] if executed else -1
                _write_packets(code, events, process, counts[process], operation[SPLIT], operation[END], last_event)
            continue
        # A proxy knows what the requesting thread knows, and its own turns.
        _after(events, pop(events.tokens, resources + process - blocks))
        events.of_turns[turn] = _event(events, process, counts[process])
        if turns[turn, THREAD] < operation[SPLIT] - operation[BEGIN]:
            target = operation[SPLIT] + turns[turn, THREAD]
            last_event = events.of_turns[turn] if executed else -1
            _write_packets(code, events, process, counts[process], target, target + 1, last_event)
        if operation[SIGNALS]:
            _give(events, code.other_ends[process - blocks], events.of_turns[turn])
        if operation[SIGNALS] == 2:
            _give(events, code.flushes[process - blocks], events.of_turns[turn])
    _write_ends(code, counts, events)


@kernel
def _block_events(
    code: Code, events: Events, block: int, operation: IntArray, step: int, resources: int, executed: int
) -> None:
    """Write the events of a turn of a block."""
    if operation[CODE] in (NOP, CALL):
        _meet(events, block, step)
        if operation[CODE] == CALL:
            events.started[code.ranks[block]] = events.knowledge[block, -1]
    elif operation[CODE] == WAIT:
        _take(code, events, block, operation)
    elif operation[CODE] in (SIGNAL, JOB):
        offset = resources - len(code.firsts) + 1 if operation[CODE] == JOB else 0
        for thread, number in enumerate(code.arguments[operation[END] : operation[LAST]]):
            # A relaxed signal keeps no accesses in order; its arrival alone shows that this GPU has started.
            is_start = operation[RELAXED] and not executed
            token = events.started[code.ranks[block]] if is_start else events.knowledge[block, thread]
            _give(events, number + offset, token)


@kernel
def _read_packets(code: Code, events: Events, turn: int, block: int, operation: IntArray) -> None:
    """Let a block know of the packets that it waits for, and of the starts of who wrote them."""
    has_packets = False
    for argument in range(operation[BEGIN], operation[SPLIT]):
        place, last = code.places[code.arguments[argument]], -1
        for packet in range(place[FIRST_PACKET], place[LAST_PACKET]):
            has_packets = True
            if events.packets[packet] != last:
                last = events.packets[packet]
                _after(events, last)
    if has_packets:
        _after(events, events.knowledge[block, -1])
        events.knowledge[block, -1] = events.of_turns[turn] = _event(events, -1, 0)


@kernel
def _write_packets(
    code: Code, events: Events, process: int, step: int, begin: int, end: int, event_before: int
) -> None:
    """Write the event of the packets among some arguments; they tell of the reads before `event_before`, or -1."""
    event = -1
    for argument in range(begin, end):
        place = code.places[code.arguments[argument]]
        for packet in range(place[FIRST_PACKET], place[LAST_PACKET]):
            if event < 0:
                _after(events, events.started[code.ranks[process]])
                _after(events, events.last_packets[process])
                event = _event(events, len(code.ranks) + code.num_ranks + process, step)
                if event_before >= 0:
                    _after(events, event)
                    _after(events, event_before)
                    event = _event(events, process, step)
            events.packets[packet] = event
    events.last_packets[process] = event if event >= 0 else events.last_packets[process]


@kernel
def _write_ends(code: Code, counts: IntArray, events: Events) -> None:
    """Write the ends of all blocks, then those of all GPUs; `counts`: turns of each process."""
    blocks = len(code.firsts) - 1
    for block in range(blocks):
        _meet(events, block, counts[block])
    for rank in range(code.num_ranks):
        for block in range(blocks):
            if code.ranks[block] == rank:
                _after(events, events.knowledge[block, -1])
        _event(events, -1, 0)


@kernel
def _take(code: Code, events: Events, block: int, operation: IntArray) -> None:
    """Let threads of a block know of the signals that they wait for."""
    for thread, number in enumerate(code.arguments[operation[END] : operation[LAST]]):
        token = pop(events.tokens, number)
        if token >= 0:
            _after(events, events.knowledge[block, thread])
            _after(events, token)
            events.knowledge[block, thread] = _event(events, -1, 0)


@kernel
def _event(events: Events, process: int, step: int) -> int:
    """Close an event, which comes after those added by `_after` since the last one, and return its number."""
    event = events.used[0]
    events.processes[event], events.steps[event], events.starts[event + 1] = process, step, events.used[1]
    events.used[0] += 1
    return int(event)


@kernel
def _after(events: Events, event: int) -> None:
    events.before[events.used[1]] = event
    events.used[1] += 1


@kernel
def _meet(events: Events, block: int, step: int) -> None:
    """Synchronize the threads of a block: all know what each of them knows, and their turns up to a step."""
    row = events.knowledge[block]
    _after(events, row[-1])
    _after(events, events.last_packets[block])
    for thread in range(len(row) - 1):
        if row[thread] != row[-1]:
            _after(events, row[thread])
    row[:] = _event(events, block, step)


@kernel
def _give(events: Events, number: int, token: int) -> None:
    """Attach an event to the next signal of a resource."""
    if number < 0:
        return
    if number < len(events.last_tokens):
        # Signals add to one counter, so that who sees one knows what all before it showed.
        if events.last_tokens[number] not in (-1, token):
            _after(events, events.last_tokens[number])
            _after(events, token)
            token = _event(events, -1, 0)
        events.last_tokens[number] = token
    push(events.tokens, number, token)
