"""What `plan` refuses: requests that no planner understands, and networks that a planner does not suit."""

from __future__ import annotations

from typing import Any

import pytest
from test_nvls import with_able

import collopt
from collopt.errors import ColloptError, UnsupportedError
from collopt.topologies import (
    Topology,
    build,
    complete,
    dgx_a100,
    dgx_h100,
    gb200_nvl72,
    hypercube,
    mi300x,
    rail,
    ring,
    torus,
)

BEHIND = Topology.from_links(
    [("a", "b", 1), ("b", "switch", 1), ("c", "switch", 1)],
    compute="abc",
    switches=["switch"],
    bidirectional=True,
    name="behind",
)
"""Rank a is linked to b only, so no switch joins it with c."""
TWO_NICS = Topology.from_links(
    [("a", "fabric", 1), ("b", "nic0", 1), ("nic0", "fabric", 1), ("b", "nic1", 1), ("nic1", "fabric", 1)],
    compute="ab",
    switches=["fabric", "nic0", "nic1"],
    bidirectional=True,
)
LEAVES = build("leaf-spine", leaves=4, spines=2, hosts_per_leaf=2)
ONE_WAY = ring(4, bidirectional=False)

REQUESTS: list[tuple[Any, Any, dict[str, Any], str]] = [
    # Network, collective, options, and what the message names.
    (3, "allgather", {}, "the topology is 3"),
    (None, "allgather", {}, "the topology is None"),
    ("dgx-a10", "allgather", {}, "'dgx-a10' (did you mean dgx-a100"),
    ("dgx-a100", "allgather", {"boxes": 2}, "write plan(collopt.topology('dgx-a100', boxes=2), ...)"),
    (ring(3), "allgather", {"n": 4}, "n is an option of networks by name or file"),
    *((ring(3), name, {}, "does not cover the collective") for name in ("ALLGATHER", "gossip", "", None, 3, [], {})),
    (ring(3), "all_gather", {}, "did you mean 'allgather'?"),
    *((ring(3), "allgather", {"planner": name}, "there is no planner") for name in ("oracle", "", None, 3, [], {})),
    *(
        (ring(3), "allgather", {"planner": name}, "did you mean forestcoll?")
        for name in ("forest", "FORESTCOLL", "forest_coll", "ForestColl", "forestcol")
    ),
    (ring(3), "allgather", {"tree_per_root": 2}, "'tree_per_root' (did you mean trees_per_root?)"),
    (
        ring(3),
        "allgather",
        {"chunks": 2},
        "'forestcoll' has no option 'chunks'; its options: trees_per_root",
    ),
    (ring(3), "allgather", {"planner": "ring", "trees_per_root": 2}, "; planners with trees_per_root: forestcoll"),
    (ring(4), "allreduce", {"planner": "bine", "chunks": 1}, "'bine' has no option 'chunks'; its options: none"),
    (ring(3), "all_to_all", {"in_network": False}, "'multicommodity' has no option 'in_network'"),
    (ring(3), "allgather", {"planner": "bfb", "weights": [1, 2, 3]}, "planner 'bfb' takes no weights"),
    (ring(3), "allreduce", {"weights": [1, 1, 2]}, "allreduce takes no weights"),
    (ring(3), "allgather", {"weights": [1, 2]}, "weights"),
    (ring(3), "allgather", {"weights": 3}, "weights is 3"),
    *((ring(4), "allgather", {"planner": name, "root": 1}, "has no root") for name in ("auto", "bfb", "bine", "nccl")),
    (ring(3), "broadcast", {}, "broadcast needs a root"),
    (ring(3), "broadcast", {"root": [0]}, "root [0]"),
    (ring(3), "allgather", {"traffic": [[1]]}, "allgather takes no traffic"),
    (ring(3), "all_to_all", {"traffic": [[1]]}, "all_to_all has equal parts and takes no traffic"),
    (ring(3), "all_to_allv", {}, "all_to_allv needs traffic"),
    (ring(3), "allgather", {"planner": "ring", "size": "many"}, "size"),
    (ring(3), "allgather", {"costs": "free"}, "costs"),
    (ring(3), "allgather", {"in_network": 1}, "in_network is 1"),
    (ring(3), "allreduce", {"trees_per_root": 0}, "trees_per_root is 0; expected a whole number from 1 to"),
    (complete(8), "allgather", {"planner": "bruck", "radix": 1}, "radix is 1"),
    (
        complete(8),
        "allgather",
        {"planner": "pat", "aggregation": 3},
        "aggregation is 3; expected a power of two",
    ),
    (complete(8), "allgather", {"planner": "pat", "aggregation": 8}, "aggregation is 8"),
]

