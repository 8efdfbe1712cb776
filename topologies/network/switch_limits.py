"""Limits of switches that multicast or aggregate, which collectives that use them have to respect."""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.validation import as_flag, as_list, as_name, as_size, shown

OPERATORS = ("and", "avg", "max", "min", "or", "prod", "sum", "xor")
"""Reduction operators of NCCL, and the bitwise ones."""

TYPES = (
    *("bfloat16", "float16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
"""Types of data, as PyTorch names them."""


class SwitchLimits(NamedTuple):
    """Limits of one switch with in-network multicast or reduction.

    Attributes
    ----------
    switch : str
        Its name.
    loopback : bool
        Whether a copy also goes back to the rank that sends the data, and a reduction also reads the rank that receives
        it, over their links, as NVLink SHARP does, which leaves n / (n + 1) of a link for n ranks.
    group : int or None
        Most neighbors that may take part in one tree, including the one towards its root; None for any number.
    operators, types : tuple of str
        Reduction operators (of `OPERATORS`) and types of data (of `TYPES`) that it adds; empty for all.
    relay : bool
        Whether it is a compute node that takes no part: it stores what arrives and forwards it, and neither copies nor
        adds.  Programs cannot ask that of a node outside the group.
    """

    switch: str
    loopback: bool = False
    group: int | None = None
    operators: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    relay: bool = False

    @property
    def stated(self) -> dict[str, object]:
        """Limits that differ from their defaults, by name."""
        defaults = SwitchLimits(self.switch)._asdict()
        return {name: value for name, value in self._asdict().items() if value != defaults[name]}


def as_switch_limits(rows: Iterable[object], switches: Collection[str]) -> tuple[SwitchLimits, ...]:
    """Check limits and sort them by switch; those that limit nothing are left out."""
    checked: dict[str, SwitchLimits] = {}
    for row in as_list(rows, "the switches' limits"):
        limits = _as_limits(row)
        if limits.switch not in switches:
            raise TopologyError(f"limits are given for {limits.switch!r}, which is not a switch of this topology")
        if limits.switch in checked:
            raise TopologyError(f"switch {limits.switch!r} has limits twice; give them once")
        checked[limits.switch] = limits
    return tuple(limits for _, limits in sorted(checked.items()) if limits != SwitchLimits(limits.switch))


def _as_limits(row: object) -> SwitchLimits:
    if not isinstance(row, SwitchLimits):
        raise TopologyError(f"a switch's limits are {shown(row)}; expected SwitchLimits(switch, loopback=True, ...)")
    switch = as_name(row.switch)
    group = None if row.group is None else as_size(row.group, f"group limit of switch {switch!r}", low=2)
    loopback = as_flag(row.loopback, f"loopback of switch {switch!r}")
    operators, types = _words(row, "operators", OPERATORS), _words(row, "types", TYPES)
    relay = as_flag(row.relay, f"relay of node {switch!r}")
    return SwitchLimits(switch, loopback, group, operators, types, relay)


def _words(row: SwitchLimits, what: Literal["operators", "types"], allowed: tuple[str, ...]) -> tuple[str, ...]:
    words = as_list(getattr(row, what), f"{what} of switch {row.switch!r}")
    for word in words:
        if not isinstance(word, str) or word not in allowed:
            raise TopologyError(
                f"switch {row.switch!r} has {shown(word)} among its {what}; expected some of {', '.join(allowed)}, or "
                "none listed if it adds with all of them"
            )
    return tuple(sorted(set(words)))


def check_ports(abilities: Collection[str], index: Mapping[str, int], tails: IntArray, heads: IntArray) -> None:
    """Raise `TopologyError` if a switch that multicasts or aggregates has fewer than two neighbors."""
    # One neighbor of each node, and whether a link leads to another one.
    near, wide = np.full(len(index), -1), np.zeros(len(index), dtype=np.bool_)
    near[tails], near[heads] = heads, tails
    for ends, opposite in ((tails, heads), (heads, tails)):
        wide[ends[near[ends] != opposite]] = True
    if lonely := sorted(switch for switch in abilities if not wide[index[switch]]):
        raise TopologyError(
            f"switch {lonely[0]!r} is said to multicast or aggregate, but has links to "
            f"{int(near[index[lonely[0]]] >= 0)} nodes; "
            "expected two or more: add its links, or leave the ability out"
        )
