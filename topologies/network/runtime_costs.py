"""`RuntimeCosts`: times that a runtime adds to those of links."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ...errors import TopologyError
from ...support.quantities import Exact, as_factor, as_latency
from ...support.validation import as_flag, shown

TIMES = ("alpha", "send", "launch", "reduction")
MAX_ENDS = 16  # of costs that measured times do not tell apart


@dataclass(frozen=True)
class RuntimeCosts:
    """Costs of the software that runs a schedule, beside latencies and bandwidths of links.

    A schedule of h successive hops takes ``launch + h alpha``, the latencies of its links, and the time of its busiest
    port: of a link, its bytes over the share `efficiency` of its bandwidth; of a rank, `send` for each message.  The
    `reduction` of the rank that adds most comes on top.  Raises `TopologyError` if a time is negative or no number, or
    a share not above 0 and at most 1.

    Attributes
    ----------
    alpha : Fraction
        µs from the arrival of data at a rank until it can be forwarded or used.
    send : Fraction
        µs that a rank is busy with starting one message, before it can start the next.
    launch : Fraction
        µs once for each call.
    reduction : Fraction
        µs per MB (1e6 bytes) that a rank adds to what it has.
    efficiency : tuple of (str, Fraction)
        Share of the line rate that data reaches, by link class as in `collopt.topologies.link_classes`, or by kinds of
        nodes such as ``"gpu-nic"``; 1 where none is named.
    calibrated : bool
        Whether they were fitted to measured times of these ranks rather than guessed.
    ends : tuple of (Fraction, Fraction)
        Extreme values of alpha and launch together, where measured times do not tell them apart; else none.

    Examples
    --------
    >>> RuntimeCosts(alpha=2, send="0.2", efficiency={"gpu-nic": "0.9"})
    RuntimeCosts(alpha=2, send=1/5, efficiency={'gpu-nic': 9/10})
    """

    alpha: Fraction = Fraction(0)
    send: Fraction = Fraction(0)
    launch: Fraction = Fraction(0)
    reduction: Fraction = Fraction(0)
    efficiency: tuple[tuple[str, Fraction], ...] = ()
    calibrated: bool = False
    ends: tuple[tuple[Fraction, Fraction], ...] = ()

    def __init__(
        self,
        alpha: Exact = 0,
        send: Exact = 0,
        launch: Exact = 0,
        reduction: Exact = 0,
        efficiency: Mapping[str, Exact] | Iterable[tuple[str, Exact]] = (),
        *,
        calibrated: bool = False,
        ends: Iterable[tuple[Exact, Exact]] = (),
    ) -> None:
        for name, value in zip(TIMES, (alpha, send, launch, reduction), strict=True):
            object.__setattr__(self, name, as_latency(value, f"{name} among the costs"))
        object.__setattr__(self, "efficiency", _as_efficiency(efficiency))
        object.__setattr__(self, "calibrated", as_flag(calibrated, "calibrated"))
        object.__setattr__(self, "ends", _as_ends(ends))

    @property
    def extremes(self) -> "list[RuntimeCosts]":
        """The costs at the `ends`."""
        return [replace(self, alpha=alpha, launch=launch, ends=()) for alpha, launch in self.ends]

    def range_of(self, time: "Callable[[RuntimeCosts], float | Fraction]") -> tuple[float, float] | None:
        """Return the least and the largest time at the `ends`; None where there are none."""
        times = [float(time(costs)) for costs in self.extremes]
        return (min(times), max(times)) if times else None

    @property
    def label(self) -> str:
        """Origin of the costs, for output."""
        if self == LINKS_ONLY:
            return "links alone"
        return "calibrated" if self.calibrated else "not calibrated"

    def to_json(self) -> dict[str, Any]:
        """Return the costs that are not zero, as plain values."""
        times = {name: str(getattr(self, name)) for name in TIMES if getattr(self, name)}
        shares = {"efficiency": {name: str(share) for name, share in self.efficiency}} if self.efficiency else {}
        ends = {"ends": [[str(alpha), str(launch)] for alpha, launch in self.ends]} if self.ends else {}
        return {**times, **shares, **({"calibrated": True} if self.calibrated else {}), **ends}

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)}" for name in TIMES if getattr(self, name)]
        if self.efficiency:
            fields.append("efficiency={" + ", ".join(f"{name!r}: {share}" for name, share in self.efficiency) + "}")
        if self.calibrated:
            fields.append("calibrated=True")
        if self.ends:
            fields.append(f"ends=[{', '.join(f'({alpha}, {launch})' for alpha, launch in self.ends)}]")
        return f"RuntimeCosts({', '.join(fields)})"


def _as_ends(value: object) -> tuple[tuple[Fraction, Fraction], ...]:
    rows: list[Any] = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if len(rows) > MAX_ENDS or any(not isinstance(row, (list, tuple)) or len(row) != 2 for row in rows):
        what = f"expected at most {MAX_ENDS} pairs of alpha and launch, [[2, 0], [0, 60]]"
        raise TopologyError(f"the ends are {shown(value)}; {what}")
    return tuple(
        (as_latency(alpha, "alpha of an end"), as_latency(launch, "launch of an end")) for alpha, launch in rows
    )


def _as_efficiency(value: object) -> tuple[tuple[str, Fraction], ...]:
    rows = list(value.items() if isinstance(value, Mapping) else value) if isinstance(value, Iterable) else None
    if rows is None or isinstance(value, str):
        raise TopologyError(f"the efficiency is {shown(value)}; expected shares by link class, {{'gpu-nic': '0.9'}}")
    shares: dict[str, Fraction] = {}
    for row in rows:
        if not isinstance(row, tuple) or len(row) != 2 or not isinstance(row[0], str):
            raise TopologyError(f"the efficiency has {shown(row)}; expected a link class and its share, 'gpu-nic': 0.9")
        share = as_factor(row[1], f"the efficiency of {row[0]}")
        if share > 1:
            raise TopologyError(f"the efficiency of {row[0]} is {share}; expected a share above 0 and at most 1")
        shares[row[0]] = share
    return tuple(sorted(shares.items()))


LINKS_ONLY = RuntimeCosts()
"""Nothing but the links: latencies and bandwidths as the topology states them."""
