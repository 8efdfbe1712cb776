"""Networks that the planner ``steiner`` takes: small ones, whose able switches join all ranks."""

from ...errors import UnsupportedError
from ...topologies import Topology

MAX_RANKS = 12
MAX_ABLE = 6
FEW_RANKS, FEW_ABLE = 8, 4  # up to which the best trees take no more than a second


def check_abilities(topology: Topology) -> None:
    """Raise `UnsupportedError` if no switch multicasts or aggregates."""
    if not topology.multicast | topology.aggregation:
        raise UnsupportedError(
            f"no switch of {topology!r} multicasts or aggregates; use the planner 'forestcoll', or 'allreduce-lp' for "
            "an allreduce"
        )


def check_size(topology: Topology) -> None:
    """Raise `UnsupportedError` if there are too many ranks or able switches, or one joins too few neighbors."""
    able = topology.multicast | topology.aggregation
    for count, most, what in (
        (topology.num_ranks, MAX_RANKS, "ranks"),
        (len(able), MAX_ABLE, "switches that multicast or aggregate"),
    ):
        if count > most:
            raise UnsupportedError(f"{topology!r} has {count} {what}; expected at most {most} to find the best trees")
    for limits in topology.limits:
        # Each child leads to a rank of its own, and so does the way to the root.
        if limits.switch in able and limits.group is not None and limits.group < topology.num_ranks:
            raise UnsupportedError(
                f"switch {limits.switch!r} joins at most {limits.group} neighbors; the best trees are found only if "
                f"all {topology.num_ranks} ranks fit: use another planner"
            )


def has_best_trees(topology: Topology) -> bool:
    """Whether the planner ``steiner`` takes the network."""
    try:
        check_abilities(topology)
        check_size(topology)
    except UnsupportedError:
        return False
    return True


def has_few_trees(topology: Topology) -> bool:
    """Whether the best trees that branch at switches are found in a second."""
    return topology.num_ranks <= FEW_RANKS and 0 < len(topology.multicast | topology.aggregation) <= FEW_ABLE
