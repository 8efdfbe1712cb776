"""What a model costs over HiGHS itself: formulations against matrices built by hand, in the same run.

For each model the same program is written twice: by its formulation and `collopt.solve`, and by a few lines of numpy
whose arrays go straight to highspy.  Both must find the same optimum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import highspy
import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

import collopt
from collopt.formulations import all_to_all, throughput
from collopt.solvers import Algorithm

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

SIZES = {"throughput": ((4, 4), (6, 6), (8, 8)), "all-to-all": ((4, 4), (8, 8), (10, 10))}
INTERIOR_POINT = collopt.HighsOptions(algorithm=Algorithm.IPM)


class Program(NamedTuple):
    """Maximise the first column subject to rows with upper bounds; no column is negative."""

    matrix: Any
    upper: FloatArray


def throughput_by_hand(topology: collopt.Topology) -> Program:
    """Columns: the rate, a share per link, a flow per rank and link; rows as in `throughput`, all as ``<=``."""
    tails, heads, _, _ = topology.arrays
    ranks, links = topology.num_ranks, len(tails)
    rank, link = (grid.ravel() for grid in np.indices((ranks, links)))
    flow = 1 + links + rank * links + link
    within = links + np.arange(ranks * links)
    balance = links + ranks * links
    every, fours = np.arange(ranks * ranks), np.ones(ranks * links)
    at_rank = np.where(every // ranks == every % ranks, ranks - 1.0, -1.0)
    # In the row of (rank, node), what leaves the node counts 1, what enters it -1; at the rank itself it must arrive.
    ends = [balance + rank * ranks + nodes[link] for nodes in (tails, heads)]
    rows = np.concatenate([np.arange(links), within, within, *ends, balance + every])
    columns = np.concatenate([1 + np.arange(links), flow, 1 + link, flow, flow, np.zeros(len(every), dtype=np.int64)])
    numbers = np.concatenate([np.ones(links), fours, -fours, fours, -fours, at_rank])
    shape = (balance + ranks * ranks, 1 + links + ranks * links)
    bandwidths = [float(one.bandwidth) for one in topology.links]
    return Program(
        coo_array((numbers, (rows, columns)), shape=shape).tocsc(), np.append(bandwidths, np.zeros(shape[0] - links))
    )


def all_to_all_by_hand(topology: collopt.Topology) -> Program:
    """Columns: the rate, a flow per source and link; rows: a link's bandwidth, and what each other rank must keep."""
    tails, heads, _, _ = topology.arrays
    ranks, links = topology.num_ranks, len(tails)
    source, link = (grid.ravel() for grid in np.indices((ranks, links)))
    flow = 1 + source * links + link
    pairs = np.arange(ranks * ranks)
    ones = np.ones(len(flow))
    rows = [link, links + source * ranks + tails[link], links + source * ranks + heads[link], links + pairs]
    columns = [flow, flow, flow, np.zeros(len(pairs), dtype=np.int64)]
    # A source may send without end; every other rank keeps at least the rate.
    keeps = np.where(pairs // ranks == pairs % ranks, -float(ranks - 1), 1.0)
    numbers = [ones, ones, -ones, keeps]
    shape = (links + ranks * ranks, 1 + len(flow))
    matrix = coo_array((np.concatenate(numbers), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    bandwidths = [float(one.bandwidth) for one in topology.links]
    return Program(matrix.tocsc(), np.append(bandwidths, np.zeros(ranks * ranks)))


MODELS: dict[str, tuple[Callable[..., Any], Callable[[collopt.Topology], Program]]] = {
    "throughput": (throughput.build, throughput_by_hand),
    "all-to-all": (all_to_all.build, all_to_all_by_hand),
}


def solve_by_hand(program: Program) -> float:
    """Hand the arrays to HiGHS with the same settings, and return the optimum."""
    rows, columns = program.matrix.shape
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = rows, columns
    model.col_cost_ = np.append(-1.0, np.zeros(columns - 1))
    model.col_lower_, model.col_upper_ = np.zeros(columns), np.full(columns, highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = np.full(rows, -highspy.kHighsInf), program.upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = program.matrix.indptr, program.matrix.indices
    model.a_matrix_.value_ = program.matrix.data
    highs = highspy.Highs()
    for name, value in INTERIOR_POINT.settings().items():
        highs.setOptionValue(name, value)
    highs.passModel(model)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError("HiGHS found no optimum of the program built by hand")
    return -float(highs.getInfo().objective_function_value)


def measure() -> list[dict[str, object]]:
    """Build and solve every size of every model both ways; ratios are against the matrices built by hand."""
    rows: list[dict[str, object]] = []
    for name, sizes in SIZES.items():
        build, by_hand = MODELS[name]
        # Imports and first calls are not what is compared.
        collopt.solve(build(collopt.topologies.ring(3)), INTERIOR_POINT)
        for size in sizes:
            topology = collopt.topologies.torus(*size, bandwidth=10)
            start = time.process_time()
            model = build(topology)
            built = time.process_time()
            solution = collopt.solve(model, INTERIOR_POINT)
            solved = time.process_time()
            optimum = solve_by_hand(by_hand(topology))
            hand = time.process_time() - solved
            if abs(optimum - solution.objective) > 1e-5 * optimum:
                raise RuntimeError(f"{name} on {topology} is {solution.objective}, and {optimum} by hand")
            rows.append(
                {
                    "benchmark": "models",
                    "case": f"{name}, {topology.name}",
                    "columns": len(model.linear_program().costs),
                    "build_cpu_s": built - start,
                    "cpu_s": solved - start,
                    "by_hand_cpu_s": hand,
                    "ratio": (solved - start) / hand,
                }
            )
    return rows