UNSUITED: list[tuple[str, Topology, str, str]] = [
    # Planner, network, collective, and the reason.
    ("hierarchical-ring", dgx_a100(), "allgather", "form one box"),
    ("hierarchical-ring", mi300x(boxes=2).without_node("box1/gpu3"), "allgather", "have 7 or 8 ranks"),
    ("double-binary-tree", ring(6), "allreduce", "passes through other ranks"),
    ("recursive-halving-doubling", complete(6), "allgather", "needs a power of two ranks"),
    ("recursive-halving-doubling", torus(4, 4), "allgather", "passes through other ranks"),
    ("multitree", dgx_a100(boxes=33), "allgather", "up to 256"),
    ("greedy", dgx_a100(boxes=33), "allgather", "up to 256"),
    ("greedy", dgx_a100(boxes=32), "allgather", "65280 hops and 256 chunks"),
    ("milp", dgx_a100(boxes=4), "allgather", "63488 variables"),
    ("milp", dgx_a100(boxes=33), "allgather", "up to 256 ranks"),
    ("blink", ONE_WAY, "allgather", "links without a reverse link of the same bandwidth"),
    ("strength", ONE_WAY, "allreduce", "the link from 'gpu0' to 'gpu1' has 1 GB/s"),
    ("swing", torus(4, 3), "allgather", "expected even sizes, not 4x3"),
    ("swing", complete(6), "allgather", "is no torus"),
    ("bine", ring(5), "allgather", "expected even sizes"),
    ("trivance", complete(6), "allgather", "is no torus"),
    ("torus-2-phase", dgx_a100(), "allgather", "is no torus"),
    ("recursive-doubling", complete(6), "allgather", "needs a power of two ranks"),
    ("recursive-halving-doubling-steps", ring(5), "allgather", "needs a power of two ranks"),
    ("bruck", BEHIND, "allgather", "every path there in behind passes through other ranks"),
    ("ring-unwinding", LEAVES, "allgather", "'leaf0' of leaf-spine-4x2 and 'spine0'"),
    ("ring-unwinding", torus(3, 3), "allgather", "has no switches to unwind"),
    ("ring-unwinding", TWO_NICS, "allgather", "and 'nic1' are linked"),
    ("bfb", dgx_a100(), "allgather", "switches"),
    ("steiner", hypercube(3), "allgather", "no switch of hypercube-3 multicasts or aggregates"),
    ("nvls", dgx_a100(), "allreduce", "for the 8 ranks in the box of 'box0/gpu0'"),
    ("nvls", mi300x(), "allgather", "for the 8 ranks"),
    ("nvls", with_able(dgx_h100(), "nvswitch", group=7), "allreduce", "for the 8 ranks"),
    ("nvls", dgx_h100(2), "allreduce", "no switch between boxes"),
    ("nvls", dgx_h100(2), "allgather", "16 ranks, in boxes of 8"),
    ("nvls", gb200_nvl72(), "reduce_scatter", "72 ranks, in boxes of 72"),
    ("nvls", ONE_WAY, "allgather", "links without a reverse link of the same bandwidth"),
    ("nvls-tree", dgx_h100(), "allreduce", "form one box"),
    ("nvls-tree", with_able(mi300x(2), "ib"), "allreduce", "in the box of 'box0/gpu0'"),
    ("collnet", dgx_h100(2), "allreduce", "no switch between boxes"),
    ("collnet", dgx_h100(), "allreduce", "form one box"),
    ("collnet", gb200_nvl72(2), "allreduce", "has boxes of 72 ranks"),
    ("collnet", rail(1, 8, sharp=True), "allreduce", "form one box"),
]


@pytest.mark.parametrize(("network", "collective", "options", "words"), REQUESTS)
def test_requests_are_refused_by_name(network: Any, collective: Any, options: dict[str, Any], words: str) -> None:
    """In one line that names the argument, before the work."""
    with pytest.raises(ColloptError) as refused:
        collopt.plan(network, collective, **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("planner", "network", "collective", "words"), UNSUITED, ids=str)
def test_planners_say_why_they_do_not_suit_a_network(
    planner: str, network: Topology, collective: Any, words: str
) -> None:
    """In one line."""
    with pytest.raises(UnsupportedError) as refused:
        collopt.plan(network, collective, planner=planner)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
