"""`Collective`: the data of every rank before and after a collective operation."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from math import lcm
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import ColloptError, TopologyError, UnsupportedError
from ..support.arrays import IntArray
from ..support.quantities import as_amount
from ..support.validation import as_kind, as_whole, shown

CollectiveName = Literal["allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all", "all_to_allv"]
"""Names of the built-in collectives."""

Direction = Literal["broadcast", "reduce"]
"""Whether data runs away from roots, copied on its way, or towards them, reduced on its way."""

Pattern = Literal["every root", "one root", "pairs", "items"]
"""Whose data moves: that of every rank, that of one, something else from each rank for each, or any items."""

Holding = Literal["shard", "all", "parts", "items"]
"""A rank's own shard, which only the root has if there is one root; all; a part for, or from, each rank; items."""

MAX_UNITS = 2**53  # units at most of all parts together
FLOAT_UNITS = 2**40  # units of all parts together where floats are rounded
FLOATS = (float, np.floating)
DECIMAL = re.compile(r"\+?([0-9]{1,64}\.?[0-9]{0,64}|\.[0-9]{1,64})(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
"""How numbers of at least 0 are written that are read with all their digits."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
COMPARED_RANKS = 8  # How many ranks' traffic shows whether two collectives are each other's reverse


@dataclass(frozen=True, repr=False)
class Collective:
    """A collective operation: the data of each rank before and after it; `COLLECTIVES` has all of them by name.

    Attributes
    ----------
    name : str
        As users, plan files and messages call it.
    pattern : {"every root", "one root", "pairs"}
        Whose data moves: that of every rank, that of one root, or something else from each rank for each other.
    phases : tuple of {"broadcast", "reduce"}
        The directions in which data runs along trees, one phase after the other; none between pairs.
    input, output : {"shard", "all", "parts"}
        Data of a rank before and after: its own shard, which only the root has if there is one root; all data; or a
        part for, or from, each rank.
    takes_traffic : bool
        Whether the caller says how large the parts for the other ranks are.
    traffic : callable, optional
        Function that returns the traffic matrix: ``traffic(num_ranks)``, or ``traffic(num_ranks, root)`` if there is
        one root, is the data of each rank (row) for each (column), in any unit.  Without either, all parts are equal.

    Examples
    --------
    >>> from collopt.schedules import ALLREDUCE
    >>> print(ALLREDUCE, ALLREDUCE.phases, ALLREDUCE.bus_factor(4))
    allreduce ('reduce', 'broadcast') 3/2
    """

    name: str
    pattern: Pattern
    phases: tuple[Direction, ...]
    input: Holding
    output: Holding
    takes_traffic: bool = False
    traffic: Callable[..., Any] | None = None

    @property
    def nccl_name(self) -> str:
        """As NCCL, nccl-tests and MSCCL++ spell it."""
        return self.name.replace("_", "")

    @property
    def in_pairs(self) -> bool:
        """Whether ranks have different data for each other, which is neither copied nor reduced on its way."""
        return not self.phases

    @property
    def parts_differ(self) -> bool:
        """Whether the parts of ranks for each other may differ in size."""
        return self.takes_traffic or self.traffic is not None

    @property
    def has_one_root(self) -> bool:
        """Whether all data starts from, or ends at, one rank that the caller names."""
        return self.pattern == "one root"

    @property
    def has_items(self) -> bool:
        """Whether it is one of `collopt.Demands`."""
        return self.pattern == "items"

    @property
    def is_sharded(self) -> bool:
        """Whether every rank has, or gets, a shard of its own, which may differ in size."""
        return self.pattern == "every root" and "shard" in (self.input, self.output)

    @property
    def has_two_phases(self) -> bool:
        """Whether data is reduced first, and the sums are broadcast then."""
        return len(self.phases) == 2

    @property
    def direction(self) -> Direction | None:
        """Direction of the only phase; None if there are two, or none."""
        return self.phases[0] if len(self.phases) == 1 else None

    @property
    def reduces(self) -> bool:
        """Whether data of several ranks is reduced."""
        return "reduce" in self.phases

    @property
    def transposed(self) -> Collective:
        """The collective that a schedule of this one carries out with every transfer reversed."""
        flipped = tuple("reduce" if phase == "broadcast" else "broadcast" for phase in reversed(self.phases))
        fields = (self.pattern, flipped, self.output, self.input, self.takes_traffic)
        for candidate in COLLECTIVES.values():
            candidate_fields = (
                candidate.pattern,
                candidate.phases,
                candidate.input,
                candidate.output,
                candidate.takes_traffic,
            )
            if candidate_fields == fields and self._is_reverse(candidate):
                return candidate
        raise UnsupportedError(f"{self} reversed is no collective that collopt knows")

    def _is_reverse(self, other: Collective) -> bool:
        """Whether the traffic of the other, if one of the two has any of its own, goes the other way."""
        if self.traffic is other.traffic is None:
            return True
        try:
            ours, theirs = (collective.pair_traffic(COMPARED_RANKS, 1) for collective in (self, other))
        except ColloptError:  # one of the two is not for so many ranks
            return False
        return np.array_equal(ours, theirs.T)

    def _given_traffic(self, num_ranks: int, root: int | None) -> Any:
        """Call `traffic`; its exceptions become `UnsupportedError`."""
        assert self.traffic is not None  # The callers have looked.
        try:
            return self.traffic(num_ranks, root) if self.has_one_root else self.traffic(num_ranks)
        except Exception as error:
            raised = f"{type(error).__name__}: {error}".rstrip(": ")
            raise UnsupportedError(f"the traffic function of {self.name!r} raised {raised}") from error

    def pair_traffic(self, num_ranks: int, root: int | None = None) -> IntArray:
        """Return the data of each rank (row) for each (column), in whole numbers without a common divisor.

        Shapes: returns int64 (ranks, ranks).
        """
        if self.traffic is None:
            return np.ones((num_ranks, num_ranks), dtype=np.int64)
        return as_pair_traffic(self._given_traffic(num_ranks, root), tuple(map(str, range(num_ranks))))

    def root_of(self, traffic: IntArray, *, error: type[ColloptError] = UnsupportedError) -> int | None:
        """Find the root with which `pair_traffic` is this, None without a root; raise `error` if it never is.

        Shapes: `traffic` (ranks, ranks).
        """
        roots: list[int | None] = [None]
        names = tuple(map(str, range(len(traffic))))
        if self.has_one_root:  # most likely the busiest rank
            roots = np.argsort(-(traffic.sum(axis=0) + traffic.sum(axis=1)), kind="stable").tolist()
        for root in roots:
            matrix = self._given_traffic(len(traffic), root)
            if _may_agree(matrix, traffic) and np.array_equal(as_pair_traffic(matrix, names), traffic):
                return root
        whatever = ", whichever rank is the root" if self.has_one_root else ""
        raise error(f"the traffic is not that of the collective {self.name!r}{whatever}")

    def bus_factor(self, num_ranks: int, root: int | None = None) -> Fraction:
        """Divide bus bandwidth by algorithm bandwidth, as nccl-tests defines them.

        It is the share of all data that the busiest rank must send or receive.  A registered collective with one root,
        whose traffic may depend on it, needs `root`.
        """
        num_ranks = as_whole(num_ranks, "num_ranks")
        if self.traffic is not None and num_ranks > 1:  # of what a rank has on average
            if self.has_one_root:
                root = as_whole(root, f"the root of {self}", low=0, high=num_ranks - 1)
            traffic = self.pair_traffic(num_ranks, root)
            total = int(traffic.sum())
            np.fill_diagonal(traffic, 0)
            return Fraction(max(int(traffic.sum(axis=way).max()) for way in (0, 1)) * num_ranks, total)
        if self.has_one_root:
            return Fraction(self.traffic is None)
        return Fraction(num_ranks - 1, num_ranks) * (2 if self.has_two_phases else 1)

    def __hash__(self) -> int:
        """Hash the name, since collectives are keys of caches."""
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Copy and unpickle one of `COLLECTIVES` as itself."""
        return _restored, tuple(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Collective {self.name}>"


AnyCollective = CollectiveName | Collective  # a collective, or its name

ALLGATHER = Collective("allgather", "every root", ("broadcast",), "shard", "all")
"""Every rank gets the shards of all."""
REDUCE_SCATTER = Collective("reduce_scatter", "every root", ("reduce",), "all", "shard")
"""Every rank gets its shard of the sums."""
ALLREDUCE = Collective("allreduce", "every root", ("reduce", "broadcast"), "all", "all")
"""Every rank gets all sums."""
BROADCAST = Collective("broadcast", "one root", ("broadcast",), "shard", "all")
"""Every rank gets the data of the root."""
REDUCE = Collective("reduce", "one root", ("reduce",), "all", "shard")
"""The root gets all sums."""
ALL_TO_ALL = Collective("all_to_all", "pairs", (), "parts", "parts")
"""Every rank gets a part from each, all of one size."""
ALL_TO_ALLV = Collective("all_to_allv", "pairs", (), "parts", "parts", takes_traffic=True)
"""Every rank gets a part from each, of any size."""

DEMANDS = Collective("demands", "items", ("broadcast",), "items", "items")
"""What all `collopt.Demands` have in common: items that are copied on their way; no collective by itself."""

COLLECTIVES: dict[str, Collective] = {
    collective.name: collective
    for collective in (ALLGATHER, REDUCE_SCATTER, ALLREDUCE, BROADCAST, REDUCE, ALL_TO_ALL, ALL_TO_ALLV)
}
"""All collectives, by name; `register_collective` adds others."""


class _PairCollectives(Collection[Collective]):
    """Those of `COLLECTIVES` that are between pairs at the time of asking."""

    def __iter__(self) -> Iterator[Collective]:
        return (collective for collective in COLLECTIVES.values() if collective.in_pairs)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, value: object) -> bool:
        return any(collective == value for collective in self)

    def __repr__(self) -> str:
        return repr(tuple(self))


TREE_COLLECTIVES = tuple(collective for collective in COLLECTIVES.values() if not collective.in_pairs)
"""Collectives that trees can carry out."""
EVERY_ROOT = tuple(collective for collective in COLLECTIVES.values() if collective.pattern == "every root")
"""Collectives in which all ranks do the same, along trees."""
PAIR_COLLECTIVES: Collection[Collective] = _PairCollectives()
"""Collectives in which ranks have different data for each other, registered ones included."""


def register_collective(collective: Collective) -> Collective:
    """Add a collective between pairs, and return it; planning, plan files and execution then accept it and its name.

    Plan files hold the name, so programs that read them have to register it too.  ``del COLLECTIVES[name]`` undoes it.
    Its pattern is "pairs" or "one root"; it has no phases, parts before and after it, and `traffic`.

    Raises `UnsupportedError` if the name is taken or not a word in lower case, or the record is of another kind.

    Examples
    --------
    >>> import numpy as np
    >>> def to_next(num_ranks):
    ...     return np.roll(np.eye(num_ranks, dtype=int), 1, axis=1)
    >>> shift = register_collective(Collective("shift", "pairs", (), "parts", "parts", traffic=to_next))
    >>> as_collective("shift").pair_traffic(3).tolist()
    [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    >>> del COLLECTIVES["shift"]
    """
    as_kind(collective, Collective, "the collective")
    name = collective.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UnsupportedError(f"the collective is called {shown(name)}; expected a name such as 'ring_exchange'")
    for registered in (*COLLECTIVES.values(), DEMANDS):
        if registered.nccl_name == collective.nccl_name:
            raise UnsupportedError(f"there is a collective {registered} already; give {name!r} another name")
    required = {"pattern": ("pairs", "one root"), "phases": ((),), "input": ("parts",), "output": ("parts",)}
    for field, expected in (required | {"takes_traffic": (False,)}).items():
        value, either = getattr(collective, field), " or ".join(map(repr, expected))
        if not any(type(value) is type(choice) and value == choice for choice in expected):
            raise UnsupportedError(f"{field} of the collective {name!r} is {shown(value)}; expected {either}")
    if not callable(traffic := collective.traffic):
        raise UnsupportedError(f"traffic of the collective {name!r} is {shown(traffic)}; expected a function")
    COLLECTIVES[name] = collective
    return collective


def as_collective(
    value: object,
    among: Iterable[Collective] | None = None,
    refusal: str = "",
    *,
    error: type[ColloptError] = UnsupportedError,
) -> Collective:
    """Look up a collective by the name that a user gave; a collective stays as it is.

    With `among`, only those of `COLLECTIVES` are taken, and `refusal` begins the message about others.
    """
    collective = collective_or_given(value)
    choices = tuple(COLLECTIVES.values()) if among is None else tuple(among)
    if isinstance(collective, Collective) and collective == DEMANDS:
        raise error("demands need their items; expected collopt.Demands([...])")
    if isinstance(collective, Collective) and collective in choices:
        return collective
    if isinstance(collective, Collective) and collective.has_items and (among is None or DEMANDS in choices):
        return collective
    name = collective.name if isinstance(collective, Collective) else value
    if isinstance(collective, Collective) and COLLECTIVES.get(collective.name) in choices:
        raise error(f"this record of {name!r} is another than the registered one; use COLLECTIVES[{name!r}]")
    guess, names = _closest_name(name), ", ".join(map(str, choices))
    if among is None:
        raise error(
            f"there is no collective {shown(name)}; {f'did you mean {guess}?' if guess else f'expected one of {names}'}"
        )
    hint = f": did you mean {guess!r}?" if guess else ""
    raise error(f"{refusal} the collective {shown(name)}; expected one of {names}{hint}")


def collective_or_given(value: object) -> Any:
    """Look up a collective by name; return anything else as it is, for a later check to refuse."""
    return COLLECTIVES.get(value, value) if isinstance(value, str) else value


def _may_agree(matrix: Any, traffic: IntArray) -> bool:
    """Whether a given matrix may be a multiple of the traffic: in floats, before it is read exactly.

    Shapes: `traffic` (ranks, ranks).
    """
    try:
        theirs, ours = (np.asarray(array, dtype=np.float64) for array in (matrix, traffic))
    except (ArithmeticError, RuntimeError, TypeError, ValueError):  # which are told when it is read
        return True
    if theirs.shape != ours.shape or hasattr(matrix, "columns"):  # whose labels may be in another order
        return True
    return np.allclose(theirs / (theirs.sum() or 1), ours / (ours.sum() or 1))


def _restored(*values: Any) -> Collective:
    """Return the collective of these fields, the one of `COLLECTIVES` if it has them."""
    collective = Collective(*values)
    registered = COLLECTIVES.get(collective.name, collective)
    return registered if registered == collective else collective


def _closest_name(name: object) -> str | None:
    """Return the collective whose name is spelled most like this one, such as by MPI, NCCL or torch."""
    if not isinstance(name, str) or name in COLLECTIVES:
        return None
    plain = {spelled.replace("_", ""): spelled for spelled in COLLECTIVES}
    close = get_close_matches(re.sub(r"[\W_]", "", name.lower()), plain, n=1)
    return plain[close[0]] if close else None


def as_pair_traffic(traffic: Any, ranks: Sequence[str]) -> IntArray:
    """Read a traffic matrix as whole numbers without a common divisor.

    Shapes: `traffic` (ranks, ranks); returns int64 (ranks, ranks).
    """
    matrix = _square(traffic, ranks)
    if matrix.dtype.kind in "iu" and matrix.dtype.itemsize <= 8:
        return _reduced([int(entry) for entry in matrix.ravel().tolist()], len(ranks))
    exact = _amounts(matrix)
    scale = Fraction(lcm(*{amount.denominator for amount in exact}))
    total = sum(exact, Fraction(0))
    if total * scale > MAX_UNITS and all(isinstance(value, FLOATS) for value in matrix.astype(object).ravel()):
        scale = FLOAT_UNITS / total
        return _reduced([max(round(amount * scale), 1) if amount else 0 for amount in exact], len(ranks))
    return _reduced([int(amount * scale) for amount in exact], len(ranks))


def pair_amounts(traffic: Any, ranks: Sequence[str]) -> list[list[Fraction]]:
    """Read a traffic matrix exactly, in its own unit; parameters and errors as for `as_pair_traffic`."""
    size = len(ranks)
    flat = _amounts(_square(traffic, ranks))
    return [flat[row * size : (row + 1) * size] for row in range(size)]


def check_table(traffic: Any) -> None:
    """Raise `UnsupportedError` for masked entries, and frames whose rows and columns are not the same in one order."""
    if np.ma.is_masked(traffic):
        raise UnsupportedError("the traffic has masked entries; expected all of them, as traffic.filled(0) has")
    pandas = sys.modules.get("pandas")  # a caller with a frame has imported it
    if pandas is None or not isinstance(traffic, pandas.DataFrame):
        return
    if not traffic.index.is_unique:
        label = shown(traffic.index[traffic.index.duplicated()].tolist()[0])
        raise UnsupportedError(f"the traffic has several rows labelled {label}; expected one row for each rank")
    if not traffic.index.equals(traffic.columns):
        rows, columns = traffic.index.tolist(), traffic.columns.tolist()
        at = next((place for place, row in enumerate(rows) if row != columns[place]), 0)
        raise UnsupportedError(
            f"the traffic has row {at} labelled {shown(rows[at])} and column {at} labelled {shown(columns[at])}; "
            "expected the same labels in the same order, as traffic.loc[labels, labels] has them"
        )


def _amounts(matrix: npt.NDArray[Any]) -> list[Fraction]:
    size = len(matrix)
    return [_amount(value, *divmod(place, size)) for place, value in enumerate(matrix.astype(object).ravel().tolist())]


def _square(traffic: Any, ranks: Sequence[str]) -> npt.NDArray[Any]:
    num_ranks = len(ranks)
    if isinstance(traffic, (str, bytes)) or not hasattr(traffic, "__len__"):
        raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a matrix, one row of numbers per rank")
    try:
        # Of a list, numpy would turn true and false into numbers.
        matrix = np.asarray(traffic, dtype=object if isinstance(traffic, (list, tuple)) else None)
    except ValueError:  # rows of unequal length
        matrix = np.empty(0)
    except (TypeError, RuntimeError):  # such as tensors on a GPU
        raise UnsupportedError(
            f"the traffic is a {type(traffic).__name__} that numpy cannot read; expected a dense matrix in main "
            "memory, one row of numbers per rank"
        ) from None
    if matrix.shape != (num_ranks, num_ranks):
        text = matrix.ndim == 2 and matrix.size and isinstance(matrix[0, 0], str)
        raise UnsupportedError(
            f"the traffic is {shown(traffic)} of shape {matrix.shape}; expected {num_ranks} rows of {num_ranks} "
            f"numbers, one per rank{', without a header or labels' if text else ''}"
        )
    check_table(traffic)
    if hasattr(traffic, "columns") and hasattr(traffic, "index") and {*map(str, traffic.index)} == {*ranks}:
        return np.asarray(traffic.rename(index=str, columns=str).loc[list(ranks), list(ranks)])
    return matrix


def _amount(value: object, source: int, destination: int) -> Fraction:
    if isinstance(value, Fraction) and value >= 0:
        return value
    # Measured amounts have more digits than anyone writes, and than `as_amount` takes.
    text = repr(float(value)) if isinstance(value, (float, np.floating)) else value
    if isinstance(text, (str, Decimal)) and DECIMAL.fullmatch(str(text)):
        return Fraction(text)
    try:
        return as_amount(value)
    except TopologyError:
        raise _refusal(value, source, destination) from None


def _refusal(value: object, source: int, destination: int) -> UnsupportedError:
    return UnsupportedError(
        f"the traffic from rank {source} to rank {destination} is {shown(value)}; expected a number of at least 0"
    )


def _reduced(amounts: list[int], num_ranks: int) -> IntArray:
    if (lowest := min(amounts)) < 0:
        raise _refusal(lowest, *divmod(amounts.index(lowest), num_ranks))
    largest = max(amounts)
    if largest < 2**62:
        common = int(np.gcd.reduce(np.array(amounts, dtype=np.int64)))
    else:
        common = int(np.gcd.reduce(np.array(amounts, dtype=object)))
    units = [amount // common for amount in amounts] if common > 1 else amounts
    if sum(units) > MAX_UNITS:
        raise UnsupportedError(
            "the traffic counts more than 2^53 of its common unit in all; round it to fewer digits or larger units"
        )
    matrix = np.array(units, dtype=np.int64).reshape(num_ranks, num_ranks)
    if not matrix[~np.eye(num_ranks, dtype=np.bool_)].any():
        raise UnsupportedError("all off-diagonal traffic is 0; expected a positive entry")
    return matrix


def traffic_matrix(weights: tuple[int, ...], num_ranks: int) -> npt.NDArray[np.object_]:
    """Lay out weights by source and destination. Shapes: returns (ranks, ranks)."""
    flat = np.array(weights or (1,) * num_ranks**2, dtype=object)
    matrix: npt.NDArray[np.object_] = flat.reshape(num_ranks, num_ranks)
    np.fill_diagonal(matrix, 0)
    return matrix


def crossing_traffic(inside: npt.NDArray[np.bool_], weights: tuple[int, ...]) -> int:
    """Add up the data of ranks inside a cut for ranks outside. Shapes: `inside` bool (ranks,)."""
    within = int(inside.sum())
    if not weights:
        return within * (len(inside) - within)
    rows = (weights[rank * len(inside) : (rank + 1) * len(inside)] for rank in np.flatnonzero(inside).tolist())
    outside = np.flatnonzero(~inside).tolist()
    return sum(row[rank] for row in rows for rank in outside)


def as_weights(weights: object, num_ranks: int) -> tuple[Fraction, ...]:
    """Read the relative sizes of the shards exactly."""
    if weights is None:
        return (Fraction(1),) * num_ranks
    if isinstance(weights, (str, bytes)) or not isinstance(weights, (Sequence, np.ndarray)):
        raise UnsupportedError(f"weights is {shown(weights)}; expected a list of numbers, one per rank in rank order")
    if isinstance(weights, np.ndarray) and weights.ndim != 1:
        raise UnsupportedError(f"weights is an array of shape {weights.shape}; expected one number per rank")
    exact = tuple(_weight(rank, value) for rank, value in enumerate(weights))
    if len(exact) != num_ranks:
        raise UnsupportedError(f"weights has {len(exact)} entries; expected one per rank, {num_ranks}")
    if not any(exact):
        raise UnsupportedError("all weights are 0; expected some rank to have data")
    return exact


def _weight(rank: int, value: object) -> Fraction:
    try:
        return as_amount(value)
    except TopologyError:
        raise UnsupportedError(
            f"weight {shown(value)} of rank {rank} is not usable; expected a number of at least 0"
        ) from None


def is_even(traffic: IntArray) -> bool:
    """Whether all ranks send each other as much. Shapes: `traffic` (ranks, ranks)."""
    off_diagonal = traffic[~np.eye(len(traffic), dtype=np.bool_)]
    return bool((off_diagonal == off_diagonal[:1]).all())
