"""Execution of a list of sends on symbolic chunks, and its messages.

All sends of a step read what their senders have before the step.  A send waits for those of earlier steps that brought
its sender some of its chunks, and for nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import groupby

from ...errors import ProgramError
from ..interpreter.interpret import Contents, describe_contents, expected_outputs, symbolic_inputs
from ..programs.program import Program
from .messages import Messages
from .send_lists import Send, SendList


def empty_program(sends: SendList) -> Program:
    """Return a program without steps that has the list's chunks."""
    collective, ranks = sends.collective, sends.num_ranks
    shards = tuple(sends.chunks * (rank == sends.root) for rank in range(ranks)) if collective.has_one_root else ()
    parts = ranks**2 if collective.in_pairs else ranks if collective.is_sharded else 1
    return Program("sends", collective, ranks, sends.chunks * parts, (), shards=shards)


def check_sends(sends: SendList) -> None:
    """Execute the sends; raise `ProgramError` for a chunk that its sender does not have, or wrong data at the end."""
    program = empty_program(sends)
    inputs = symbolic_inputs(program)
    held: list[dict[int, Contents]] = []
    for rank, own in enumerate(inputs):
        begin, end = program.layout.input_range(rank)
        held.append(dict(zip(range(begin, end), own[:, 0], strict=True)))
    for step, group in groupby(sends.sends, key=lambda send: send.step):
        _run_step(step, list(group), held, program)
    for rank, expected in enumerate(expected_outputs(program, inputs)):
        for chunk, wanted in zip(program.layout.output_chunks(rank), expected[:, 0], strict=True):
            found = held[rank].get(chunk)
            if found != wanted:
                ends = "without it" if found is None else f"with {describe_contents(found, program)}"
                raise ProgramError(f"rank {rank} ends {ends}; expected {describe_contents(wanted, program)}")


def _run_step(step: int, sends: list[Send], held: list[dict[int, Contents]], program: Program) -> None:
    arrived: dict[tuple[int, int], tuple[Send, Contents]] = {}
    for send in sends:
        for chunk in range(send.first, send.first + send.length):
            what = held[send.sender].get(chunk)
            if what is None:
                raise ProgramError(
                    f"{send.where}: rank {send.sender} sends in step {step} {_name(chunk, program)}, which it does not "
                    "have then"
                )
            key = send.receiver, chunk
            if key in arrived:
                other, earlier = arrived[key]
                if send.adds and other.adds:
                    what = earlier + what
                elif send.adds or other.adds or earlier != what:
                    raise ProgramError(
                        f"{other.where} and {send.where} both bring rank {send.receiver} {_name(chunk, program)} in "
                        f"step {step}, not the same, so that either may win"
                    )
            arrived[key] = send, what
    for (receiver, chunk), (send, what) in arrived.items():
        before = held[receiver].get(chunk)
        held[receiver][chunk] = before + what if send.adds and before is not None else what


def _name(chunk: int, program: Program) -> str:
    """Name a chunk, by its owner if it has one."""
    layout = program.layout
    if not (layout.collective.is_sharded or layout.in_pairs):
        return f"chunk {chunk}"
    shard, inside = divmod(chunk, layout.shards[0])
    if not layout.in_pairs:
        return f"chunk {inside} of rank {shard}"
    source, target = divmod(shard, program.num_ranks)
    return f"chunk {inside} from rank {source} for rank {target}"


def send_messages(sends: SendList) -> Messages:
    """List the messages; their levels are the steps."""
    layout = empty_program(sends).layout
    messages = Messages(Fraction(sends.num_ranks if layout.in_pairs else 1, layout.chunks))
    # What has brought each rank each chunk, so far.
    arrivals: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for step, group in groupby(sends.sends, key=lambda send: send.step):
        brought = []
        for send in group:
            chunks = range(send.first, send.first + send.length)
            before = [each for chunk in chunks for each in arrivals[send.sender, chunk]]
            number = messages.send(send.sender, send.receiver, send.length, before, adds=send.adds)
            messages.levels[number] = step
            brought.append((send, number, chunks))
        for send, number, chunks in brought:
            for chunk in chunks:
                # A copy replaces what came before; sums need all that came.
                kept = arrivals[send.receiver, chunk] if send.adds else []
                arrivals[send.receiver, chunk] = [*kept, number]
    return messages
