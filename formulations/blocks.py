"""Linear programs as named blocks over sparse arrays, for 10^5 to 10^6 columns or many small programs in a loop.

A block of variables is an array of column numbers, and one of constraints is a few arrays of rows, columns and
coefficients that broadcast against each other; models to be read and extended are in Pyomo.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..support.arrays import FloatArray, IntArray
from ..support.linear_program import LinearProgram
from ..support.validation import is_whole, shown
from .pyomo_model import model_text

Numbers = npt.ArrayLike
Shape = int | tuple[int, ...]
Triplet = tuple[IntArray, IntArray, FloatArray]
Terms = Sequence[tuple[npt.ArrayLike, Numbers]]
"""``(columns, coefficients)`` pairs that broadcast against each other; their products are summed."""
RowTerms = Sequence[tuple[npt.ArrayLike, npt.ArrayLike, Numbers]]
"""``(rows, columns, coefficients)``, likewise."""

MAX_ENTRIES = 10**8  # limit of variables or constraints in one block, for the memory of a solver


def as_floats(values: Numbers, what: str, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Read numbers as floats, and broadcast them to a shape if one is given."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise UnsupportedError(f"{what} is {shown(values)}; expected numbers within the range of floats") from None
    if np.isnan(numbers).any():
        raise UnsupportedError(f"{what} is not a number; use infinity for no bound, and leave out what is not known")
    try:
        return numbers if shape is None else np.broadcast_to(numbers, shape)
    except ValueError:
        raise UnsupportedError(f"{what} has shape {numbers.shape}; expected {shape}") from None


def _as_shape(shape: Shape) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not all(is_whole(size) and size >= 0 for size in sizes) or prod(map(int, sizes)) > MAX_ENTRIES:
        raise UnsupportedError(
            f"the shape of a block is {shown(shape)}; expected whole numbers of at least 0, and at most {MAX_ENTRIES} "
            "entries"
        )
    return tuple(int(size) for size in sizes)


def _as_tuples(terms: object, size: int, what: str) -> list[tuple[Any, ...]]:
    """Read terms as a list of tuples of a size: ``(columns, coefficients)``, or those of several rows."""
    if not isinstance(terms, Iterable) or isinstance(terms, (str, bytes, Mapping, np.ndarray)):
        raise UnsupportedError(f"the terms of {what} are {shown(terms)}; expected a list of tuples")
    tuples = list(terms)
    for term in tuples:
        if not isinstance(term, tuple) or len(term) != size:
            parts = ("rows", "columns", "coefficients")[-size:]
            raise UnsupportedError(f"a term of {what} is {shown(term)}; expected ({', '.join(parts)})")
    return tuples


def _as_places(values: npt.ArrayLike, size: int, what: str) -> IntArray:
    """Read rows or columns from 0 to below `size`."""
    places = np.asarray(values)
    if places.size and not np.issubdtype(places.dtype, np.integer):
        raise UnsupportedError(f"{what} is of type {places.dtype}; expected whole numbers")
    outside = places[(places < 0) | (places >= size)]
    if outside.size:
        raise UnsupportedError(f"{what} is {int(outside.flat[0])}; expected 0 to {size - 1}")
    return places.astype(np.int64)


class Block(NamedTuple):
    """The columns or rows of one name."""

    name: str
    positions: IntArray  # columns or rows, in the block's shape

    def arrange(self, values: FloatArray) -> FloatArray:
        """Return `values` as they are: an array of the block's shape."""
        return values

    def to_array(self, values: Numbers) -> FloatArray:
        """Return `values` as an array of the block's shape, to which they broadcast."""
        return as_floats(values, f"the start of {self.name!r}", self.positions.shape)

    def label(self, place: int) -> str:
        """Name one entry by its index."""
        index = np.unravel_index(place, self.positions.shape)
        return f"{self.name}[{','.join(str(number) for number in index)}]" if index else self.name


