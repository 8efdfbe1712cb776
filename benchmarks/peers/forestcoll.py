"""ForestColl's Python program: its trees on our networks, as plans that are verified and simulated."""

from __future__ import annotations

import importlib
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import networkx as nx

import collopt
from collopt.planners import plan_of_schedule
from collopt.schedules import Forest

from .rows import Row, microseconds, plan_row

MODULE = "pipeline_allgather"


def rows(checkout: Path, topology: collopt.Topology, num_bytes: int) -> list[Row]:
    """Run it on a network, with its own choice of the number of trees."""
    sys.path.insert(0, str(checkout))
    program = importlib.import_module(MODULE)
    graph = nx.DiGraph()
    for link in topology.links:
        # It wants whole numbers, or floats whose ratios are those of small ones.
        whole = link.bandwidth.denominator == 1
        graph.add_edge(link.tail, link.head, capacity=int(link.bandwidth) if whole else float(link.bandwidth))
    start = time.process_time()
    (rate, trees_per_root), found = program.optimal_pipeline_spanning_trees(
        graph, compute_nodes=list(topology.compute_nodes)
    )
    seconds = time.process_time() - start
    plan = plan_of_schedule(topology, "allgather", _forest(topology, trees_per_root, *found), planner="ForestColl")
    reported = microseconds(num_bytes, Fraction(topology.num_ranks * trees_per_root) / Fraction(rate))
    return [replace(plan_row(plan, "ForestColl", num_bytes, reported), remark=f"planned in {seconds:.2f} s of CPU")]


def _forest(topology: collopt.Topology, trees_per_root: int, trees: dict, weights: dict) -> Forest:
    """Convert trees, given as paths of links by root and number."""
    number = topology.node_index
    rows = [
        (number[key[0]], weights[key], [[number[way[0][0]], *(number[head] for _, head in way)] for way in ways])
        for key, ways in trees.items()
    ]
    return Forest.from_paths(topology.num_ranks, trees_per_root, rows)
