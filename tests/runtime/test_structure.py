"""What is no program, and arguments of other types than they should be: refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_forests import exchange, random_forest, ring_forest, with_block, with_step

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import (
    check_program,
    lower,
    run_local,
    run_program,
    to_xml_text,
    without_receive_reduce,
)
from collopt.runtime.msccl.export import export_msccl_xml

THINGS = [None, True, 2.5, "x", b"x", [], {}, object(), np.array([1, 2])]
PROGRAM = exchange()


def with_rank(**changes: Any) -> Any:
    """The program with another first rank."""
    return replace(PROGRAM, ranks=(replace(PROGRAM.ranks[0], **changes), PROGRAM.ranks[1]))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "the program's name": lambda thing: replace(PROGRAM, name=thing),
    "the program's collective": lambda thing: replace(PROGRAM, collective=thing),
    "num_ranks of the program": lambda thing: replace(PROGRAM, num_ranks=thing),
    "chunks_per_loop of the program": lambda thing: replace(PROGRAM, chunks_per_loop=thing),
    "the program's ranks": lambda thing: replace(PROGRAM, ranks=thing),
    "the program's in_place": lambda thing: replace(PROGRAM, in_place=thing),
    "the program's shards": lambda thing: replace(PROGRAM, shards=thing),
    "a shard of the program": lambda thing: replace(PROGRAM, shards=(1, thing)),
    "rank 0": lambda thing: replace(PROGRAM, ranks=(thing, PROGRAM.ranks[1])),
    "rank of rank 0": lambda thing: with_rank(rank=thing),
    "scratch_chunks of rank 0": lambda thing: with_rank(scratch_chunks=thing),
    "the thread blocks of rank 0": lambda thing: with_rank(thread_blocks=thing),
    "rank 0 thread block 0": lambda thing: with_rank(thread_blocks=(thing,)),
    "a peer of rank 0": lambda thing: with_block(PROGRAM, 0, 0, lambda old: replace(old, recv_peer=thing)),
    "channel of rank 0": lambda thing: with_block(PROGRAM, 0, 0, lambda old: replace(old, channel=thing)),
    "the instructions of": lambda thing: with_block(PROGRAM, 0, 0, lambda old: replace(old, instructions=thing)),
    "rank 0 thread block 0 step 0": lambda thing: with_step(PROGRAM, 0, 0, 0, lambda _: thing),
    "the kind of rank 0": lambda thing: with_step(PROGRAM, 0, 0, 0, lambda old: replace(old, kind=thing)),
    "count of rank 0": lambda thing: with_step(PROGRAM, 0, 0, 0, lambda old: replace(old, count=thing)),
    "a source or target of": lambda thing: with_step(PROGRAM, 0, 0, 0, lambda old: replace(old, target=thing)),
    "the waits of": lambda thing: with_step(PROGRAM, 0, 0, 0, lambda old: replace(old, depends=thing)),
    "a wait of": lambda thing: with_step(PROGRAM, 0, 0, 0, lambda old: replace(old, depends=(thing,))),
}  # fmt: skip
FITTING = {
    "the program's name": str,
    "the program's collective": str,
    "the kind of rank 0": str,
    "the program's in_place": bool,
    "a peer of rank 0": type(None),
    "a source or target of": type(None),
}


@pytest.mark.parametrize("where", CHANGES)
def test_a_field_of_another_type_is_named(where: str) -> None:
    """Wherever it is, whatever it holds."""
    check_program(PROGRAM)
    for thing in THINGS:
        if not isinstance(thing, FITTING.get(where, ())):
            with pytest.raises(ProgramError, match=f"{where}.* is .*; expected "):
                check_program(CHANGES[where](thing))


@pytest.mark.parametrize(
    "call", [check_program, run_program, to_xml_text, without_receive_reduce, run_local], ids=lambda call: call.__name__
)
def test_what_is_no_program_is_refused(call: Callable[[Any], object]) -> None:
    """By name of what is expected."""
    for thing in THINGS:
        with pytest.raises(UnsupportedError, match=r"is .*; expected a (Plan or a )?Program"):
            call(thing)


@pytest.mark.parametrize(
    ("call", "option", "fitting"),
    [
        (lambda value: lower(ring_forest(3), value), "there is no lowering for", ()),
        (lambda value: lower(ring_forest(3), "allgather", name=value), "name", (str, type(None))),
        (lambda value: lower(random_forest(3, 2, 0), "allgather", max_count=value), "max_count", ()),
        (lambda value: run_program(PROGRAM, seed=value), "seed", ()),
        (lambda value: run_program(PROGRAM, fifo_depth=value), "fifo_depth", ()),
        (lambda value: to_xml_text(PROGRAM, runtime=value), "runtime", ()),
        (lambda value: to_xml_text(PROGRAM, protocol=value), "protocol", (type(None),)),
        (lambda value: to_xml_text(PROGRAM, placement=value), "placement", (type(None),)),
        (lambda value: run_local(PROGRAM, backend=value), "backend", ()),
        (lambda value: run_local(PROGRAM, dtype=value), "dtype", ()),
        (lambda value: run_local(PROGRAM, op=value), "op", ()),
        (lambda value: run_local(PROGRAM, repeats=value), "repeats", ()),
        (lambda value: run_local(PROGRAM, timeout_s=value), "timeout_s", (float,)),
    ],
)
def test_options_of_other_types_are_refused(call: Callable[[Any], object], option: str, fitting: tuple[type]) -> None:
    """By their names, before anything is done."""
    for thing in THINGS:
        if not isinstance(thing, fitting):
            with pytest.raises(UnsupportedError, match=f"^{option}"):
                call(thing)


def test_what_is_no_plan_is_not_exported(tmp_path: Path) -> None:
    """And nothing is written."""
    for thing in THINGS:
        with pytest.raises(UnsupportedError, match=f"the plan is a {type(thing).__name__}; expected a Plan"):
            export_msccl_xml(thing, tmp_path / "file.xml")
    assert not list(tmp_path.iterdir())
