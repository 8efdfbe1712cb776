"""The functions `bound` and `bound_sizes`: limits on all schedules of a collective, for endless data and at a size."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, overload

from ...errors import UnsupportedError
from ...schedules import COLLECTIVES, Bound, SizeBound
from ...schedules.collective import AnyCollective, as_collective
from ...support.quantities import as_several_bytes
from ...topologies import RuntimeCosts, Topology, reached_network
from ...topologies.builders import NetworkLike, refuse_options
from ...topologies.builders import topology as as_network
from ...topologies.network.link_costs import CostsName, as_costs
from ..trees.problem import shard_weights

MANY_RANKS = 1024  # above which symmetries are looked for first


@overload
def bound(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    size: None = None,
    costs: None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> Bound: ...


@overload
def bound(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    size: int | str,
    costs: RuntimeCosts | CostsName | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> SizeBound: ...


def bound(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    size: int | str | None = None,
    costs: RuntimeCosts | CostsName | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> Bound | SizeBound:
    """Bound the rate of any schedule of a collective on a topology, or its time for some amount of data.

    Raises `UnsupportedError` for a collective without a bound here, an unbalanced switch, or a root or weights that do
    not fit; `BoundError` if some rank cannot reach another.

    Parameters
    ----------
    topology : Topology, networkx.Graph, str or path
        A name of the catalogue, such as ``"dgx-a100"``, or a file, is built or read with the options in `network`.
        Every rank must reach every other; every switch must take in as much bandwidth as it gives out.  For the last
        two collectives, ranks must reach those that they have something for, and switches are free.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, ``"broadcast"``, ``"reduce"``, ``"all_to_all"`` or
        ``"all_to_allv"``; or one that was registered.
    size : int or str, optional
        Bytes in all as nccl-tests counts them, such as ``"64K"``; by default the bound is for endless data.
    costs : RuntimeCosts or str, optional
        What the software adds at a size, or one of ``"links"``, ``"generic"`` and ``"fused"``; by default what the
        topology says, or nothing.
    root : int or str, optional
        Rank that broadcast starts from and reduce ends at, by number or name.
    weights : sequence of number, optional
        Relative sizes of the shards in rank order, for allgather and reduce_scatter.
    traffic : matrix of number, shape (ranks, ranks), optional
        What each rank (row) has for each other (column), for all_to_allv.
    **unknown
        Refused; options of a network belong to `collopt.topology`.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100, mi250
    >>> bound(mi250(boxes=2), "allgather").inverse_rate
    Fraction(15, 166)
    >>> print(bound(dgx_a100(boxes=2), "allgather", size="1M", costs="fused"))
    allgather of 1048576 bytes: at least 8.98 µs (not calibrated), by its flow
    """
    refuse_options(bound, topology, unknown)
    topology = as_network(topology)
    if size is not None:
        return bound_sizes(topology, collective, [size], costs=costs, root=root, weights=weights, traffic=traffic)[0]
    if costs is not None:
        raise UnsupportedError("costs of the software matter at a size; give size too, such as '64K'")
    return _rate_bound(topology, collective, root, weights, traffic)


def bound_sizes(
    topology: NetworkLike,
    collective: AnyCollective,
    sizes: Iterable[int | str],
    *,
    costs: RuntimeCosts | CostsName | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> list[SizeBound]:
    """Bound the time of a collective for each of several amounts of data, in their order.

    Parameters as for `bound`, with several sizes.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> network = ring(4, bandwidth=10, latency=1)
    >>> [float(found.time) for found in bound_sizes(network, "allgather", [40, 40_000, 40_000_000])]
    [2.0005, 2.5, 1501.0]
    """
    from .timed_cuts import bounds_at_sizes

    refuse_options(bound_sizes, topology, unknown)
    topology = as_network(topology)
    amounts = as_several_bytes(sizes)
    cost_model = as_costs(costs, topology)
    rate = _rate_bound(reached_network(topology, cost_model), collective, root, weights, traffic)
    return bounds_at_sizes(topology, rate, amounts, cost_model)


def _rate_bound(
    topology: Topology,
    collective: AnyCollective,
    root: int | str | None,
    weights: Sequence[object] | None,
    traffic: Any,
) -> Bound:
    """Bound the rate for endless data; see `bound`."""
    from ..all_to_all.multicommodity import bound_pairs
    from ..trees.forestcoll import bound_trees

    planned = as_collective(collective, COLLECTIVES.values(), "the bound does not cover")
    if planned.in_pairs:
        shard_weights(topology, planned, root, weights)  # there are none
        return bound_pairs(topology, planned, root=root, traffic=traffic)
    if traffic is not None:
        raise UnsupportedError(f"{planned} takes no traffic; all_to_allv does")
    if topology.num_ranks > MANY_RANKS and root is None and weights is None:
        from ..trees.symmetric import bound_symmetric

        with suppress(UnsupportedError):
            return bound_symmetric(topology, planned)
    return bound_trees(topology, planned, root=root, weights=weights)
