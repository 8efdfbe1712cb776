"""Sensitivity of the best rate to the bandwidths of links: exact dual values of witnesses, and gains by new bounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import CapacityOverflowError, NoAnswerError, TopologyError, UnsupportedError
from ...schedules import COLLECTIVES, Bound, Demands
from ...schedules.bounds.bound import link_values
from ...schedules.collective import DEMANDS, AnyCollective, Collective, as_collective
from ...schedules.trees.symmetric_forest import link_orbits
from ...support import progress
from ...support.quantities import MAX_BANDWIDTH, Exact, as_factor
from ...support.validation import shown
from ...topologies import Link, Topology, symmetries
from ...topologies.builders import NetworkLike, refuse_options
from ...topologies.builders import topology as as_network
from ..all_to_all.multicommodity import bound_pairs
from ..demands.cuts import bound_demands
from ..trees.forestcoll import bound_cuts
from ..trees.problem import shard_weights

if TYPE_CHECKING:
    import pandas as pd

Duals = dict[tuple[str, str], Fraction]  # GB/s of algorithm bandwidth per GB/s of each link


def sensitivity(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    step: Exact = "1/10",
    together: Callable[[Link], Hashable] | None = None,
    **unknown: Any,
) -> pd.DataFrame:
    """Compute for every link by how much more bandwidth of it raises `collopt.bound`.

    Raises `UnsupportedError` if the request is not of its form; `BoundError` if some rank is out of reach;
    `NoAnswerError` if `step` makes bandwidths with too many digits, or an all-to-all is too large for exact flows.

    Parameters
    ----------
    topology, collective, root, weights, traffic
        As for `collopt.bound`; but switches may be unbalanced.
    step : number
        By which part of its bandwidth a link is widened to see what that gains; positive.
    together : callable, optional
        Links for which it returns the same hashable value are widened at the same time; each by itself by default.
    **unknown
        Refused; options of a network belong to `collopt.topology`.

    Returns
    -------
    DataFrame
        One row per link, the most rewarding first; all numbers are fractions.

        - ``tail``, ``head``, ``bandwidth``: the link, GB/s.
        - ``dual``: GB/s of algorithm bandwidth per GB/s of this link, from the witness of the bound.
        - ``group``: what `together` returned, or the number of the link.
        - ``worth``: the dual values of the group's links times their bandwidths, in GB/s: what doubling these would
          gain if no other cut, or partition, took over.  That of all links is the bound.
        - ``gain``: what widening by `step` was found to gain, divided by it.

    Notes
    -----
    The bound is the least over cuts, partitions or lengths of links, each linear in all bandwidths.  So it is concave,
    the dual values are a supergradient, and ``gain`` never exceeds ``worth``.  It is less where the links are not the
    only bottleneck.  For an allreduce on a network whose switches reduce, the bound is the least of the partitions that
    were tried, so gains may be a little off there.

    Examples
    --------
    In a one-way ring the slowest link is all that counts:

    >>> from collopt.topologies import ring
    >>> slow = ring(4, bandwidth=30, bidirectional=False).derate("gpu1", "gpu2", "1/2", bidirectional=False)
    >>> frame = sensitivity(slow, "allgather")
    >>> frame[["tail", "head", "dual", "gain"]].iloc[0].tolist()
    ['gpu1', 'gpu2', Fraction(4, 3), Fraction(20, 1)]
    """
    import pandas as pd

    refuse_options(sensitivity, topology, unknown)
    topology = as_network(topology)
    planned = as_collective(collective, (*COLLECTIVES.values(), DEMANDS), "the bound does not cover")
    sizes = shard_weights(topology, planned, root, weights)
    bound = _bound_of(planned, sizes, root, traffic)
    part = as_factor(step, "step")
    groups = _grouped(topology, together)
    witnesses = _Witnesses(topology, bound(topology))
    own = planned.has_items or (planned.in_pairs and (root is not None or traffic is not None))
    kinds = {name: name for name in groups} if own else _group_orbits(topology, sizes, groups)
    first = {kind: groups[name] for name, kind in reversed(kinds.items())}
    for links in progress.iterate(first.values(), len(first)):
        if witnesses.gain(links, part):
            witnesses.add(bound(_widened(topology, links, part)))
    gains = {kind: witnesses.gain(links, part) / part for kind, links in first.items()}
    # A witness found later can be the best of all.
    best, rows = witnesses.best, []
    for name, links in groups.items():
        # Alike are links whose gains are equal, but for bounds of allreduces that are not the least of all partitions.
        worth = _worth(best, links)
        figures = name, worth, min(gains[kinds[name]], worth)
        rows += [(*link[:3], best.get(link[:2], Fraction(0)), *figures) for link in links]
    rows.sort(key=lambda row: (row[6], row[5], row[3]), reverse=True)
    return pd.DataFrame(rows, columns=["tail", "head", "bandwidth", "dual", "group", "worth", "gain"])


def _bound_of(
    collective: Collective, sizes: tuple[int, ...], root: int | str | None, traffic: Any
) -> Callable[[Topology], Bound]:
    """Return what bounds a collective on a network of other bandwidths."""
    if collective.in_pairs:
        return lambda network: bound_pairs(network, collective, root=root, traffic=traffic, needs_exact=True)
    if traffic is not None:
        raise UnsupportedError(f"{collective} takes no traffic; all_to_allv does")
    if isinstance(collective, Demands):
        return lambda network: bound_demands(network, collective)
    return lambda network: bound_cuts(network, collective, sizes)


def _group_orbits(
    topology: Topology, sizes: tuple[int, ...], groups: dict[Hashable, list[Link]]
) -> dict[Hashable, Hashable]:
    """Name groups that symmetries take to each other alike; of single links of the whole network only."""
    if len(groups) < topology.num_links:
        return {name: name for name in groups}
    generators = symmetries(topology, np.outer(sizes, np.ones(len(sizes), dtype=np.int64)) if sizes else None)
    orbits = link_orbits(generators, topology).tolist() if len(generators) else range(len(groups))
    return dict(zip(groups, orbits, strict=True))


class _Witnesses:
    """Witnesses of bounds: each bounds the rate whatever the bandwidths are, so the least of all of them does."""

    def __init__(self, topology: Topology, bound: Bound) -> None:
        self._bandwidths = {link[:2]: link.bandwidth for link in topology.links}
        self._found: list[tuple[Fraction, Duals]] = []
        self.add(bound)

    def add(self, bound: Bound) -> None:
        """Take the witness of a bound on the network, or on one with other bandwidths."""
        duals = {(tail, head): dual for tail, head, dual in link_values(bound)}
        rate = sum((dual * self._bandwidths[ends] for ends, dual in duals.items()), Fraction(0))
        self._found.append((rate, duals))

    @property
    def best(self) -> Duals:
        """Dual values of the best of them."""
        return min(self._found, key=itemgetter(0))[1]

    def gain(self, links: Sequence[Link], part: Fraction) -> Fraction:
        """By how much the least of them rises if these links get wider by this part."""
        wider = min(rate + part * _worth(duals, links) for rate, duals in self._found)
        return wider - min(rate for rate, _ in self._found)


def _worth(duals: Duals, links: Sequence[Link]) -> Fraction:
    return sum((duals[link[:2]] * link.bandwidth for link in links if link[:2] in duals), Fraction(0))


def _widened(topology: Topology, links: Sequence[Link], part: Fraction) -> Topology:
    try:
        wider = topology.with_bandwidths({link[:2]: link.bandwidth * (1 + part) for link in links})
        _ = wider.arrays
    except (TopologyError, CapacityOverflowError):
        text = f"a step of {float(part):g} makes bandwidths above {float(MAX_BANDWIDTH):g} GB/s or with too many digits"
        raise NoAnswerError(f"{text}; give one such as 1/10") from None
    return wider


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
            problem = f"together returned {shown(name)} for the link {link.tail!r} to {link.head!r}"
            raise UnsupportedError(f"{problem}; expected a hashable value, such as text or a tuple") from None
    return groups
