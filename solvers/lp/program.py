"""Interface of models to the solver: linear programs as arrays, their changes, and what solves of them return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ...support.arrays import FloatArray, IntArray
from ...support.linear_program import Labels, LinearProgram

if TYPE_CHECKING:
    import numpy.typing as npt

NAMES_LISTED, NAMES_SHOWN = 8, 3
LOWER, BASIC, UPPER = 0, 1, 2  # HiGHS's codes of these basis states; its further ones are for columns without bounds


class Basis:
    """A basis of HiGHS, read on first use, since that takes time and few solves need it."""

    def __init__(self, statuses: Any) -> None:
        self._found = statuses

    @cached_property
    def columns(self) -> IntArray:
        """State of every column."""
        return np.array([int(state) for state in self._found.col_status], dtype=np.int64)

    @cached_property
    def rows(self) -> IntArray:
        """State of every row."""
        return np.array([int(state) for state in self._found.row_status], dtype=np.int64)

    def moved(self, old: LinearProgram, new: LinearProgram) -> tuple[IntArray, IntArray]:
        """Transfer the states of this basis to blocks of the same name and shape in another program."""
        rows, columns = new.matrix.shape
        return (
            _moved(self.columns, old.variables, new.variables, np.full(columns, LOWER)),
            _moved(self.rows, old.constraints, new.constraints, np.full(rows, BASIC)),
        )

    def __getstate__(self) -> dict[str, IntArray]:
        """Drop the HiGHS object, so that a solution can be pickled."""
        return {"columns": self.columns, "rows": self.rows}


def _moved(states: IntArray, old: Mapping[str, Labels], new: Mapping[str, Labels], moved: IntArray) -> IntArray:
    for name, block in new.items():
        if name in old and old[name].positions.shape == block.positions.shape:
            moved[block.positions] = states[old[name].positions]
    return moved


class Named(Mapping[str, Any]):
    """Numbers by name of their block, arranged on access."""

    def __init__(self, kind: str, labels: Mapping[str, Labels], numbers: npt.NDArray[Any]) -> None:
        self._kind, self._labels, self._numbers = kind, labels, numbers

    def __getitem__(self, name: str) -> Any:
        if name not in self._labels:
            raise KeyError(f"there is no {self._kind} {name!r}; this model has {', '.join(self._labels)}")
        block = self._labels[name]
        return block.arrange(self._numbers[block.positions])

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __repr__(self) -> str:
        """List the names."""
        ending = len(self) - NAMES_LISTED
        listed = [*list(self)[:NAMES_LISTED], *([f"{ending} more"] if ending > 0 else [])]
        return f"<Named {self._kind}s: {', '.join(listed) or 'none'}>"

    def __len__(self) -> int:
        return len(self._labels)


class Evidence(NamedTuple):
    """Arrays that a solve returns, in the order of the program."""

    program: LinearProgram  # the program that was solved
    values: FloatArray  # per column
    duals: FloatArray  # per row
    reduced_costs: FloatArray  # per column
    basis: Basis | None  # of a linear program that was solved by simplex or with crossover


class Model(Protocol):
    """A model that `solve` accepts: of a formulation, or `Blocks`."""

    def linear_program(self) -> LinearProgram:
        """Return the current state of the model as arrays that are not changed afterwards."""


def named(blocks: Mapping[str, Labels], numbers: IntArray) -> str:
    """Name a few of the chosen columns or rows: one per block, the last blocks first, as users add those."""
    names: list[str] = []
    for block in reversed(list(blocks.values())):
        places = np.flatnonzero(np.isin(block.positions.ravel(), numbers))
        if len(places) and len(names) < NAMES_SHOWN:
            names.append(repr(block.label(int(places[0]))))
    ending = len(numbers) - len(names)
    return ", ".join(names) + (f" and {ending} more" if ending > 0 else "")
