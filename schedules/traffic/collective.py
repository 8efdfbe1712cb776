"""`Collective`: the data of every rank before and after a collective operation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Literal

from ...errors import ColloptError, UnsupportedError
from ...support.validation import shown

CollectiveName = Literal["allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all", "all_to_allv"]
"""The collectives that can be planned."""

Direction = Literal["broadcast", "reduce"]
"""Whether data runs away from roots, copied on its way, or towards them, reduced on its way."""

Pattern = Literal["every root", "one root", "pairs"]
"""Whose data moves: that of every rank, that of one, or something else from each rank for each."""

Holding = Literal["shard", "all", "parts"]
"""A rank's own shard, which only the root has if there is one root; all data; a part for, or from, each rank."""


@dataclass(frozen=True, repr=False)
class Collective:
    """A collective operation: who has what before it, and who gets what from it.

    Attributes
    ----------
    name : str
        As users, plan files and messages call it.
    pattern : {"every root", "one root", "pairs"}
        Whose data moves: that of every rank, that of one root, or something else from each rank for each other.
    phases : tuple of {"broadcast", "reduce"}
        The directions in which data runs along trees, one phase after the other; none between pairs.
    input, output : {"shard", "all", "parts"}
        What a rank has before, and gets: its own shard, which only the root has if there is one root; all data; or a
        part for, or from, each rank.
    takes_traffic : bool
        Whether the parts for the other ranks may differ in size.

    See Also
    --------
    COLLECTIVES : All of them by name.

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

    @property
    def nccl_name(self) -> str:
        """As NCCL, nccl-tests and MSCCL++ spell it."""
        return self.name.replace("_", "")

    @property
    def in_pairs(self) -> bool:
        """Whether every rank has something else for each other."""
        return self.pattern == "pairs"

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
        wanted = (self.pattern, flipped, self.output, self.input, self.takes_traffic)
        for each in COLLECTIVES.values():
            if (each.pattern, each.phases, each.input, each.output, each.takes_traffic) == wanted:
                return each
        raise UnsupportedError(f"{self} reversed is no collective that collopt knows")

    def bus_factor(self, num_ranks: int) -> Fraction:
        """Divide bus bandwidth by algorithm bandwidth: the share of all data of the busiest rank."""
        if self.has_one_root:
            return Fraction(1)
        return Fraction(num_ranks - 1, num_ranks) * (2 if self.has_two_phases else 1)

    def __hash__(self) -> int:
        """Hash the name, since collectives are keys of caches."""
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Copy and unpickle one of `COLLECTIVES` as itself."""
        if COLLECTIVES.get(self.name) is self:
            return as_collective, (self.name,)
        return Collective, (self.name, self.pattern, self.phases, self.input, self.output, self.takes_traffic)

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
    each.name: each for each in (ALLGATHER, REDUCE_SCATTER, ALLREDUCE, BROADCAST, REDUCE, ALL_TO_ALL, ALL_TO_ALLV)
}
"""All collectives, by name."""

TREE_COLLECTIVES = tuple(each for each in COLLECTIVES.values() if not each.in_pairs)
"""Collectives that trees can carry out."""

EVERY_ROOT = tuple(each for each in COLLECTIVES.values() if each.pattern == "every root")
"""Collectives in which all ranks do the same, along trees."""

PAIR_COLLECTIVES = tuple(each for each in COLLECTIVES.values() if each.in_pairs)
"""Collectives in which every rank has something else for each other."""


def bus_factor(collective: AnyCollective, num_ranks: int) -> Fraction:
    """Divide bus bandwidth by algorithm bandwidth, as nccl-tests defines them.

    Parameters
    ----------
    collective : str or Collective
        Such as ``"allgather"``.
    num_ranks : int
        At least 1.

    Returns
    -------
    Fraction
        The share of all data that the busiest rank must send or receive.

    Examples
    --------
    >>> bus_factor("reduce_scatter", 8)
    Fraction(7, 8)
    """
    return as_collective(collective).bus_factor(num_ranks)


def as_collective(
    value: object,
    among: Iterable[Collective] | None = None,
    refusal: str = "",
    *,
    error: type[ColloptError] = UnsupportedError,
) -> Collective:
    """Look up a collective by the name that a user gave; a collective stays as it is.

    With `among`, only those of `COLLECTIVES` are taken, and `refusal` begins the message about others.

    >>> as_collective("reduce_scatter").direction
    'reduce'
    >>> as_collective("all_reduce")
    Traceback (most recent call last):
        ...
    collopt.errors.UnsupportedError: there is no collective 'all_reduce'; did you mean allreduce?
    """
    found = collective_or_given(value)
    known = tuple(COLLECTIVES.values()) if among is None else tuple(among)
    if isinstance(found, Collective) and found in known:
        return found
    name = found.name if isinstance(found, Collective) else value
    meant, names = _meant(name), ", ".join(map(str, known))
    if among is None:
        raise error(
            f"there is no collective {shown(name)}; {f'did you mean {meant}?' if meant else f'expected one of {names}'}"
        )
    hint = f": did you mean {meant!r}?" if meant else ""
    raise error(f"{refusal} the collective {shown(name)}; expected one of {names}{hint}")


def collective_or_given(value: object) -> Any:
    """Look up a collective by name; return anything else as it is, for a later check to refuse."""
    return COLLECTIVES.get(value, value) if isinstance(value, str) else value


def _meant(name: object) -> str | None:
    """Return the collective whose name is spelled most like this one, such as by MPI, NCCL or torch."""
    if not isinstance(name, str) or name in COLLECTIVES:
        return None
    plain = {known.replace("_", ""): known for known in COLLECTIVES}
    close = get_close_matches(re.sub(r"[\W_]", "", name.lower()), plain, n=1)
    return plain[close[0]] if close else None
