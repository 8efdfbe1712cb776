"""What a portfolio is asked for, and its candidates: planners with what their plans take at least, and their work.

Work is in CPU seconds of a common machine: fits to measured times by powers of the number of ranks, which are right
within a factor of about 3.  It is an estimate so that plans do not depend on the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ..schedules import Collective
from ..schedules.bounds.size_bound import hop_latencies
from ..schedules.collective import EVERY_ROOT
from ..schedules.schedule import NS_PER_US
from ..topologies import Topology
from ..topologies.network.link_costs import as_costs
from .plans.registry import PLANNERS
from .trees.problem import shard_weights

KINDS_IN_BOXES = 2  # of ranks by their links: those of irregular networks are of more
COMPARED_RANKS = 2048  # above which no pairs of ranks are looked at


class Case:
    """A network, a collective, and the options that the user gave, of planners or of the collective's data."""

    def __init__(self, topology: Topology, collective: Collective, options: Mapping[str, Any]) -> None:
        self.topology, self.collective, self.options = topology, collective, options

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.topology.num_ranks

    @property
    def branches(self) -> bool:
        """Whether trees may branch at switches."""
        capable_switches = self.topology.multicast | self.topology.aggregation
        return bool(capable_switches) and bool(self.options.get("in_network", True))

    @property
    def root_messages(self) -> int:
        """Messages that some rank starts in a tree per root at least: N - 1 edges of each, shared by N ranks."""
        if self.branches or self.has_one_root:
            return 0
        shards = shard_weights(self.topology, self.collective, None, self.options.get("weights"))
        roots = sum(weight > 0 for weight in shards) or self.num_ranks
        return -(-roots * (self.num_ranks - 1) // self.num_ranks) * len(self.collective.phases)

    @cached_property
    def hop(self) -> Fraction:
        """Least time in µs from the start of a message to its arrival."""
        ranks = {rank: rank for rank in self.topology.compute_nodes}
        return as_costs(None, self.topology).alpha + hop_latencies(self.topology, ranks)[1]

    def least_time(self, num_bytes: int, rate: Fraction, messages: int, hops: int = 1) -> Fraction:
        """Time in µs of so many messages of one rank and a rate in GB/s at least and one hop, or of a chain of hops."""
        costs = as_costs(None, self.topology)
        sends = max(messages * costs.send, num_bytes / (rate * NS_PER_US))
        return costs.launch + max(self.hop + sends, hops * (self.hop + costs.send))

    @cached_property
    def intake(self) -> Fraction:
        """Least bandwidth in GB/s into a rank, which orders candidates before a bound is known."""
        _, heads, capacities, unit = self.topology.arrays
        into = np.zeros(len(self.topology.nodes), dtype=np.int64)
        np.add.at(into, heads, capacities)
        return max(1, int(into[: self.num_ranks].min())) * unit

    @cached_property
    def degree(self) -> int:
        """Most links into a rank."""
        heads = self.topology.arrays.heads
        return int(np.bincount(heads[heads < self.num_ranks], minlength=1).max())

    @cached_property
    def switch_links(self) -> float:
        """Links of switches for each rank."""
        tails, heads, _, _ = self.topology.arrays
        return int((np.maximum(tails, heads) >= self.num_ranks).sum()) / self.num_ranks

    @cached_property
    def is_one_way(self) -> bool:
        """Whether some link has none in the other direction."""
        tails, heads, _, _ = self.topology.arrays
        size = len(self.topology.nodes)
        return not np.array_equal(np.sort(tails * size + heads), np.sort(heads * size + tails))

    @cached_property
    def ranks_relay(self) -> bool:
        """Whether there is a rank with links to two ranks that have none to each other."""
        ranks, ends = self.num_ranks, np.array([self.topology.arrays.tails, self.topology.arrays.heads])
        if ranks > COMPARED_RANKS:
            return False
        linked = np.eye(ranks, dtype=np.float32)
        linked[tuple(ends[:, (ends < ranks).all(axis=0)])] = 1
        return bool(((linked @ linked > 0) & (linked == 0)).any())

    @cached_property
    def ranks_differ(self) -> bool:
        """Whether ranks are of many kinds by the bandwidths and latencies of their links."""
        if self.num_ranks > COMPARED_RANKS:
            return False
        kinds = {
            tuple(sorted((link.bandwidth, link.latency) for link in self.topology.out_links(rank)))
            for rank in self.topology.compute_nodes
        }
        return len(kinds) > KINDS_IN_BOXES

    @property
    def is_irregular(self) -> bool:
        """Whether ranks relay or differ, so that patterns for boxes and switches may not suit."""
        return self.ranks_relay or self.ranks_differ

    @property
    def has_one_root(self) -> bool:
        """Whether one rank sends or receives all data."""
        return self.collective not in EVERY_ROOT

    @property
    def has_unlike_roots(self) -> bool:
        """Whether ranks differ, by their links or as one of them is the root."""
        return self.ranks_differ or self.has_one_root

    @property
    def is_direct(self) -> bool:
        """Whether there are no switches."""
        return not self.topology.switch_nodes

    @property
    def exchanges_directly(self) -> bool:
        """Whether ranks without switches reduce and broadcast."""
        return self.is_direct and self.collective.has_two_phases


UNSUITED = 200.0
"""Times that the work of a planner counts on networks on which its plans are hardly ever the fastest."""
TREE_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Trees per root: rounding divides the links of boxes and rails evenly among numbers with many divisors."""
TREE_PREDICTION, STEP_PREDICTION = 0.01, 0.003
"""Seconds to predict the time of a plan of 32 ranks, of a tree per root or of any number, and in steps."""
MOST_DEGREE = 10
"""Links into a rank up to which breadth-first broadcasts look at all sets of them."""
SPANNING = "strength-with-switches"
"""The name of the candidate that plans as ``strength`` where trees gain by spanning switches."""
UNLIKELY_AFTER = {"forestcoll": (SPANNING,), "allreduce-lp": ("strength", SPANNING)}
"""Exact planners that hardly ever reach a higher rate than others have reached, by name."""
EXACT_PLAN = "exact"
"""The name of the candidate that is the portfolio for endless data."""
SYMMETRIC = "symmetric"
"""The planner that stands in for the exact plan beyond the effort."""


@dataclass(frozen=True)
class Candidate:
    """A planner with options beside the user's, and what is known of its plan before it is made."""

    planner: str
    work: float  # estimate of the CPU seconds of planning and predicting
    cost: float  # the same, times `UNSUITED` where the plan is hardly ever the fastest
    options: Mapping[str, Any] = field(default_factory=dict)
    messages: int = 0  # that some rank starts at least
    hops: int = 1  # of the longest chain at least

    @property
    def name(self) -> str:
        """The planner, with the options that it has beside the user's."""
        return " ".join([self.planner, *(f"{name}={value}" for name, value in self.options.items())])


@dataclass(frozen=True)
class Profile:
    """What is known of a planner: its work, how that grows, and the networks that it suits."""

    seconds: float  # of work on 32 ranks
    exponent: float  # of the number of ranks in its work
    suits: bool | str = False  # all networks, hardly any, or those that have this property of `Case`
    has_tree_per_root: bool = False
    enough: Fraction = Fraction(1)  # a plan with at most this gap makes planners beyond the effort needless
    by_links: bool = False  # whether it looks at all sets of links into a rank
    in_steps: bool = False  # whether its plan is in steps
    predicts: bool = False  # whether its work includes the predicted time
    splits_switches: bool = False  # whether it replaces switches by links between ranks

    def work(self, case: Case) -> float:
        """Estimate the CPU seconds of planning."""
        work: float = self.seconds * (case.num_ranks / 32) ** self.exponent
        if self.by_links:
            work *= 1 << min(case.degree, MOST_DEGREE)
        if self.splits_switches:
            work *= max(1.0, case.switch_links / 6) ** 2
        return work


PROFILES = {
    "few-steps": Profile(0.04, 1.0, True, predicts=True),
    "forestcoll": Profile(0.03, 1.5, True, has_tree_per_root=True, splits_switches=True),
    "symmetric": Profile(0.01, 1.0, True, has_tree_per_root=True, enough=Fraction(1, 1000)),
    "strength": Profile(0.02, 2.0, "has_unlike_roots"),
    "allreduce-lp": Profile(0.5, 2.5, "is_one_way"),
    "multicommodity": Profile(0.88, 2.5, True),
    "shortest-paths": Profile(0.06, 1.0, True),
    "fast": Profile(0.01, 1.0, True, enough=Fraction(1, 50)),
    "multitree": Profile(0.015, 2.5, "is_irregular", has_tree_per_root=True),
    "ring": Profile(0.2, 1.5, "is_irregular", has_tree_per_root=True),
    "hierarchical-ring": Profile(0.15, 1.0, "ranks_relay"),
    "ring-unwinding": Profile(0.03, 1.0, has_tree_per_root=True),
    "blink": Profile(0.01, 2.5, "has_unlike_roots"),
    "greedy": Profile(0.4, 2.0, "is_one_way"),
    "nvls": Profile(0.01, 1.0, "branches"),
    "nvls-tree": Profile(0.01, 1.0),
    "collnet": Profile(0.01, 1.0),
    "steiner": Profile(41000.0, 10.0, "branches"),
    "bfb": Profile(0.002, 1.0, "is_direct", by_links=True, in_steps=True),
    "trivance": Profile(0.005, 1.0, "is_direct", in_steps=True),
    "swing": Profile(0.005, 1.0, "is_direct", in_steps=True),
    "bine": Profile(0.005, 1.0, "has_one_root", in_steps=True),
    "double-binary-tree": Profile(0.02, 1.0, "has_one_root"),
    "recursive-doubling": Profile(0.005, 1.0, "exchanges_directly", in_steps=True),
    "recursive-halving-doubling": Profile(0.01, 1.0),
    "recursive-halving-doubling-steps": Profile(0.005, 1.0, in_steps=True),
    "torus-2-phase": Profile(0.005, 1.0, in_steps=True),
    "bruck": Profile(0.005, 1.0, in_steps=True),
    "pat": Profile(0.005, 1.0, in_steps=True),
}
"""Profiles of planners.  ``nccl`` is left out, as its plans are those of others, and ``milp``, which the clock ends."""
BRANCHING = ("nvls", "nvls-tree", "collnet", "steiner")
"""Planners whose trees branch at switches."""


def exact_candidates(case: Case) -> list[Candidate]:
    """List the planners that reach the bound for endless data on many networks, in the order to run them."""
    names: tuple[str, ...] = ("forestcoll", "steiner", "symmetric")
    if case.collective.in_pairs:
        names = ("multicommodity", "fast") if "traffic" in case.options else ("multicommodity",)
    elif case.collective.has_two_phases:
        names = ("forestcoll", "strength", "allreduce-lp", "steiner", "symmetric")
    work = {name: PROFILES[name].work(case) for name in names if _takes(name, case)}
    if case.branches and case.collective.has_two_phases and "trees_per_root" not in case.options:
        work = {SPANNING: PROFILES["strength"].work(case)} | work
    return [Candidate(name, seconds, seconds) for name, seconds in work.items()]


def timed_candidates(case: Case, num_bytes: int, budget: float) -> list[Candidate]:
    """List the planners for a size in the order of the least times of their plans, and then of their costs.

    Symmetric trees come before the exact plan, and may stand in for it, only where that costs more than the budget.
    """
    first = "multicommodity" if case.collective.in_pairs else "forestcoll"
    exact = replace(_candidate(first, case), planner=EXACT_PLAN)
    candidates = [exact, *(_candidate(name, case) for name in PROFILES if _takes(name, case))]
    if "trees_per_root" not in case.options and _takes("forestcoll", case):
        candidates += [_candidate("forestcoll", case, trees_per_root=count) for count in TREE_COUNTS]

    def rank(candidate: Candidate) -> tuple[Fraction, float]:
        follows = candidate.planner == SYMMETRIC and exact.cost <= budget
        cost = max(candidate.cost, exact.cost) if follows else candidate.cost
        return case.least_time(num_bytes, case.intake, candidate.messages, candidate.hops), cost

    return sorted(candidates, key=rank)


def _takes(name: str, case: Case) -> bool:
    """Whether a planner plans the collective with the user's options."""
    planner, options = PLANNERS[name], planner_options(name, case)
    return (case.branches or name not in BRANCHING) and all(
        [planner.plans(case.collective), *(planner.takes(case.collective, option) for option in options)]
    )


def planner_options(name: str, case: Case) -> dict[str, Any]:
    """Return the user's options for a planner: one whose trees never branch at switches does as told anyway."""
    options = dict(case.options)
    if not PLANNERS[name].takes(case.collective, "in_network"):
        options.pop("in_network", None)
    return options


def _candidate(name: str, case: Case, **options: Any) -> Candidate:
    """Estimate the work of a planner and of predicting its plan, and what this takes at least."""
    profile, count = PROFILES[name], options.get("trees_per_root", 1)
    work = profile.work(case)
    if profile.in_steps:
        work += STEP_PREDICTION * case.num_ranks / 32
    elif not profile.predicts:
        work += TREE_PREDICTION * (case.num_ranks / 32) ** 2 * (1 + count / 4)
    messages = case.root_messages * count if profile.has_tree_per_root else 0
    hops = (case.num_ranks - 1) * len(case.collective.phases) if name == "ring" else 1
    suits = getattr(case, profile.suits) if isinstance(profile.suits, str) else profile.suits
    return Candidate(name, work, work if suits else UNSUITED * work, options, messages, hops)
