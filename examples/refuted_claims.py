"""Claims of the direct-connect and FAST papers that do not hold: the claimed number, the true one, and a certificate.

Each line can be checked by hand; ``docs/explanation/refutations.md`` has the proofs, and ``circulant_conjecture.py``
the certificate of Conjecture 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from collopt.planners import bfb_cost
from collopt.planners.all_to_all.fast import schedule_all_to_allv
from collopt.schedules.stages.two_tier_cost import TwoTierModel
from collopt.topologies import (
    DirectGraph,
    bandwidth_optimum,
    circulant,
    circulant_digraph,
    de_bruijn,
    generalized_kautz,
    line_graph,
    reverse_symmetry,
    torus,
)

Claim = tuple[str, object, object, str]
GPUS = 8


def theorem_3_of_fast() -> Claim:
    """One GPU has everything for one GPU."""
    traffic = np.zeros((2 * GPUS, 2 * GPUS), dtype=np.int64)
    traffic[0, GPUS] = GPUS * 10**9
    model = TwoTierModel(450, 50, wake_up=0)
    options = {"servers": 2, "gpus_per_server": GPUS}
    schedule = schedule_all_to_allv(traffic, **options, stages="plain", max_stage_bytes=2**62)
    times = schedule.times(model, "balance first")
    claimed = 1 + Fraction(50, 450) * (GPUS + Fraction(GPUS, 2))
    why = f"balancing {times.balance}, stage {times.stages}, redistribution {times.tail} µs"
    return "FAST, Theorem 3: at most", claimed, times.total / schedule.optimum(model), why


def factor(graph: DirectGraph) -> Fraction:
    """T_B of the best breadth-first broadcast."""
    return bfb_cost(graph).bandwidth_factor


def direct_connect() -> Iterator[Claim]:
    """Conjecture 1, Theorem 10, table 9, tables 4 and 7, and tori."""
    graph = circulant(15, [1, 4, 5]).direct_graph()
    why = "six sources at distance 2 have four links: 6/4 > 8/6"
    yield "Conjecture 1, C(15, {1, 4, 5}): T_B", bandwidth_optimum(15), factor(graph), why
    base = circulant_digraph(7, [1, 2, 4]).direct_graph()
    why = "of d shards for each of G's, its own is not sent"
    yield "Theorem 10, line graph of 7 nodes: T_B", factor(base) + Fraction(1, 7), factor(line_graph(base)), why
    found = "yes" if reverse_symmetry(generalized_kautz(4, 8).direct_graph()) is not None else "no"
    yield "Table 9, Π(4, 8) is reverse-symmetric", "no", found, "an isomorphism to the transpose"
    why = "a self-loop takes one port of three"
    yield "Table 9, DBJ(3, 1): T_B", bandwidth_optimum(3), factor(de_bruijn(3, 1).direct_graph()), why
    tripled = line_graph(circulant(16, [3, 4]).direct_graph(), 3)
    hops = int(tripled.distances.sum())
    limit = f"{tripled.num_arcs / hops:.3e}"
    yield "Tables 4 and 7, L^3(C(16, {3, 4})): f", "8.12e-4", f"below {limit}", f"{tripled.num_arcs} links, {hops} hops"
    for single in (False, True):
        name = "one link" if single else "two links"
        graph = torus(3, 3, 2, single=single).direct_graph()
        why = "simple, so Theorem 13 holds" if single else "two links bring one shard in halves"
        yield f"Torus 3x3x2, {name} along 2: T_B", bandwidth_optimum(18), factor(graph), why


def main() -> None:
    """Print all of them."""
    for claim, claimed, found, why in (theorem_3_of_fast(), *direct_connect()):
        print(f"{claim:40} claimed {claimed!s:8} found {found!s:17} {why}")


if __name__ == "__main__":
    main()
