"""Reader of the JSON form of a `SymmetricForest`, whose arrays are compressed text."""

import numpy as np

from ...errors import FileFormatError
from ...support.array_text import decode_integers
from ...support.arrays import IntArray
from ..paths.written_paths import schedule_fields, whole_count
from .forest import Forest
from .symmetric_forest import SymmetricForest

COUNTS = ("num_ranks", "num_nodes", "num_generators", "num_trees", "num_paths", "num_path_nodes", "trees_per_root")
ARRAYS = ("generators", "roots", "weights", "routes", "path_lengths", "path_nodes")
MAX_ENTRIES = 2**27  # of an array


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
