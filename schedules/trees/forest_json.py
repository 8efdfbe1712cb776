"""Forests as plain JSON values; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FileFormatError
from ..paths.written_paths import node_paths, whole_count
from .forest import Forest

FIELDS = ("kind", "direction", "trees_per_root", "root_weights", "paths", "trees")


def forest_to_json(forest: Forest) -> dict[str, Any]:
    """Describe a forest by lists and integers, ready for `json.dumps`.

    Parameters
    ----------
    forest : Forest
        Left alone.

    Returns
    -------
    dict

    Examples
    --------
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 2, 1)]), (1, 1, [(1, 2, 0)])])
    >>> forest_to_json(forest)["trees"]
    [[0, 1, [-1, 0]], [1, 1, [1, -1]]]
    """
    return forest.to_json()


def forest_from_json(data: object, where: str) -> Forest:
    """Build the forest that a decoded JSON value describes.

    Only the form is checked here; whether it is a schedule for some topology is for `verified_link_loads` to say.

    Parameters
    ----------
    data : dict
        As `forest_to_json` makes it.
    where : str
        Names the document in error messages.

    Returns
    -------
    Forest
    """
    if not isinstance(data, Mapping) or set(data) != set(FIELDS) or data["kind"] != "forest":
        raise FileFormatError(f"{where}: field schedule is not a forest; expected the fields {', '.join(FIELDS)}")
    count = whole_count(data["trees_per_root"], f"{where}: field schedule.trees_per_root")
    if not isinstance(data["root_weights"], list):
        raise FileFormatError(f"{where}: field schedule.root_weights is not a list")
    root_weights = _integers(data["root_weights"], 1, f"{where}: the entries of schedule.root_weights")
    paths = node_paths(data["paths"], where)
    trees = data["trees"]
    if not isinstance(trees, list) or not all(isinstance(tree, list) and len(tree) == 3 for tree in trees):
        raise FileFormatError(f"{where}: field schedule.trees is not a list of [root, weight, routes]")
    starts = np.concatenate([[0], np.cumsum([len(path) for path in paths])]).astype(np.int64)
    routes = _integers([tree[2] for tree in trees], 2, f"{where}: the routes of schedule.trees")
    if (routes != routes.astype(np.int32)).any():
        raise FileFormatError(f"{where}: the routes of schedule.trees hold a number beyond 32 bits")
    return Forest(
        num_ranks=len(root_weights),
        trees_per_root=count,
        root_weights=root_weights,
        direction=data["direction"],
        roots=_integers([tree[0] for tree in trees], 1, f"{where}: the roots of schedule.trees"),
        weights=_integers([tree[1] for tree in trees], 1, f"{where}: the weights of schedule.trees"),
        routes=routes.astype(np.int32),
        path_starts=starts,
        path_nodes=_integers([node for path in paths for node in path], 1, f"{where}: field schedule.paths"),
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
