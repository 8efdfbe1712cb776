"""Run programs of others on the same networks as ours: ``python -m benchmarks.peers --forestcoll CHECKOUT``.

Each program is given by the path of a checkout or a build, and skipped without one.  The table has the time that a
program reports of its own schedule, the time of that schedule in our simulator, the bound that no schedule beats, and
the same of our planners.  `benchmarks/astra_sim.py` does so for ASTRA-sim.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import collopt
from collopt.schedules import as_bytes
from collopt.topologies import dgx1_v100, dgx_a100, torus

from . import forestcoll, tacos, verifier
from .rows import HEADING, own_rows

VERIFIED = ("auto", "greedy", "multitree", "ring")


def uneven_mesh() -> collopt.Topology:
    """3 x 3 ranks, 50 GB/s along rows and 25 GB/s along columns."""
    links = []
    for rank in range(9):
        links += [(rank, rank + 1, 50)] if rank % 3 < 2 else []
        links += [(rank, rank + 3, 25)] if rank < 6 else []
    return collopt.Topology.from_links(links, compute=range(9), bidirectional=True, name="uneven mesh")


def networks() -> list[collopt.Topology]:
    """Networks that all programs are asked about."""
    return [dgx1_v100(), dgx_a100(boxes=2), uneven_mesh(), torus(4, 4, bandwidth=50)]


def main() -> None:
    """Print the table, and the verdicts on files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forestcoll", type=Path, help=f"a checkout of ForestColl, which has {forestcoll.MODULE}.py")
    parser.add_argument("--tacos", type=Path, help="a program that prints the sends of TACOS; see tacos.py")
    parser.add_argument("--verifier", type=Path, help=f"a build of MSCCL-XML-Verifier, which has {verifier.PROGRAM}")
    parser.add_argument("--size", default="64M", help="bytes in all")
    arguments = parser.parse_args()
    num_bytes = as_bytes(arguments.size)
    given = {"ForestColl": arguments.forestcoll, "TACOS": arguments.tacos, "MSCCL-XML-Verifier": arguments.verifier}
    for name, path in given.items():
        if path is None or not path.exists():
            print(f"{name} is skipped: {'no path is given' if path is None else f'there is no {path}'}")
    print(HEADING, flush=True)
    for topology in networks():
        for row in own_rows(topology, num_bytes):
            print(row, flush=True)
        for name, rows in (("ForestColl", forestcoll.rows), ("TACOS", tacos.rows)):
            if given[name] is not None and given[name].exists():
                for row in rows(given[name].resolve(), topology, num_bytes):
                    print(row, flush=True)
    if arguments.verifier is not None and arguments.verifier.exists():
        for topology in networks():
            for planner, verdict in verifier.verdicts(arguments.verifier.resolve(), topology, VERIFIED).items():
                print(f"MSCCL-XML-Verifier, {topology.name}, {planner}: {verdict}", flush=True)


if __name__ == "__main__":
    main()
