"""Readers of the JSON forms of a `Forest`, and of a `SymmetricForest`, whose arrays are compressed text."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import FileFormatError
from ...support.array_text import decode_integers
from ...support.arrays import IntArray
from ..paths.written_paths import path_arrays, schedule_fields, whole_count, whole_numbers
from .forest import Forest
from .symmetric_forest import SymmetricForest

FIELDS = ("kind", "direction", "trees_per_root", "root_weights", "paths", "trees")
COUNTS = ("num_ranks", "num_nodes", "num_generators", "num_trees", "num_paths", "num_path_nodes", "trees_per_root")
ARRAYS = ("generators", "roots", "weights", "routes", "path_lengths", "path_nodes")
MAX_ENTRIES = 2**27  # of an array


def forest_from_json(data: object, where: str) -> Forest:
    """Build the forest that a decoded JSON value describes; only its form is checked."""
    own = isinstance(data, Mapping) and "switches" in data
    fields = schedule_fields(data, "forest", (*FIELDS, "switches") if own else FIELDS, where)
    count = whole_count(fields["trees_per_root"], f"{where}: field schedule.trees_per_root")
    if not isinstance(fields["root_weights"], list):
        raise FileFormatError(f"{where}: field schedule.root_weights is not a list")
    root_weights = _integers(fields["root_weights"], 1, f"{where}: the entries of schedule.root_weights")
    trees = fields["trees"]
    if not isinstance(trees, list) or not all(isinstance(tree, list) and len(tree) == 3 for tree in trees):
        raise FileFormatError(f"{where}: field schedule.trees is not a list of [root, weight, routes]")
    routes = _integers([tree[2] for tree in trees], 2, f"{where}: the routes of schedule.trees")
    if (routes != routes.astype(np.int32)).any():
        raise FileFormatError(f"{where}: the routes of schedule.trees hold a number beyond 32 bits")
    return Forest(
        num_ranks=len(root_weights),
        trees_per_root=count,
        root_weights=root_weights,
        direction=fields["direction"],
        roots=_integers([tree[0] for tree in trees], 1, f"{where}: the roots of schedule.trees"),
        weights=_integers([tree[1] for tree in trees], 1, f"{where}: the weights of schedule.trees"),
        routes=routes.astype(np.int32),
        **path_arrays(fields["paths"], where),
        switches=whole_numbers(fields.get("switches", []), f"{where}: field schedule.switches"),
    )


def _integers(values: list[Any], dimensions: int, what: str) -> IntArray:
    try:
        array = np.array(values)
    except ValueError:  # rows of unequal length
        array = np.array([])
    # Numpy takes true and false among integers for 1 and 0.
    if array.dtype != np.int64 or array.ndim != dimensions or bool in map(type, np.ravel(np.array(values, object))):
        raise FileFormatError(f"{what} are not whole numbers in rows of equal length")
    return array


def symmetric_forest_from_json(data: object, where: str) -> SymmetricForest:
    """Build the symmetric forest that a decoded JSON value describes; only its form is checked."""
    fields = schedule_fields(data, "symmetric-forest", ("kind", "direction", *COUNTS, *ARRAYS), where)
    counts = {name: whole_count(fields[name], f"{where}: field schedule.{name}") for name in COUNTS}
    ranks, nodes, trees = counts["num_ranks"], counts["num_nodes"], counts["num_trees"]
    shapes = {
        "generators": (counts["num_generators"], nodes),
        "roots": (trees,),
        "weights": (trees,),
        "routes": (trees, ranks),
        "path_lengths": (counts["num_paths"],),
        "path_nodes": (counts["num_path_nodes"],),
    }
    # A path has two ends, and passes switches at most once.
    longest = counts["num_paths"] * (nodes - ranks + 2)
    fits = ranks <= nodes and counts["num_paths"] <= trees * ranks and counts["num_path_nodes"] <= longest
    if not fits or max(int(np.prod(shape, dtype=object)) for shape in shapes.values()) > MAX_ENTRIES:
        raise FileFormatError(f"{where}: the counts of the schedule are out of proportion; is the file complete?")
    limits = {"generators": nodes, "roots": ranks, "routes": 2**31, "path_nodes": nodes}
    arrays: dict[str, IntArray] = {}
    for name, shape in shapes.items():
        what = f"{where}: field schedule.{name}"
        least, most = -1 if name == "routes" else 0, limits.get(name, 2**62) - 1
        arrays[name] = decode_integers(fields[name], shape, what, least=least, most=most)
    starts = np.concatenate([[0], np.cumsum(arrays["path_lengths"])])
    weights = np.zeros(ranks, dtype=np.int64)
    weights[arrays["roots"]] = 1
    base = Forest(
        num_ranks=ranks,
        trees_per_root=counts["trees_per_root"],
        roots=arrays["roots"],
        weights=arrays["weights"],
        routes=arrays["routes"].astype(np.int32),
        path_starts=starts,
        path_nodes=arrays["path_nodes"],
        root_weights=weights,
        direction=fields["direction"],
    )
    return SymmetricForest(base, arrays["generators"])
