"""Planning time and memory on growing clusters and on irregular networks.

Each case is planned in a process of its own, after one small plan that loads the kernels; what is timed is the CPU
time of planning including verification.  The peer is ForestColl's own report: 2190 s (A100) and 2258 s (MI250) of
wall time on 128 cores for 1024 GPUs (its section 6.5), which is quoted and not rerun, so no ratio is formed with it.

Run alone: ``python benchmarks/scaling.py CASE`` prints one JSON line.
"""

from __future__ import annotations

import json
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import collopt
from collopt.topologies import (
    Topology,
    circulant,
    de_bruijn,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    generalized_kautz,
    hypercube,
    kautz,
    leaf_spine,
    mi250,
    torus,
)

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)


def random_nics(topology: Topology, lowest: int, highest: int) -> Topology:
    """Give every NIC a bandwidth of its own, the same on all its links."""
    generator, bandwidths, links = random.Random(0), {}, []
    for link in topology.links:
        nics = [node for node in (link.tail, link.head) if "nic" in node]
        if nics:
            bandwidth = bandwidths.setdefault(nics[0], Fraction(generator.randint(lowest, highest)))
            link = link._replace(bandwidth=bandwidth)  # noqa: PLW2901
        links.append(link)
    return Topology.from_links(links, compute=topology.compute_nodes, switches=topology.switch_nodes)


def random_regular(ranks: int, degree: int, highest: int) -> Topology:
    """Random regular graph with random bandwidths."""
    import networkx as nx

    generator, graph = random.Random(0), nx.random_regular_graph(degree, ranks, seed=0)
    links = [(tail, head, generator.randint(1, highest)) for tail, head in graph.edges]
    return Topology.from_links(links, compute=range(ranks), bidirectional=True)


def mixed_boxes() -> Topology:
    """Boxes of both vendors on one fabric."""
    nvidia, amd = dgx_a100(boxes=8), mi250(boxes=4)
    links = [*nvidia.links, *(link._replace(tail=_amd(link.tail), head=_amd(link.head)) for link in amd.links)]
    compute = [*nvidia.compute_nodes, *map(_amd, amd.compute_nodes)]
    switches = dict.fromkeys([*nvidia.switch_nodes, *map(_amd, amd.switch_nodes)])
    return Topology.from_links(links, compute=compute, switches=switches)


def _amd(node: str) -> str:
    return node if node == "ib" else f"amd-{node}"


CASES: dict[str, Callable[[], Topology]] = {
    **{f"A100, {ranks} GPUs": lambda ranks=ranks: dgx_a100(boxes=ranks // 8) for ranks in SIZES},
    **{f"MI250, {ranks} GPUs": lambda ranks=ranks: mi250(boxes=ranks // 16) for ranks in SIZES},
    "A100, 1024 GPUs, random NICs": lambda: random_nics(dgx_a100(boxes=128), 20, 25),
    "MI250, 1024 GPUs, random NICs": lambda: random_nics(mi250(boxes=64), 12, 16),
    "A100 and MI250, 128 GPUs": mixed_boxes,
    "fat tree, k = 8": lambda: fat_tree(8),
    "fat tree, k = 16": lambda: fat_tree(16),
    "leaf-spine, 1024 hosts": lambda: leaf_spine(32, 16, 32),
    "dragonfly, 72 hosts": lambda: dragonfly(4, 2, 2),
    "dragonfly, 131584 hosts": lambda: dragonfly(32, 16, 8),
    "random regular, 256 ranks": lambda: random_regular(256, 8, 100),
    "random regular, 1024 ranks": lambda: random_regular(1024, 8, 100),
    "random regular, 4096 ranks": lambda: random_regular(4096, 8, 100),
    "random regular, 1024 ranks, equal": lambda: random_regular(1024, 8, 1),
    "generalized Kautz, 1024 ranks": lambda: generalized_kautz(4, 1024),
    "generalized Kautz, 1024 ranks, degree 8": lambda: generalized_kautz(8, 1024),
    "generalized Kautz, 1000 ranks": lambda: generalized_kautz(4, 1000),
    "Kautz, 1280 ranks": lambda: kautz(4, 4),
    "Kautz, 1536 ranks": lambda: kautz(2, 9),
    "Kautz, 992 ranks": lambda: kautz(31, 1),
    "de Bruijn, 1024 ranks": lambda: de_bruijn(2, 10),
    "circulant, 1024 ranks": lambda: circulant(1024, [1, 32]),
    "torus 32 x 32": lambda: torus(32, 32),
    "torus 64 x 64": lambda: torus(64, 64),
    "torus 16 x 16 x 16": lambda: torus(16, 16, 16),
    "torus 32 x 32 x 32": lambda: torus(32, 32, 32),
    "hypercube, 4096 ranks": lambda: hypercube(12),
    "A100, 131072 GPUs": lambda: dgx_a100(boxes=16384),
    "H100, 131072 GPUs": lambda: dgx_h100(boxes=16384),
    "MI250, 131072 GPUs": lambda: mi250(boxes=8192),
    "A100, 1048576 GPUs": lambda: dgx_a100(boxes=131072),
    "fat tree, k = 64": lambda: fat_tree(64),
    "fat tree, k = 64, 4:1": lambda: fat_tree(64, oversubscription=4),
}


def plan_case(name: str) -> dict[str, object]:
    """Plan one case in this process."""
    topology = CASES[name]()
    collopt.plan(mi250(boxes=2), "allgather")
    collopt.plan(dgx_a100(boxes=4096), "allgather")  # also the kernels of long arrays
    start = time.process_time()
    bound = collopt.bound(topology, "allgather")
    middle = time.process_time()
    plan = collopt.plan(topology, "allgather")
    stop = time.process_time()
    if plan.gap > Fraction(1, 10_000) or plan.bound != bound:
        raise RuntimeError(f"{name} is not planned at its bound")
    return {
        "benchmark": "scaling",
        "case": name,
        "engine": "collopt",
        "cpu_s": stop - middle,
        "bound_cpu_s": middle - start,
        "peak_mib": peak_mib(),
        "ranks": topology.num_ranks,
        "trees_per_root": plan.bound.trees_per_root,
        "trees": plan.schedule.num_trees,
        "mean_height": plan.heights.mean,
        "max_height": plan.heights.highest,
    }


def peak_mib() -> float:
    """Most memory of this process so far; what `resource` says can be that of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure() -> list[dict[str, object]]:
    """Plan every case, and fit how planning time grows up to where symmetries take over."""
    rows = []
    for name in CASES:
        command = [sys.executable, __file__, name]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    for vendor in ("A100", "MI250"):
        points = [row for row in rows if row["case"] in {f"{vendor}, {ranks} GPUs" for ranks in SIZES if ranks <= 1024}]
        exponent = growth([(row["ranks"], row["cpu_s"]) for row in points])
        rows.append(
            {"benchmark": "scaling", "case": f"{vendor}, growth exponent", "engine": "collopt", "exponent": exponent}
        )
    return rows


def growth(points: list[tuple[float, float]]) -> float:
    """Slope of the line of least squares through the logarithms."""
    logs = [(math.log(ranks), math.log(seconds)) for ranks, seconds in points]
    mean_x, mean_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


if __name__ == "__main__":
    print(json.dumps(plan_case(sys.argv[1])))
