"""Networks and planners whose files are linted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import collopt
from collopt.errors import ColloptError
from collopt.planners import PLANNERS, Plan
from collopt.topologies import (
    Topology,
    dgx1_v100,
    dgx_a100,
    dgx_h100,
    generalized_kautz,
    hypercube,
    leaf_spine,
    mi250,
    mi300x,
    rail,
    ring,
    torus,
)

__all__ = ["COLLECTIVES", "TOPOLOGIES", "calls", "files", "plans"]

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all")
TOPOLOGIES = {
    topology.name: topology
    for topology in (
        dgx_a100(boxes=2),
        dgx_h100(boxes=2),
        dgx1_v100(),
        mi250(boxes=1),
        mi300x(),
        leaf_spine(3, 2, 2, oversubscription=2),
        rail(2, 4),
        torus(3, 3),
        torus(2, 2, 2),
        hypercube(3),
        generalized_kautz(2, 9),
        ring(4, bandwidth=25),
    )
}


class File(NamedTuple):
    """A file and what it was written for."""

    path: Path
    runtime: str
    planner: str


def calls(third: int) -> list[tuple[str, str]]:
    """Names of networks and collectives: two of six for each of twelve networks, so that each collective has four."""
    return [
        (name, collective)
        for number, name in enumerate(sorted(TOPOLOGIES))
        for position, collective in enumerate(COLLECTIVES)
        if (number + position) % 3 == third
    ]


def plans(topology: Topology, collective: str) -> Iterator[tuple[str, Plan]]:
    """What every planner that can makes of a call; `milp` takes long for many ranks."""
    options: dict[str, Any] = {"root": topology.num_ranks - 1} if collective in ("broadcast", "reduce") else {}
    for name, planner in PLANNERS.items():
        if name == "auto" or not planner.plans(collective) or (name == "milp" and topology.num_ranks > 9):
            continue
        try:
            yield name, collopt.plan(topology, collective, planner=name, **options)
        except ColloptError:
            continue  # Not every planner takes every network; that some do is asserted where the files are counted.


def files(folder: Path, topology: Topology, collective: str, runtimes: tuple[str, ...]) -> Iterator[File]:
    """Write what fits a runtime."""
    for planner, plan in plans(topology, collective):
        for runtime in runtimes:
            path = folder / f"{planner}-{runtime}.xml"
            try:
                plan.to_msccl_xml(path, runtime=runtime)
            except ColloptError:
                continue  # Beyond the limits of the runtime, which is the exporter's to tell.
            yield File(path, runtime, planner)
