"""What is measured side by side: plans, and the backend's own collectives, behind the same call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ....errors import UnsupportedError
from ....schedules import ALLGATHER, ALLREDUCE, REDUCE, REDUCE_SCATTER
from ....support.validation import shown
from ...distributed.execution.execute import execute
from ...distributed.processes.rendezvous import BACKENDS
from ...distributed.rounds.batches import works_in_place
from ...interpreter.check import check_program
from ...programs.layout import Layout
from ...programs.program import Program
from .buffers import Question


class Rival(Protocol):
    """Somebody who carries out a collective."""

    @property
    def name(self) -> str:
        """For reports."""

    def in_place(self, layout: Layout) -> bool:
        """Whether input and output may be the same memory, the smaller being its own part of the larger."""

    def run(self, question: Question, output: Any, mine: Any) -> None:
        """Do it, on every rank; on GPUs it need not be done yet when this returns."""


class PlanRival(NamedTuple):
    """A plan that `execute` runs."""

    name: str
    program: Program
    slices: int

    def in_place(self, layout: Layout) -> bool:
        """Whether the program is right then, too; `execute` has no all-to-all of this kind."""
        return not layout.in_pairs and works_in_place(self.program)

    def run(self, question: Question, output: Any, mine: Any) -> None:
        """Run the plan."""
        execute(self.program, output, mine, slices=self.slices, op=question.op)


class BackendRival(NamedTuple):
    """torch.distributed's own collective.

    Those that torch has in place only are preceded by a copy where output and input are apart.
    """

    name: str

    def in_place(self, layout: Layout) -> bool:
        """Whether torch allows it."""
        return not layout.in_pairs

    def run(self, question: Question, output: Any, mine: Any) -> None:
        """Call torch."""
        import torch.distributed as dist

        op = getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(question.op, question.op.upper()))
        # torch 2.13 renamed some.
        if question.collective is ALLGATHER:
            gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
            gather(output, mine)
        elif question.collective is REDUCE_SCATTER:
            scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
            scatter(output, mine, op=op)
        elif question.layout.in_pairs:
            dist.all_to_all_single(output, mine, list(question.parts_in), list(question.parts_out))
        else:
            if output.data_ptr() != mine.data_ptr() and question.has_input:
                output.copy_(mine)
            self._in_place(question, output, op)

    def _in_place(self, question: Question, tensor: Any, op: Any) -> None:
        import torch.distributed as dist

        if question.collective is ALLREDUCE:
            dist.all_reduce(tensor, op=op)
        elif question.collective is REDUCE:
            dist.reduce(tensor, question.layout.root, op=op)
        else:
            dist.broadcast(tensor, question.layout.root)


def comparable(programs: Mapping[str, Program]) -> tuple[tuple[str, Program], ...]:
    """Refuse programs that are wrong, or not about the same."""
    if not programs:
        raise UnsupportedError("there is no plan to measure; expected at least one")
    (name, first), *others = programs.items()
    for each, program in programs.items():
        check_program(program)
        if not isinstance(each, str) or not each or not each.isprintable():
            raise UnsupportedError(f"a plan is called {shown(each)}; expected a name for the last column of a table")
        if each in BACKENDS:
            raise UnsupportedError(f"a plan is called {each}, like a backend; give it another name")
    for other, program in others:
        for what, one, two in (
            ("ranks", first.num_ranks, program.num_ranks),
            ("collective", first.collective, program.collective),
            ("root", first.layout.root, program.layout.root),
        ):
            if one != two:
                raise UnsupportedError(f"{name} and {other} differ in {what}: {one} and {two}; measure them separately")
        if _shares(first) != _shares(program):
            raise UnsupportedError(f"{name} and {other} differ in the shares of the ranks; measure them separately")
    return tuple(programs.items())


def _shares(program: Program) -> tuple[int, ...]:
    """Shares of the ranks, or of the pairs of them, in lowest terms, where there are any."""
    return program.layout.parts if program.collective.is_sharded or program.layout.in_pairs else ()