class Blocks:
    """A linear program that grows block by block.

    Parameters
    ----------
    name : str
        For messages.

    Examples
    --------
    Two goods from one supply of 4, the first worth more but limited to 3:

    >>> from collopt import solve
    >>> blocks = Blocks("goods")
    >>> amount = blocks.variables("amount", 2, upper=[3, np.inf])
    >>> blocks.constraint("supply", (), [(0, amount, 1)], upper=4)
    >>> blocks.maximize([(amount, [2, 1])])
    >>> solution = solve(blocks)
    >>> solution.objective, solution.values["amount"].tolist(), float(solution.duals["supply"])
    (7.0, [3.0, 1.0], 1.0)
    """

    def __init__(self, name: str = "block model") -> None:
        self.name = name
        self._columns, self._rows = _Side("variable"), _Side("constraint")
        self._entries: list[Triplet] = []
        self._costs: tuple[IntArray, FloatArray] = (np.empty(0, dtype=np.int64), np.empty(0))
        self._maximize = False
        self._integral = [np.empty(0, dtype=np.int64)]

    def variables(
        self, name: str, shape: Shape, *, lower: Numbers = 0.0, upper: Numbers = np.inf, integral: bool = False
    ) -> IntArray:
        """Add a block of variables, and return their column numbers in the block's shape: what terms refer to.

        Parameters
        ----------
        name : str
            New among the variables.
        shape : int or tuple of int
            Of the block, at most 10^8 entries; ``()`` for a single variable.
        lower, upper : array_like
            Bounds that broadcast to the shape.
        integral : bool
            Whether they can only be integers.
        """
        columns = self._columns.add(name, shape, lower, upper)
        if integral:
            self._integral.append(columns.ravel())
        return columns

    def constraint(
        self, name: str, shape: Shape, terms: RowTerms, *, lower: Numbers = -np.inf, upper: Numbers = np.inf
    ) -> None:
        """Add a block of constraints, ``lower <= sum of terms <= upper``.

        Parameters
        ----------
        name : str
            New among the constraints.
        shape : int or tuple of int
            Of the block; ``()`` for a single constraint.
        terms : sequence of tuple
            ``(rows, columns, coefficients)``, which broadcast against each other: `rows` are places in the flattened
            block, `columns` are numbers from `variables`.  Entries of one place are summed.
        lower, upper : array_like
            Bounds that broadcast to the shape.
        """
        triplets = self._triplets(f"constraint {name!r}", prod(_as_shape(shape)), terms)
        positions = self._rows.add(name, shape, lower, upper)
        start = int(positions.flat[0]) if positions.size else 0
        self._entries += [(rows + start, columns, numbers) for rows, columns, numbers in triplets]

    def extend(self, name: str, terms: RowTerms) -> None:
        """Add terms to a block of constraints, such as variables that came after it in column generation.

        Parameters as for `constraint`.
        """
        if name not in self._rows.blocks:
            raise UnsupportedError(f"there is no constraint {name!r} to extend; state it first")
        rows = self._rows.blocks[name].positions.ravel()
        for places, columns, numbers in self._triplets(f"constraint {name!r}", rows.size, terms):
            self._entries.append((rows[places], columns, numbers))

    def minimize(self, terms: Terms) -> None:
        """Replace the objective by the least sum of ``(columns, coefficients)`` terms."""
        self._costs, self._maximize = self._objective(terms), False

    def maximize(self, terms: Terms) -> None:
        """Replace the objective by the greatest sum of ``(columns, coefficients)`` terms."""
        self._costs, self._maximize = self._objective(terms), True

    @property
    def columns(self) -> dict[str, IntArray]:
        """Column numbers of all variables, by the names of their blocks."""
        return {name: block.positions for name, block in self._columns.blocks.items()}

    def linear_program(self) -> LinearProgram:
        """Return the program as it stands, as arrays."""
        from scipy.sparse import coo_array

        rows, columns, numbers = _joined(self._entries)
        matrix = coo_array((numbers, (rows, columns)), shape=(self._rows.size, self._columns.size)).tocsc()
        integral = np.zeros(self._columns.size, dtype=np.bool_)
        integral[np.concatenate(self._integral)] = True
        costs = np.bincount(self._costs[0], weights=self._costs[1], minlength=self._columns.size).astype(np.float64)
        blocks = dict(self._columns.blocks), dict(self._rows.blocks)
        bounds = self._rows.bounds(), self._columns.bounds()
        return LinearProgram(self.name, self._maximize, costs, 0.0, matrix, *bounds, integral, *blocks)

    def _triplets(self, what: str, size: int, terms: RowTerms) -> list[Triplet]:
        """Read terms and broadcast each."""
        triplets = []
        for term in _as_tuples(terms, 3, what):
            rows = _as_places(term[0], size, f"a row of {what}")
            columns = _as_places(term[1], self._columns.size, f"a column of {what}")
            numbers = as_floats(term[2], f"a coefficient of {what}")
            if not np.isfinite(numbers).all():
                raise UnsupportedError(f"a coefficient of {what} is not finite; expected a number")
            try:
                flat = np.broadcast_arrays(rows, columns, numbers)
            except ValueError:
                shapes = f"{rows.shape}, {columns.shape} and {numbers.shape}"
                raise UnsupportedError(
                    f"a term of {what} has shapes {shapes}, which do not broadcast; reshape one"
                ) from None
            triplets.append((flat[0].ravel(), flat[1].ravel(), flat[2].ravel()))
        return triplets

    def _objective(self, terms: Terms) -> tuple[IntArray, FloatArray]:
        # The objective is one more row.
        return _joined(self._triplets("the objective", 1, _in_one_row(terms, "the objective")))[1:]


