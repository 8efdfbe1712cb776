"""Fractional packing of Steiner arborescences: the least time of a multicast all-to-allv on servers of a few GPUs.

Tokens of one class have the same origin and the same destinations.  They go along trees from the origin to all of
these, directly between any two GPUs, also by way of GPUs that do not want them.

==============  ================================================================  ====================================
name            meaning                                                           equation
==============  ================================================================  ====================================
variables
``tokens``      tokens that each tree carries                                     y(T)
``time``        of the whole, in tokens per unit of bandwidth                     t
constraints
``class_size``  the trees of a class carry its tokens                             sum of y(T) over T of c = tokens(c)
``port_time``   what GPUs send and receive between servers, and inside, fits      sum of load(T, p) y(T) <= b(p) t
==============  ================================================================  ====================================

The objective is t, to be minimized; load(T, p) counts the edges of a tree that use a port p: each GPU has one out of
its server and into it, and one each way inside.  No schedule is faster, and cutting tokens and time finely enough comes
near.  The trees of N GPUs are up to N^(N - 2) per class, so N is at most 6.

Stated in `Blocks`, since trees are columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from ...errors import UnsupportedError
from ...support.quantities import Exact, as_bandwidth
from ...support.validation import as_whole, is_whole, shown
from ..modelling.blocks import BlockModel, Blocks

__all__ = ["MulticastModel", "build"]

MAX_RANKS = 6

Edges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, repr=False)
class MulticastModel(BlockModel):
    """The linear program of `trees`, each given by its edges, pairs of GPUs."""

    trees: tuple[Edges, ...]


def build(
    classes: Mapping[tuple[int, frozenset[int]], int],
    *,
    servers: int,
    gpus_per_server: int,
    scale_up: Exact,
    scale_out: Exact,
) -> MulticastModel:
    """State the least time of a multicast all-to-allv.

    Parameters
    ----------
    classes : mapping
        Number of tokens by origin and set of destinations, GPUs that are numbered through the servers.
    servers, gpus_per_server : int
        Together at most 6 GPUs.
    scale_up, scale_out : int, str or Fraction
        Bandwidths of a GPU inside its server and to others, each way.
    """
    ranks = as_whole(servers, "servers") * as_whole(gpus_per_server, "gpus_per_server")
    if ranks > MAX_RANKS:
        raise UnsupportedError(f"there are {ranks} GPUs; expected at most {MAX_RANKS}, as trees are listed one by one")
    for (origin, wanted), count in classes.items():
        if not is_whole(count) or count < 0 or not {origin, *wanted} <= set(range(ranks)) or origin in wanted:
            raise UnsupportedError(
                f"the class from GPU {shown(origin)} to {shown(set(wanted))} has {shown(count)} tokens; expected a "
                f"whole number, for other GPUs of 0 to {ranks - 1}"
            )
    listed = [list(_arborescences(origin, wanted, ranks)) for origin, wanted in classes]
    trees = tuple(tree for each in listed for tree in each)
    blocks = Blocks(f"multicast of {len(classes)} classes on {servers} servers of {gpus_per_server} GPUs")
    tokens, time = blocks.variables("tokens", len(trees)), blocks.variables("time", ())
    of_class = np.repeat(np.arange(len(listed)), [len(each) for each in listed])
    sizes = [float(count) for count in classes.values()]
    blocks.constraint("class_size", len(classes), [(of_class, tokens, 1.0)], lower=sizes, upper=sizes)
    widths = [float(as_bandwidth(scale_out, "scale_out")), float(as_bandwidth(scale_up, "scale_up"))]
    model = MulticastModel(blocks, trees)
    _port_time(model, ranks, gpus_per_server, widths)
    model.minimize([(time, 1.0)])
    return model


def _port_time(model: MulticastModel, ranks: int, gpus: int, widths: list[float]) -> None:
    """Sum of load(T, p) y(T) is at most b(p) t, for ports by tier, direction and GPU."""
    listed = [(at, *edge) for at, tree in enumerate(model.trees) for edge in tree]
    edges = np.array(listed, dtype=np.int64).reshape(-1, 3)
    number, source, target = edges.T
    tier = (source // gpus == target // gpus).astype(np.int64)
    rows = np.arange(4 * ranks).reshape(2, 2, ranks)
    used = [(rows[tier, way, end], model.variables.tokens[number], 1.0) for way, end in enumerate((source, target))]
    limit = (rows, model.variables.time, -np.array(widths)[:, None, None])
    model.blocks.constraint("port_time", (2, 2, ranks), [*used, limit], upper=0.0)


def _arborescences(root: int, wanted: frozenset[int], ranks: int) -> Iterator[Edges]:
    """List the trees from a root whose leaves are all wanted."""
    others = sorted(set(range(ranks)) - wanted - {root})
    for helpers in (some for size in range(len(others) + 1) for some in combinations(others, size)):
        nodes = sorted(wanted | set(helpers))
        for parents in product([root, *nodes], repeat=len(nodes)):
            parent = dict(zip(nodes, parents, strict=True))
            if set(helpers) <= set(parents) and all(_reaches(node, root, parent) for node in nodes):
                yield tuple((above, node) for node, above in parent.items())


def _reaches(node: int, root: int, parent: dict[int, int]) -> bool:
    """Whether parents lead from a node to the root."""
    for _ in parent:
        node = parent[node]
        if node == root:
            return True
    return False
