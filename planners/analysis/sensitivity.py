"""Sensitivity of the best rate to the bandwidths of links: exact dual values, and gains by solving again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BoundError, CapacityOverflowError, NoAnswerError, UnsupportedError
from ...schedules.traffic.collective import AnyCollective, Collective
from ...support import progress
from ...support.quantities import Exact, as_factor
from ...support.validation import shown
from ...topologies import Link, Topology
from ...topologies.given_networks import NetworkLike, as_network
from ..trees.problem import TreeProblem, check_request, shard_weights
from .lp_bounds import build_program, counted

if TYPE_CHECKING:
    import pandas as pd

    from ...solvers import Solution


def sensitivity(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    step: Exact = "1/10",
    together: Callable[[Link], Hashable] | None = None,
    **network: Any,
) -> pd.DataFrame:
    """Compute for every link the gain from more bandwidth.

    Raises `UnsupportedError` if the request is not of its form, or `together` is no function that returns hashable
    values; `BoundError` if some rank is out of reach; `NoAnswerError` if the program has no exact answer, or `step` is
    too small for one.

    Parameters
    ----------
    topology : Topology, networkx.Graph, str or path
        As for `collopt.bound`; every rank that data goes to must be in reach.
    collective : str or Collective
        As for `collopt.bound`; an allreduce is one by trees, as in `collopt.formulations.allreduce`.
    root, weights
        As for `collopt.bound`.
    step : number
        By which part of its bandwidth a link is widened to see what that gains; positive.
    together : callable, optional
        Links for which it returns the same hashable value are widened at the same time; each by itself by default.
    **network
        As for `collopt.bound`.

    Returns
    -------
    DataFrame
        One row per link, the most rewarding first; all numbers are fractions.

        - ``tail``, ``head``, ``bandwidth``: the link, GB/s.
        - ``dual``: GB/s of algorithm bandwidth per GB/s of this link, from an exact dual of the program.
        - ``group``: what `together` returned, or the number of the link.
        - ``worth``: the dual values of the group's links times their bandwidths, GB/s of algorithm bandwidth.  All
          links together have the algorithm bandwidth: so this is the part that rests on the group, and what doubling it
          would gain if the dual values held all the way.
        - ``gain``: what widening by `step` was found to gain, divided by it.

    Notes
    -----
    The best rate is a concave function of all bandwidths, and the dual values are a supergradient of it, so ``gain``
    never exceeds ``worth``.  It is less where the links are not the only bottleneck: dual values are not unique then,
    and widening one link alone can gain nothing although it has one.  What is gained is the difference of two narrowest
    cuts, and takes no program, unless the collective is an allreduce or the cuts need more than int64.

    Examples
    --------
    In a one-way ring the slowest link is all that counts:

    >>> from collopt.topologies import ring
    >>> slow = ring(4, bandwidth=30, bidirectional=False).derate("gpu1", "gpu2", "1/2", bidirectional=False)
    >>> frame = sensitivity(slow, "allgather")
    >>> frame[["tail", "head", "dual", "gain"]].iloc[0].tolist()
    ['gpu1', 'gpu2', Fraction(4, 3), Fraction(20, 1)]
    """
    topology = as_network(topology, network, sensitivity)
    collective = check_request(topology, collective)
    sizes = shard_weights(topology, collective, root, weights)
    part = as_factor(step, "step")
    groups = _grouped(topology, together)
    # The objective of an allreduce is the algorithm bandwidth, the others' is the rate per unit of weight.
    unit = 1 if collective.has_two_phases else sum(sizes) or topology.num_ranks
    widened = _Widened(topology, collective, sizes)
    duals = widened.duals
    rows: list[tuple[Any, ...]] = []
    for name, links in progress.iterate(groups.items(), len(groups)):
        worth = sum((duals[link[:2]] * link.bandwidth for link in links), Fraction(0))
        gain = (widened.rate(links, 1 + part) - widened.rate_as_is) / part if worth else Fraction(0)
        assert 0 <= gain <= worth, "the best rate is concave, and dual values are a supergradient of it"
        rows += [(*link[:3], duals[link[:2]] * unit, name, worth * unit, gain * unit) for link in links]
    return _frame(rows)


class _Widened:
    """Best rates with some links widened."""

    def __init__(self, topology: Topology, collective: Collective, sizes: tuple[int, ...]) -> None:
        from ...solvers import Session

        small, unit = counted(topology)
        self._topology, self._unit = topology, unit
        self._variant = _Variant(build_program(small, collective, sizes).linear_program(), small)
        self._session = Session(self._variant)
        self.duals = _link_duals(self._session.solve(), topology)
        # Dual values stay so whatever the bandwidths, so all that were found bound all rates.
        self._found = [self.duals]
        self._cuts = None if collective.has_two_phases else _links(topology, collective, sizes)
        self.rate_as_is = self.rate((), Fraction(1))
        if self.rate_as_is != self._valued(self._bandwidths()):
            raise NoAnswerError(
                f"the bandwidths of {topology!r} have too many digits for exact dual values; round them to fewer"
            )

    def rate(self, links: Sequence[Link], factor: Fraction) -> Fraction:
        """Find the best rate with these links widened by a factor."""
        bandwidths = self._bandwidths()
        bandwidths.update({link[:2]: link.bandwidth * factor for link in links})
        cut = None if self._cuts is None else self._cut(bandwidths)
        if cut is not None:
            return cut
        if links:
            self._solve(links, factor)
        return self._valued(bandwidths)

    def _bandwidths(self) -> dict[tuple[str, str], Fraction]:
        return {link[:2]: link.bandwidth for link in self._topology.links}

    def _cut(self, bandwidths: dict[tuple[str, str], Fraction]) -> Fraction | None:
        """Rate of the bottleneck cut; None if it does not fit int64."""
        from ..trees.forest import bottleneck

        assert self._cuts is not None
        grain = Fraction(1, lcm(*(bandwidth.denominator for bandwidth in bandwidths.values())))
        try:
            capacities = np.array([int(bandwidth / grain) for bandwidth in bandwidths.values()], dtype=np.int64)
            best = bottleneck(self._cuts._replace(capacities=capacities))
        except (CapacityOverflowError, OverflowError):
            return None
        return grain * best.capacity / best.supply

    def _solve(self, links: Sequence[Link], factor: Fraction) -> None:
        """Find dual values with these links widened; floats may change which are found, but not what they say."""
        try:
            self._variant.widen(links, factor / self._unit)
        except OverflowError:
            raise NoAnswerError("this step makes links wider than floats can hold; give a smaller one") from None
        try:
            self._found.append(_link_duals(self._session.solve(), self._topology))
        except NoAnswerError as error:
            raise NoAnswerError(f"there is no exact gain for this step ({error}); give a larger one") from None

    def _valued(self, bandwidths: dict[tuple[str, str], Fraction]) -> Fraction:
        return min(sum((dual * bandwidths[ends] for ends, dual in duals.items()), Fraction(0)) for duals in self._found)


def _links(topology: Topology, collective: Collective, sizes: tuple[int, ...]) -> TreeProblem:
    """The network for cuts only, so switches may be unbalanced; capacities are set later."""
    index = topology.node_index
    tails = np.array([index[link.tail] for link in topology.links], dtype=np.int64)
    heads = np.array([index[link.head] for link in topology.links], dtype=np.int64)
    shards = np.array(sizes or [1] * topology.num_ranks, dtype=np.int64)
    if collective.direction == "broadcast":
        return TreeProblem(topology, "broadcast", tails, heads, np.zeros_like(tails), shards)
    return TreeProblem(topology, "reduce", heads, tails, np.zeros_like(tails), shards)


@dataclass
class _Variant:
    """A linear program in which only link bandwidths change."""

    program: Any
    topology: Topology

    def __post_init__(self) -> None:
        block = self.program.constraints["link_bandwidth"]
        self._rows = dict(zip(block.keys, block.positions.tolist(), strict=True))
        self._original = self.program.row_bounds

    def linear_program(self) -> Any:
        """Return the current arrays."""
        return self.program

    def widen(self, links: Sequence[Link], factor: Fraction) -> None:
        """Multiply the bandwidths of some links, and restore all others."""
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


def _link_duals(solution: Solution, topology: Topology) -> dict[tuple[str, str], Fraction]:
    """Return the dual value of every link that a flow can use."""
    exact = solution.exact
    if exact.objective <= 0:
        raise BoundError(f"some rank cannot reach another in {topology!r}; add links or leave ranks out")
    duals: dict[tuple[str, str], Fraction] = {link[:2]: Fraction(0) for link in topology.links}
    duals.update(exact.duals["link_bandwidth"])
    return duals


def _frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    names = ["tail", "head", "bandwidth", "dual", "group", "worth", "gain"]
    rows.sort(key=lambda row: (row[6], row[5], row[3]), reverse=True)
    return pd.DataFrame(rows, columns=names)