class _Side:
    """The columns or the rows: blocks one after the other, with their bounds."""

    def __init__(self, kind: str) -> None:
        self.kind, self.size = kind, 0
        self.blocks: dict[str, Block] = {}
        self._bounds: list[tuple[FloatArray, FloatArray]] = []

    def add(self, name: str, shape: Shape, lower: Numbers, upper: Numbers) -> IntArray:
        if not isinstance(name, str) or not name:
            raise UnsupportedError(f"the name of a {self.kind} block is {name!r}; expected text")
        if name in self.blocks:
            raise UnsupportedError(f"{self.kind} {name!r} exists already; choose another name")
        sizes, what = _as_shape(shape), f"a bound of {self.kind} {name!r}"
        self._bounds.append((as_floats(lower, what, sizes).ravel(), as_floats(upper, what, sizes).ravel()))
        count = prod(sizes)
        positions = np.arange(self.size, self.size + count, dtype=np.int64).reshape(sizes)
        positions.flags.writeable = False
        self.blocks[name] = Block(name, positions)
        self.size += count
        return positions

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        lower, upper = zip((np.empty(0), np.empty(0)), *self._bounds, strict=True)
        return np.concatenate(lower), np.concatenate(upper)


def _in_one_row(terms: Terms, what: str) -> list[tuple[int, npt.ArrayLike, Numbers]]:
    return [(0, columns, numbers) for columns, numbers in _as_tuples(terms, 2, what)]


def _joined(entries: Sequence[Triplet]) -> Triplet:
    none = np.empty(0, dtype=np.int64)
    rows, columns, numbers = zip((none, none, np.empty(0)), *entries, strict=True)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(numbers)


@dataclass(frozen=True, eq=False, repr=False)
class BlockModel:
    """A linear program in blocks, to which constraints can be added and whose objective can be replaced."""

    blocks: Blocks  # for whole blocks of variables or constraints; what is added counts from the next solve on

    @property
    def variables(self) -> Any:
        """Column numbers as attributes, by the variables' names in the formulation's table, in the blocks' shapes."""
        return SimpleNamespace(**self.blocks.columns)

    def constrain(self, name: str, terms: Terms, *, lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add a constraint."""
        self.blocks.constraint(name, (), _in_one_row(terms, f"constraint {name!r}"), lower=lower, upper=upper)

    def maximize(self, terms: Terms) -> None:
        """Replace the objective by the greatest sum of the terms; `UnsupportedError` as for `constrain`."""
        self.blocks.maximize(terms)

    def minimize(self, terms: Terms) -> None:
        """Replace the objective by the least sum of the terms; `UnsupportedError` as for `constrain`."""
        self.blocks.minimize(terms)

    def __repr__(self) -> str:
        """One line in angle brackets, with the sizes of variables and constraints."""
        sides = (("variables", self.blocks._columns), ("constraints", self.blocks._rows))
        parts = [(kind, [(name, block.positions.size) for name, block in side.blocks.items()]) for kind, side in sides]
        return model_text(self, self.blocks.name, parts)

    def linear_program(self) -> LinearProgram:
        """Return the program as it stands, as the arrays that `collopt.solve` reads."""
        return self.blocks.linear_program()
