"""`Collective`: the data of every rank before and after a collective operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from ..errors import ColloptError, UnsupportedError
from ..support.arrays import IntArray
from ..support.validation import as_kind, as_whole, shown
from .sizes import as_pair_traffic

CollectiveName = Literal["allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all", "all_to_allv"]
"""Names of the built-in collectives."""

Direction = Literal["broadcast", "reduce"]
"""Whether data runs away from roots, copied on its way, or towards them, reduced on its way."""

Pattern = Literal["every root", "one root", "pairs"]
"""Whose data moves: that of every rank, that of one, or something else from each rank for each."""

Holding = Literal["shard", "all", "parts"]
"""A rank's own shard, which only the root has if there is one root; all data; a part for, or from, each rank."""

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

COLLECTIVES: dict[str, Collective] = {
    collective.name: collective
    for collective in (ALLGATHER, REDUCE_SCATTER, ALLREDUCE, BROADCAST, REDUCE, ALL_TO_ALL, ALL_TO_ALLV)
}
"""All collectives, by name; `register_collective` adds others."""

TREE_COLLECTIVES = tuple(collective for collective in COLLECTIVES.values() if not collective.in_pairs)
"""Collectives that trees can carry out."""

EVERY_ROOT = tuple(collective for collective in COLLECTIVES.values() if collective.pattern == "every root")
"""Collectives in which all ranks do the same, along trees."""


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
    for registered in COLLECTIVES.values():
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
    if isinstance(collective, Collective) and collective in choices:
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
