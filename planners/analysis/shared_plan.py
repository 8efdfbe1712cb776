"""Plans of groups that share a fabric, and the dual values that prove what the groups can reach together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ...errors import CertificateError, UnsupportedError
from ...schedules import Bound
from ...schedules.bounds.witness import LinkValue, Pair
from ...topologies import Topology
from ..bounds.bound import bound
from ..plans.plan import Plan
from .groups import Group
from .lp_bounds import lp_bound

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SharedBound:
    """Dual values of links, and what a unit of each group's rate costs of them at least.

    All groups together pay no more than all links are worth, so where they pay that, no group of these gets faster
    unless another gets slower.

    Attributes
    ----------
    links : tuple of LinkValue
        What a GB/s of each link is worth; links left out are free.
    bounds : mapping of str to Bound
        By group: a bound for the group alone, whose witness counts links at these values.
    """

    links: tuple[LinkValue, ...]
    bounds: dict[str, Bound]

    def costs(self) -> dict[str, Fraction]:
        """Least cost of 1 GB/s of algorithm bandwidth by group; raises `CertificateError` if a bound is wrong."""
        values = {(tail, head): dual for tail, head, dual in self.links}
        costs = {}
        for name, each in self.bounds.items():
            each.verify()
            worth = each.witness.link_weights(each.topology, each.collective)
            if any(weight > values.get(pair, 0) for pair, weight in worth.items()):
                raise CertificateError(f"the bound of group {name!r} values a link higher than the groups together do")
            amount, _ = each.witness.crossing(each.topology, each.collective, each.weights)
            costs[name] = amount / each.total_weight
        return costs

    def value(self, topology: Topology) -> Fraction:
        """Return what all links are worth."""
        return sum((dual * topology.link(tail, head).bandwidth for tail, head, dual in self.links), Fraction(0))


@dataclass(frozen=True, eq=False)
class GroupPlans:
    """One plan for each group, on the part of every link that the group has, and a proof of the groups' rates.

    Attributes
    ----------
    topology : Topology
        The fabric.
    groups : tuple of Group
        In the order of `plans` and `limits`.
    relay : bool
        Whether compute nodes outside a group may pass its data on.
    plans : tuple of Plan
        Each on a network of its group, whose bandwidths are the group's parts of links.
    limits : tuple of Fraction
        GB/s of algorithm bandwidth that are max-min fair: the smallest of all rates over sizes is as large as can be,
        then the smallest of those that are not settled by that, and so on.
    proofs : tuple of SharedBound
        For each of these rounds.
    """

    topology: Topology
    groups: tuple[Group, ...]
    relay: bool
    plans: tuple[Plan, ...]
    limits: tuple[Fraction, ...]
    proofs: tuple[SharedBound, ...]

    @property
    def gap(self) -> Fraction:
        """Largest exact share of its limit that a group's plan misses; 0 means that the groups are optimal together."""
        return max(1 - plan.algbw / limit for plan, limit in zip(self.plans, self.limits, strict=True))

    def usage(self, number: int) -> dict[Pair, Fraction]:
        """Return GB/s that the plan of a group puts on each link at its rate."""
        plan = self.plans[number]
        links = plan.topology.links
        if not plan.schedule.pipelined:
            return {link[:2]: link.bandwidth for link in links}
        loads = [load / link.bandwidth for load, link in zip(plan.link_loads.tolist(), links, strict=True)]
        busiest = max(loads)
        return {link[:2]: link.bandwidth * load / busiest for link, load in zip(links, loads, strict=True) if load}

    def verify(self) -> None:
        """Check every plan, that all plans together fit each link, and that the proofs settle all limits.

        Raises `CertificateError` if anything is not as claimed.
        """
        used: dict[Pair, Fraction] = {}
        for number, (group, plan, limit) in enumerate(zip(self.groups, self.plans, self.limits, strict=True)):
            plan.verify()
            network = group.network(self.topology, relay=self.relay)
            if plan.topology.compute_nodes != network.compute_nodes or plan.collective != group.kind:
                raise CertificateError(f"the plan of group {group.name!r} is for other ranks or another collective")
            if plan.algbw > limit:
                raise CertificateError(f"the plan of group {group.name!r} has {plan.algbw} GB/s, more than {limit}")
            for pair, amount in self.usage(number).items():
                used[pair] = used.get(pair, Fraction(0)) + amount
        bandwidths = {link[:2]: link.bandwidth for link in self.topology.links}
        if over := [pair for pair, amount in used.items() if amount > bandwidths.get(pair, 0)]:
            raise CertificateError(
                f"the groups together put {used[over[0]]} GB/s on the link {over[0]}, which has "
                f"{bandwidths.get(over[0], 0)} GB/s"
            )
        self._verify_limits()

    def _verify_limits(self) -> None:
        """Check that each round raises the rates of its groups alike, and that none can get more."""
        settled: set[str] = set()
        limits = {group.name: limit for group, limit in zip(self.groups, self.limits, strict=True)}
        sizes = {group.name: group.size for group in self.groups}
        networks = {group.name: group.network(self.topology, relay=self.relay) for group in self.groups}
        for proof in self.proofs:
            costs = proof.costs()
            if any(each.topology != networks[name] for name, each in proof.bounds.items()):
                raise CertificateError("a bound of the groups is about another network than its group's")
            if sum(cost * limits[name] for name, cost in costs.items()) != proof.value(self.topology):
                raise CertificateError("the groups' limits do not cost what all links are worth")
            # Rates over sizes of those that are settled now are equal, and least among all that are left.
            found = {limits[name] / int(sizes[name]) for name in costs.keys() - settled}
            left = min(limits[name] / int(sizes[name]) for name in limits.keys() - settled)
            if found != {left}:
                raise CertificateError("the groups' limits are not max-min fair")
            settled |= costs.keys()
        if settled != limits.keys():
            raise CertificateError(f"no proof settles the limit of group {min(limits.keys() - settled)!r}")

    def table(self) -> pd.DataFrame:
        """Tabulate the groups.

        Columns: ``group``, ``collective``, ``ranks``, ``size``; ``algbw`` of its plan and ``limit``, GB/s; ``gap`` from
        the one to the other; ``link_share``, the largest part that it takes of the bandwidth of a link; ``alone``, the
        bound of the group without the others, GB/s, and ``loss`` against that.  All figures are exact.
        """
        import pandas as pd

        bandwidths = {link[:2]: link.bandwidth for link in self.topology.links}
        rows = []
        for number, (group, plan, limit) in enumerate(zip(self.groups, self.plans, self.limits, strict=True)):
            alone = _alone(group, group.network(self.topology, relay=self.relay))
            share = max(amount / bandwidths[pair] for pair, amount in self.usage(number).items())
            ends = (group.name, str(group.kind), len(group.ranks), group.size)
            rows.append((*ends, plan.algbw, limit, 1 - plan.algbw / limit, share, alone, 1 - plan.algbw / alone))
        names = ["group", "collective", "ranks", "size", "algbw", "limit", "gap", "link_share", "alone", "loss"]
        return pd.DataFrame(rows, columns=names)


def _alone(group: Group, network: Topology) -> Fraction:
    """Bound a group without the others, by a linear program where switches do not give out what they take in."""
    try:
        return bound(network, group.kind, root=group.root).algbw
    except UnsupportedError:
        return lp_bound(network, group.kind, root=group.root).algbw
