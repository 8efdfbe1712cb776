"""The main job end to end: describe two DGX A100 boxes, prove the best allgather, write it down, and run it.

Run it with ``make demo``, or ``python examples/demo.py --output FOLDER``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import collopt
from collopt.errors import ColloptError
from collopt.runtime import interpret_file, lower, run_local

ELEMENTS = 65_536


def show_bound(bound: collopt.Bound) -> None:
    """Print the bound and add up its witness in the open."""
    topology, cut = bound.topology, bound.witness
    outside = [rank for rank in topology.compute_nodes if rank not in cut.nodes]
    print(f"Bound      no allgather beats {float(bound.algbw):.2f} GB/s (1/x* = {bound.inverse_rate})")
    print(
        f"Cut        {cut.supply(topology)} shards must reach {', '.join(outside)} over links of "
        f"{cut.bandwidth(topology)} GB/s in all: 1/x* = {cut.supply(topology)} / {cut.bandwidth(topology)}"
    )


def show_plan(plan: collopt.Plan) -> None:
    """Print what the plan achieves and how full its links are."""
    forest, full = plan.schedule, 0
    for link, load in zip(plan.topology.links, plan.link_loads.tolist(), strict=True):
        full += load == plan.inverse_rate * forest.trees_per_root * link.bandwidth
    print(f"Plan       {plan}")
    print(f"Trees      height at most {forest.heights.max()} hops; {full} of {plan.topology.num_links} links are full")
    print(f"Estimate   1 GiB gathered in {plan.estimate('1G'):.0f} µs")


def run(plan: collopt.Plan) -> bool:
    """Run the plan on one process per rank and compare with torch's own all_gather."""
    program = lower(plan.schedule, "allgather", name=plan.topology.name, topology=plan.topology)
    print(f"Run        starting {program.num_ranks} processes (torch.distributed, gloo) ...", flush=True)
    report = run_local(program, backend="gloo", elements=ELEMENTS, timeout_s=600)
    print(f"           {report}")
    print("           (algbw of processes on one machine says nothing about the planned network)")
    return report.all_correct


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the files")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)

    topology = collopt.topologies.dgx_a100(boxes=2)
    print(f"Topology   {topology!r}")
    bound = collopt.bound(topology, "allgather")
    bound.verify()
    show_bound(bound)

    plan = collopt.plan(topology, "allgather")
    plan.save(folder / "allgather.json")
    plan.to_msccl_xml(folder / "allgather.xml")
    plan = collopt.load_plan(folder / "allgather.json", topology)
    show_plan(plan)
    print("Verified   read back: trees span, routes exist, loads and bound add up; gap", plan.gap)
    report = interpret_file(folder / "allgather.xml")
    print(f"XML        {report.steps} steps: no deadlock, right data in {report.interleavings} random interleavings")
    print(f"Files      {folder / 'allgather.json'} (plan), {folder / 'allgather.xml'} (MSCCL)")

    correct = run(plan)
    print("Data       verified: every rank holds every shard" if correct else "Data       WRONG")
    return 0 if correct and plan.gap == 0 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ColloptError as error:
        sys.exit(f"demo: {error}")
