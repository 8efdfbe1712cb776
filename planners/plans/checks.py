"""Checks of `Plan.verify`: the problem that a plan solves, and its stated loads and rate."""

import numpy as np

from ...errors import CertificateError, TopologyError
from ...schedules import Bound, Collective, Schedule
from ...schedules.schedule import is_verifiable
from ...support.arrays import IntArray
from ...support.validation import shown
from ...topologies import Topology


def check_network(planned: Topology, topology: Topology) -> None:
    """Raise `TopologyError` unless a plan is for this network; its name may differ."""
    if not isinstance(topology, Topology):
        raise TopologyError(f"the topology is {shown(topology)}; expected the Topology to use the plan on")
    if topology.digest != planned.digest:
        raise TopologyError(
            f"the plan was made for {planned} (digest {planned.digest[:12]}), not for {topology} "
            f"(digest {topology.digest[:12]}); plan again for this topology"
        )


def check_schedule_fits_bound(collective: Collective, schedule: Schedule, bound: Bound) -> None:
    """Raise `CertificateError` unless the schedule is of the collective's kind, for the shards of the bound."""
    if not is_verifiable(schedule):
        raise CertificateError(f"the plan's schedule is {shown(schedule)}; expected trees, steps or a flow")
    if schedule.phases != collective.phases:
        subject = "schedule is" if collective.in_pairs else schedule.subject
        raise CertificateError(f"the plan's {subject} not of the kind that {collective.name!r} needs")
    if not schedule.has_sizes(bound.weights, bound.topology.num_ranks):
        what = "traffic differs from that" if collective.in_pairs else "shards differ from those"
        raise CertificateError(f"the plan's {what} of its bound")


def report_load_mismatch(stated: IntArray, loads: IntArray, schedule: Schedule, topology: Topology) -> None:
    """Raise `CertificateError` with the first difference between stated and actual loads."""
    if stated.shape != loads.shape:
        if stated.ndim == loads.ndim == 1:
            raise CertificateError(f"the plan states {len(stated)} link loads; its topology has {len(loads)} links")
        raise CertificateError(
            f"the plan states link loads of shape {stated.shape}; its schedule makes them of shape {loads.shape}"
        )
    place = tuple(np.argwhere(loads != stated)[0].tolist())
    link = topology.link_at(place[-1])
    puts = schedule.load_text.format(load=loads[place], step=place[0])
    raise CertificateError(f"{puts} on the link from {link.tail!r} to {link.head!r}; the plan states {stated[place]}")
