"""Duals as witnesses: exactly the combinatorial bound, on many networks, whatever the algorithm of the solver."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import UnsupportedError
from collopt.formulations import throughput
from collopt.planners import lp_bound
from collopt.planners.trees.lp_bounds import build_program, program_duals
from collopt.schedules import ALLREDUCE, Bound, Cut, CutDual
from collopt.solvers import Algorithm, HighsOptions, solve
from collopt.topologies import (
    Topology,
    dgx1_v100,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    leaf_spine,
    mi250,
    mi300x,
    rail,
    ring,
    torus,
)
from direct_networks import DIRECT
from sample_sizes import examples
from slow_cases import slow_where
from strategies import eulerian_topologies, switch_free_topologies

NETWORKS = [
    *DIRECT,
    *(ring(size, bandwidth=7, bidirectional=False) for size in (3, 6, 9)),
    dgx_a100(),
    dgx_a100(boxes=2),
    dgx_h100(),
    dgx_h100(boxes=2),
    dgx1_v100(),
    dgx1_v100(boxes=2),
    mi250(),
    mi250(boxes=2),
    mi250().restrict(range(8)),
    mi250(boxes=2).restrict([*range(8), *range(16, 24)]),
    mi300x(),
    mi300x(boxes=2),
    leaf_spine(3, 2, 2, 50),
    leaf_spine(3, 2, 2, 50, oversubscription=2),
    leaf_spine(2, 4, 2, 100, oversubscription="3/2"),
    leaf_spine(4, 2, 3, 25, oversubscription=3),
    fat_tree(4, bandwidth=10, oversubscription="5/3"),
    rail(3, 4),
    rail(2, 4, oversubscription=3),
    dragonfly(2, 2, 1, bandwidth=10, oversubscription=2),
    dgx1_v100().derate("box0/gpu0", "box0/gpu1", "1/3"),
    dgx1_v100().without_link("box0/gpu0", "box0/gpu3"),
    dgx_a100(boxes=2).derate("box0/gpu0", "box0/nvswitch", "1/2"),
    mi250().derate("box0/gpu0", "box0/gpu1", "3/4"),
    torus(4, 4, bandwidth=10).without_node("gpu0.0"),
    ring(6, bandwidth=40).derate("gpu2", "gpu3", "1/7"),
]


def uneven(topology: Topology) -> list[int]:
    """Weights 0, 1, 2, 3, 0, 1, ... in rank order."""
    return [rank % 4 for rank in range(topology.num_ranks)]


@pytest.mark.parametrize(
    "topology",
    slow_where(
        NETWORKS, lambda topology: topology.num_ranks > 16 or topology.name.startswith(("mi250-2", "dgx-h100-2"))
    ),
    ids=lambda topology: topology.name.replace(" ", "_"),
)
@pytest.mark.parametrize("collective", ["allgather", "broadcast"])
def test_the_exact_optimum_is_the_combinatorial_bound(topology: Topology, collective: str) -> None:
    """As fractions: the program's value, what its prices prove, and the best cut."""
    root = topology.num_ranks - 1 if collective == "broadcast" else None
    weights = None if root is None else [int(rank == root) for rank in range(topology.num_ranks)]
    best = collopt.bound(topology, collective, root=root)
    model = throughput.build(topology, weights=weights)
    solution = solve(model)
    solution.exact.verify()
    assert solution.exact.objective * best.inverse_rate == 1
    bound = Bound.from_witness(topology, collective, program_duals(model, solution), best.weights)
    bound.verify()
    assert bound.inverse_rate == best.inverse_rate
    assert isinstance(bound.witness, CutDual)
    assert isinstance(best.witness, Cut)


@settings(max_examples=examples(25))
@given(data=st.data(), topology=st.one_of(eulerian_topologies(max_ranks=5), switch_free_topologies(max_ranks=5)))
def test_random_networks_are_bounded_exactly_in_both_directions(data: st.DataObject, topology: Topology) -> None:
    """Allgather and reduce-scatter with uneven shards, broadcast and reduce from any root."""
    root = data.draw(st.integers(0, topology.num_ranks - 1))
    requests: list[tuple[str, dict[str, Any]]] = [
        ("allgather", {"weights": uneven(topology)}),
        ("reduce_scatter", {"weights": uneven(topology)}),
        ("broadcast", {"root": root}),
        ("reduce", {"root": root}),
    ]
    for collective, options in requests:
        bound = lp_bound(topology, collective, **options)
        bound.verify()
        assert bound.algbw == collopt.bound(topology, collective, **options).algbw
        assert bound.weights == collopt.bound(topology, collective, **options).weights


@settings(max_examples=examples(20))
@given(topology=eulerian_topologies(max_ranks=5, max_switches=2))
def test_allreduce_by_trees_is_bounded_by_its_program(topology: Topology) -> None:
    """What prices prove is the program's exact value; no plan of trees is faster."""
    exact = solve(build_program(topology, ALLREDUCE)).exact
    bound = lp_bound(topology, "allreduce")
    bound.verify()
    assert bound.algbw == exact.objective
    assert collopt.plan(topology, "allreduce").algbw <= bound.algbw


def test_switches_that_copy_or_add_up_raise_the_bound_of_an_allreduce() -> None:
    """Three GPUs around a switch: it only passes on, or it takes part."""
    rows = [(rank, "s", 30) for rank in "abc"]
    bounds = []
    for able in ([], ["s"]):
        star = Topology.from_links(
            rows, compute="abc", switches="s", bidirectional=True, multicast=able, aggregation=able
        )
        bounds.append(lp_bound(star, "allreduce"))
        bounds[-1].verify()
    assert [bound.algbw for bound in bounds] == [Fraction(45, 2), 30]


@pytest.mark.parametrize("algorithm", Algorithm, ids=lambda algorithm: algorithm.name.lower())
@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_prices_of_any_algorithm_prove_a_bound(algorithm: Algorithm, collective: str) -> None:
    """Without a basis prices are rounded and made to fit, and still prove nearly as much."""
    topology = dgx1_v100()
    best = lp_bound(topology, collective)
    bound = lp_bound(topology, collective, options=HighsOptions(algorithm=algorithm))
    bound.verify()
    assert bound.algbw >= best.algbw
    assert float(bound.algbw) == pytest.approx(float(best.algbw), rel=1e-4)


def test_unbalanced_switches_have_a_bound() -> None:
    """The combinatorial planner refuses them; prices do not care."""
    links = [("a", "s", 30), ("b", "s", 30), ("s", "a", 20), ("s", "b", 20)]
    topology = Topology.from_links(links, compute="ab", switches="s")
    with pytest.raises(UnsupportedError, match="has 60 GB/s ingress and 40 GB/s egress; expected equal values"):
        collopt.bound(topology, "allgather")
    bound = lp_bound(topology, "allgather")
    bound.verify()
    assert bound.algbw == 40
