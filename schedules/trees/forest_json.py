"""JSON form of a `Forest`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FileFormatError
from ..paths.written_paths import node_paths, schedule_fields, whole_count, whole_numbers
from .forest import Forest

FIELDS = ("kind", "direction", "trees_per_root", "root_weights", "paths", "trees")


def forest_from_json(data: object, where: str) -> Forest:
    """Build the forest that a decoded JSON value describes; only its form is checked."""
    own = isinstance(data, Mapping) and "switches" in data
    fields = schedule_fields(data, "forest", (*FIELDS, "switches") if own else FIELDS, where)
    count = whole_count(fields["trees_per_root"], f"{where}: field schedule.trees_per_root")
    if not isinstance(fields["root_weights"], list):
        raise FileFormatError(f"{where}: field schedule.root_weights is not a list")
    root_weights = _integers(fields["root_weights"], 1, f"{where}: the entries of schedule.root_weights")
    paths = node_paths(fields["paths"], where)
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
        path_starts=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        path_nodes=_integers([node for path in paths for node in path], 1, f"{where}: field schedule.paths"),
        switches=whole_numbers(fields.get("switches", []), f"{where}: field schedule.switches"),
    )


def _integers(values: list[Any], dimensions: int, what: str) -> npt.NDArray[np.int64]:
    try:
        array = np.array(values)
    except ValueError:  # rows of unequal length
        array = np.array([])
    # Numpy takes true and false among integers for 1 and 0.
    if array.dtype != np.int64 or array.ndim != dimensions or bool in map(type, np.ravel(np.array(values, object))):
        raise FileFormatError(f"{what} are not whole numbers in rows of equal length")
    return array
