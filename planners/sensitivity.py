"""Which links to widen: prices from an exact dual, and what widening them gains, by solving again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..errors import BoundError, SolverError, UnsupportedError
from ..topologies import Link, Topology
from ..topologies.validation import Exact, as_factor, shown
from .lp_bounds import build_program
from .requests import check_request, shard_weights

if TYPE_CHECKING:
    import pandas as pd

    from ..solvers import Solution

__all__ = ["sensitivity"]


def sensitivity(
    topology: Topology,
    collective: str,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    step: Exact = "1/10",
    together: Callable[[Link], Hashable] | None = None,
) -> pd.DataFrame:
    """Say for every link what more bandwidth would gain.

    Parameters
    ----------
    topology : Topology
        Every rank that data goes to must be in reach.
    collective, root, weights
        As for `collopt.bound`; an allreduce is one by trees, as in `collopt.formulations.allreduce`.
    step : number
        By which part of its bandwidth a link is widened to see what that gains; positive.
    together : callable, optional
        Links for which it returns the same hashable value are widened at the same time; each by itself by default.

    Returns
    -------
    DataFrame
        One row per link, the most rewarding first.

        - ``tail``, ``head``, ``bandwidth``: the link, GB/s.
        - ``price``: GB/s of algorithm bandwidth per GB/s of this link, from an exact dual of the program.
        - ``group``: what `together` returned, or the number of the link.
        - ``worth``: the prices of the group's links times their bandwidths, GB/s of algorithm bandwidth.  What all
          links are worth adds up to the algorithm bandwidth: so this is the part that rests on the group, and what
          doubling it would gain if the prices held all the way.
        - ``gain``: what widening by `step` was found to gain, divided by it.

        All numbers are fractions.

    Raises
    ------
    UnsupportedError
        If the request is not of its form, or `together` is no function that returns hashable values.
    TopologyError
        If `step` is not a positive number.
    BoundError
        If some rank is out of reach.
    NoAnswerError
        If the program has no exact answer.

    Notes
    -----
    The best rate is a concave function of all bandwidths, and the prices are a supergradient of it, so ``gain`` never
    exceeds ``worth``.  It is less where the links are not the only bottleneck: prices are not unique then, and
    widening one link alone can gain nothing although it has one.

    Examples
    --------
    In a one-way ring the slowest link is all that counts:

    >>> from collopt.topologies import ring
    >>> slow = ring(4, bandwidth=30, bidirectional=False).derate("gpu1", "gpu2", "1/2", bidirectional=False)
    >>> frame = sensitivity(slow, "allgather")
    >>> frame[["tail", "head", "price", "gain"]].iloc[0].tolist()
    ['gpu1', 'gpu2', Fraction(4, 3), Fraction(20, 1)]
    """
    from ..solvers import Session

    check_request(topology, collective)
    sizes = shard_weights(topology, collective, root, weights)
    part = as_factor(step, "step")
    groups = _grouped(topology, together)
    # The objective of an allreduce is the algorithm bandwidth, the others' is the rate per unit of weight.
    unit = 1 if collective == "allreduce" else sum(sizes) or topology.num_ranks
    variant = _Variant(build_program(topology, collective, sizes).linear_program(), topology)
    session = Session(variant)
    rate, prices = _solved(session.solve(), topology)
    rows: list[tuple[Any, ...]] = []
    for name, links in groups.items():
        worth = sum((prices[link[:2]] * link.bandwidth for link in links), Fraction(0))
        gain = Fraction(0)
        if worth:
            variant.widen(links, 1 + part)
            gain = (_solved(session.solve(), topology)[0] - rate) / part
        if not 0 <= gain <= worth:
            raise SolverError(f"widening {name!r} gains {gain} at a price of {worth}, against concavity")
        rows += [(*link[:3], prices[link[:2]] * unit, name, worth * unit, gain * unit) for link in links]
    return _frame(rows)


@dataclass
class _Variant:
    """A program of which only the bandwidths of some links change."""

    program: Any
    topology: Topology

    def __post_init__(self) -> None:
        block = self.program.constraints["link_bandwidth"]
        self._rows = dict(zip(block.keys, block.positions.tolist(), strict=True))
        self._original = self.program.row_bounds

    def linear_program(self) -> Any:
        """Return the arrays as they stand."""
        return self.program

    def widen(self, links: Sequence[Link], factor: Fraction) -> None:
        """Multiply the bandwidths of some links, and put back all others."""
        lower, upper = self._original[0], self._original[1].copy()
        for link in links:
            if link[:2] in self._rows:
                upper[self._rows[link[:2]]] = float(link.bandwidth * factor)
        self.program = self.program._replace(row_bounds=(lower, upper))


def _grouped(topology: Topology, together: Callable[[Link], Hashable] | None) -> dict[Hashable, list[Link]]:
    if together is not None and not callable(together):
        raise UnsupportedError(
            f"together is {shown(together)}; expected a function that takes a link and returns the name of its group"
        )
    groups: dict[Hashable, list[Link]] = {}
    for number, link in enumerate(topology.links):
        name = number if together is None else together(link)
        try:
            groups.setdefault(name, []).append(link)
        except TypeError:
            raise UnsupportedError(
                f"together returned {shown(name)} for the link {link.tail!r} to {link.head!r}; expected a value that "
                "can be a dictionary's key, such as text or a tuple"
            ) from None
    return groups


def _solved(solution: Solution, topology: Topology) -> tuple[Fraction, dict[tuple[str, str], Fraction]]:
    """Return the exact rate and the price of every link; links that no flow can use have none."""
    exact = solution.exact
    if exact.objective <= 0:
        raise BoundError(f"some rank cannot reach another in {topology!r}; add links or leave ranks out")
    return exact.objective, {link[:2]: Fraction(0) for link in topology.links} | exact.duals["link_bandwidth"]


def _frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    names = ["tail", "head", "bandwidth", "price", "group", "worth", "gain"]
    rows.sort(key=lambda row: (row[6], row[5], row[3]), reverse=True)
    return pd.DataFrame(rows, columns=names)
