"""Least time of a multicast all-to-allv on servers of a few GPUs, over all trees, grown edge by edge."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linprog

Tree = frozenset[tuple[int, int]]


def grown(root: int, ranks: int) -> set[Tree]:
    """All trees from a root: each has one edge more than a smaller one."""
    every: set[Tree] = {frozenset()}
    last = every
    for _ in range(ranks - 1):
        last = {
            tree | {(source, target)}
            for tree in last
            for reached in [{root} | {end for _, end in tree}]
            for source in reached
            for target in set(range(ranks)) - reached
        }
        every |= last
    return every


def least_time(
    classes: Mapping[tuple[int, frozenset[int]], int], servers: int, gpus: int, scale_up: float, scale_out: float
) -> float:
    """Solve the program with a column for every tree that reaches all that want a token."""
    ranks = servers * gpus
    columns, classes_of = [], []
    for at, (origin, wanted) in enumerate(classes):
        for tree in grown(origin, ranks):
            if wanted <= {end for _, end in tree}:
                load = np.zeros((2, 2, ranks))
                for source, target in tree:
                    inside = int(source // gpus == target // gpus)
                    load[inside, 0, source] += 1 / (scale_out, scale_up)[inside]
                    load[inside, 1, target] += 1 / (scale_out, scale_up)[inside]
                columns.append(load.ravel())
                classes_of.append(at)
    loads = np.column_stack([*columns, -np.ones(4 * ranks)])
    sizes = np.zeros((len(classes), len(columns) + 1))
    sizes[classes_of, np.arange(len(columns))] = 1
    costs = np.zeros(len(columns) + 1)
    costs[-1] = 1
    answer = linprog(costs, loads, np.zeros(4 * ranks), sizes, list(classes.values()), method="highs")
    return float(answer.fun)
