"""Catalogue of planners: their names, functions and options."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from ..schedules import ALLREDUCE, BROADCAST, COLLECTIVES, PAIR_COLLECTIVES, REDUCE, TREE_COLLECTIVES, Collective
from ..schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ..topologies import Topology
from .plans.plan import Plan

PlannerName = Literal[
    "auto", "forestcoll", "symmetric", "strength", "allreduce-lp", "multicommodity", "ring", "hierarchical-ring",
    "double-binary-tree", "nvls", "nvls-tree", "collnet", "recursive-halving-doubling", "multitree", "greedy", "milp",
    "blink", "shortest-paths", "fast", "few-steps", "bfb", "steiner", "swing", "bine", "trivance", "torus-2-phase",
    "recursive-doubling", "recursive-halving-doubling-steps", "bruck", "pat", "ring-unwinding", "nccl",
]  # fmt: skip
"""The planners that come with collopt."""


@dataclass(frozen=True)
class Planner:
    """A planner: its name, function and options by collective.

    Attributes
    ----------
    name : str
        As `plan` takes it.
    summary : str
        One line for listings.
    function : callable or str
        Takes a topology, the `Collective` unless it plans only one, and the options as keywords; returns a `Plan`.  As
        a string, ``"package.module:function"`` below `collopt.planners`, imported when called: kernels load slowly.
    options : mapping of str to tuple of str
        The names of the options for each collective that it plans, by the collective's name.

    Examples
    --------
    >>> PLANNERS["bfb"].options["allgather"]
    ('chunks', 'size')
    """

    name: str
    summary: str
    function: Callable[..., Plan] | str
    options: Mapping[str, tuple[str, ...]]

    def plans(self, collective: AnyCollective) -> bool:
        """Whether it plans a collective."""
        return self.options.get(str(collective)) is not None

    def takes(self, collective: AnyCollective, option: str) -> bool:
        """Whether it has an option for a collective."""
        return option in self.options.get(str(collective), ())

    def __call__(self, topology: Topology, collective: AnyCollective, **options: Any) -> Plan:
        """Plan, with options that it has."""
        if isinstance(self.function, str):
            module, _, name = self.function.partition(":")
            function: Callable[..., Plan] = getattr(import_module(f".{module}", __package__), name)
        else:
            function = self.function
        several = len(self.options) > 1
        return function(topology, as_collective(collective), **options) if several else function(topology, **options)


def _for(collectives: Iterable[Collective], *options: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(map(str, collectives), options)


class _PairOptions(Mapping[str, tuple[str, ...]]):
    """Planner options by collective: those given for tree collectives; root or traffic, and `more`, for pair ones."""

    def __init__(self, more: tuple[str, ...], trees: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._more, self._trees = more, trees or {}

    def __getitem__(self, name: str) -> tuple[str, ...]:
        known = COLLECTIVES.get(name)
        if known is None or not known.in_pairs:
            return self._trees[name]
        own = (("root", known.has_one_root), ("traffic", known.takes_traffic))
        return (*(option for option, has_it in own if has_it), *self._more)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._trees, *map(str, PAIR_COLLECTIVES)))

    def __len__(self) -> int:
        return len(self._trees) + len(PAIR_COLLECTIVES)


TREE_OPTIONS = ("trees_per_root", "root", "weights", "in_network")

PLANNERS = {
    row[0]: Planner(*row)
    for row in (
        ("auto", "the best plan of the exact planners listed next, or of all for a size",
         "auto.portfolio:plan_auto",
         _PairOptions(("chunks", "order", "size", "effort"), _for(TREE_COLLECTIVES, *TREE_OPTIONS, "size", "effort"))),
        ("forestcoll", "throughput-optimal spanning trees, one set per rank (ForestColl)",
         "trees.forestcoll:plan_trees", _for(TREE_COLLECTIVES, *TREE_OPTIONS)),
        ("symmetric", "trees of a few ranks whose images under symmetries are all others, for up to a million ranks",
         "symmetry.symmetric:plan_symmetric", _for(EVERY_ROOT)),
        ("strength", "optimal allreduce on symmetric bidirectional links, by network strength",
         "trees.strength:plan_strength", _for([ALLREDUCE], "in_network")),
        ("allreduce-lp", "optimal tree allreduce by linear programming",
         "trees.allreduce_lp:plan_allreduce_lp", _for([ALLREDUCE], "trees_per_root", "in_network")),
        ("multicommodity", "paths of whole chunks from a maximum concurrent flow, for any traffic matrix",
         "pairs.multicommodity:plan_pairs", _PairOptions(("chunks", "order"))),
        ("ring", "rings through all boxes, as NCCL and RCCL run them",
         "patterns.ring:plan_ring", _for(TREE_COLLECTIVES, "channels", "order", "root", "weights")),
        ("hierarchical-ring", "rings among boxes, then rings inside boxes (BlueConnect)",
         "patterns.hierarchical_ring:plan_hierarchical_ring", _for(EVERY_ROOT, "weights")),
        ("double-binary-tree", "two trees over the boxes, as NCCL runs them",
         "patterns.double_binary_tree:plan_double_binary_tree", _for([ALLREDUCE, BROADCAST, REDUCE], "root")),
        ("nvls", "one switch adds up and copies, as NCCL's NVLS",
         "patterns.nvls:plan_nvls", _for(EVERY_ROOT)),
        ("nvls-tree", "NVLS in boxes, double binary trees between them, as NCCL's NVLSTree",
         "patterns.nvls:plan_nvls_tree", _for([ALLREDUCE])),
        ("collnet", "switches of the fabric add up for GPUs that do so in boxes, as NCCL's CollNet",
         "patterns.nvls:plan_collnet", _for([ALLREDUCE])),
        ("recursive-halving-doubling", "recursive halving and doubling among ranks that differ in one bit",
         "patterns.recursive_halving_doubling:plan_recursive_doubling", _for(EVERY_ROOT)),
        ("multitree", "one greedily grown tree per rank (MultiTree)",
         "patterns.multitree:plan_multitree", _for(EVERY_ROOT, "weights")),
        ("greedy", "chunks matched greedily with links over time, in the manner of TACOS",
         "patterns.greedy:plan_greedy", _for(EVERY_ROOT, "chunks", "weights")),
        ("milp", "the best schedule in few steps that an integer program finds in some seconds, as TACCL and TE-CCL do",
         "analysis.milp:plan_milp", _for(EVERY_ROOT, "chunks")),
        ("blink", "optimal trees that all have one root (Blink)",
         "patterns.blink:plan_blink", _for(TREE_COLLECTIVES, "root", "weights")),
        ("shortest-paths", "each pair over one shortest path, all at once, as libraries send it",
         "pairs.multicommodity:plan_shortest_paths", _PairOptions(())),
        ("fast", "balanced one-to-one stages between boxes of GPUs, for skewed traffic (FAST)",
         "patterns.fast:plan_fast", _PairOptions(("size",))),
        ("few-steps", "every rank to every other, along rails and boxes, or trees on rails, for small data",
         "sizes.few_steps:plan_few_steps", _for(EVERY_ROOT, "family", "size")),
        ("bfb", "breadth-first broadcast in steps, for networks without switches",
         "bfb.bfb:plan_bfb", _for(EVERY_ROOT, "chunks", "size")),
        ("steiner", "the best trees that branch at able switches, on small networks",
         "trees.steiner:plan_steiner", _for(TREE_COLLECTIVES, "root", "weights")),
        ("swing", "exchanges at distances 1, 1, 3, 5, ..., on tori with all ports (Swing)",
         "step_patterns.torus_exchanges:plan_swing", _for(EVERY_ROOT)),
        ("bine", "the same distances in trees and butterflies (Bine trees)",
         "step_patterns.torus_exchanges:plan_bine", _for(EVERY_ROOT) | _for([BROADCAST, REDUCE], "root")),
        ("trivance", "exchanges with both sides at distances 1, 3, 9, ..., on tori (Trivance)",
         "step_patterns.torus_exchanges:plan_trivance", _for(EVERY_ROOT)),
        ("torus-2-phase", "rings along one dimension of a torus after the other (bucket algorithm)",
         "step_patterns.torus_exchanges:plan_torus_phases", _for(EVERY_ROOT)),
        ("recursive-doubling", "exchanges in steps with the rank that differs in one bit, the lowest first",
         "step_patterns.rank_offsets:plan_doubling", _for(EVERY_ROOT)),
        ("recursive-halving-doubling-steps",
         "recursive halving and doubling by one port, in steps, the highest bit first",
         "step_patterns.rank_offsets:plan_halving_doubling", _for(EVERY_ROOT)),
        ("bruck", "sends at distances of one digit in any radix, the lowest first (Bruck et al.)",
         "step_patterns.rank_offsets:plan_bruck", _for(EVERY_ROOT, "radix")),
        ("pat", "parallel aggregated trees, the farthest ranks first, as NCCL's PAT",
         "step_patterns.rank_offsets:plan_pat", _for(EVERY_ROOT, "aggregation")),
        ("ring-unwinding", "optimal trees on a network whose switches are replaced by rings, as TACCL and TACOS do",
         "step_patterns.ring_unwinding:plan_ring_unwinding", _for(TREE_COLLECTIVES, "root", "weights")),
        ("nccl", "rings, trees, NVLS or PAT, whichever NCCL's tuning chooses for the size",
         "step_patterns.nccl_choice:plan_nccl", _for(EVERY_ROOT, "size") | _for([BROADCAST, REDUCE], "size", "root")),
    )
}  # fmt: skip
"""By name.  A planner that does not suit a topology raises `UnsupportedError`, whose message is the reason."""
