"""Bounds of the direct-connect paper on all graphs, and stored allgathers that attain the bandwidth bound.

Breadth-first broadcasts are not bandwidth-optimal on Diamond and the modified de Bruijn graphs.  Reduce-scatter
reverses an allgather of the transpose (Corollary 1.1), which is stored as well.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...support.validation import as_size, shown
from ..network.direct_graph import DirectGraph

MAX_NODES = 2**62  # the graphs are not built


def moore_steps(nodes: int, degree: int) -> int:
    """Lower bound on the steps of an allgather by the Moore bound: T_L*(N, d) in multiples of alpha.

    Direct-connect paper, Definition 10 and appendix C.1: the least k with 1 + d + d² + ... + d^k >= N.

    Parameters
    ----------
    nodes, degree : int
        N and d.

    Examples
    --------
    >>> moore_steps(1024, 4), moore_steps(8, 1)
    (5, 7)
    """
    nodes, degree = as_size(nodes, "nodes", high=MAX_NODES), as_size(degree, "degree")
    return nodes - 1 if degree == 1 else _fewest_layers(nodes, degree, degree)


def undirected_moore_steps(nodes: int, degree: int) -> int:
    """Lower bound on the steps of an allgather on bidirectional graphs: T_L** in multiples of alpha.

    Direct-connect paper, Table 8, last column: the least k with 1 + d (1 + (d - 1) + ... + (d - 1)^(k - 1)) >= N.
    Parameters as for `moore_steps`.

    Examples
    --------
    >>> moore_steps(728, 4), undirected_moore_steps(728, 4)
    (5, 6)
    """
    nodes, degree = as_size(nodes, "nodes", high=MAX_NODES), as_size(degree, "degree")
    if degree == 1 and nodes > 2:
        raise UnsupportedError(
            f"bidirectional links of degree 1 cannot connect {nodes} nodes; expected a degree of 2 or more"
        )
    return nodes // 2 if degree == 2 else _fewest_layers(nodes, degree, degree - 1)


def _fewest_layers(nodes: int, layer: int, growth: int) -> int:
    """Layers that reach all nodes from one, the first of so many nodes and each next one so many times as large."""
    steps, reached = 0, 1
    while reached < nodes:
        steps, reached, layer = steps + 1, reached + layer, layer * growth
    return steps


def bandwidth_optimum(nodes: int) -> Fraction:
    """Lower bound on T_B of every allgather, in multiples of M/B: T_B* = (N - 1) / N (Theorem 4).

    Examples
    --------
    >>> bandwidth_optimum(1024)
    Fraction(1023, 1024)
    """
    nodes = as_size(nodes, "nodes", high=MAX_NODES)
    return Fraction(nodes - 1, nodes)


TRANSPOSED = "^T"  # suffix of the names of `DirectGraph.transpose`


@dataclass(frozen=True, eq=False)
class BaseSchedule:
    """An allgather on a `graph` in `num_steps`, the paper's T_L, with P `chunks` per shard, and `rows` of sends.

    The columns are source of the shard, chunk, tail, head and step, from 1; int64 (sends, 5), read-only.
    """

    graph: DirectGraph
    chunks: int
    num_steps: int
    rows: npt.NDArray[np.int64]


def base_schedule_names() -> tuple[str, ...]:
    """Return the names of the paper's graphs that `base_schedule_rows` has schedules of."""
    return tuple(name for name in _stored() if not name.endswith(TRANSPOSED))


def base_transpose_names() -> tuple[str, ...]:
    """Return the names of the transposes that it has schedules of; that of DBJMod(2, 3) needs none."""
    return tuple(name for name in _stored() if name.endswith(TRANSPOSED))


def base_schedule_rows(name: str) -> BaseSchedule:
    """Return the stored schedule of a graph without a bandwidth-optimal breadth-first broadcast.

    Found by integer programming, and bandwidth-optimal.  Steps and bandwidth are those of the direct-connect paper's
    Table 9; the transposes, which it does not list, take no more.

    Parameters
    ----------
    name : str
        ``"Diamond"``, ``"DBJMod(2, 3)"``, ``"DBJMod(2, 4)"``, ``"DBJMod(3, 2)"`` or ``"DBJMod(4, 2)"``, or of all but
        DBJMod(2, 3), which is isomorphic to it, the transpose, such as ``"Diamond^T"``.

    Examples
    --------
    >>> schedule = base_schedule_rows("Diamond")
    >>> schedule.graph, schedule.num_steps, schedule.chunks
    (<DirectGraph Diamond: 8 nodes, 16 arcs>, 3, 2)
    """
    if not isinstance(name, str) or name not in _stored():
        raise UnsupportedError(f"there is no stored schedule of {shown(name)}; expected one of {', '.join(_stored())}")
    return _schedule(name)


@cache
def _schedule(name: str) -> BaseSchedule:
    stored = _stored()[name]
    arcs = [(tail, head) for tail, heads in enumerate(stored["out"]) for head in heads]
    rows = np.array(stored["schedule"], dtype=np.int64)
    rows.flags.writeable = False
    return BaseSchedule(DirectGraph.from_arcs(stored["N"], arcs, name), stored["P"], stored["T"], rows)


@cache
def _stored() -> dict[str, dict[str, Any]]:
    text = (files(__package__) / "data" / "base_topologies.json").read_text(encoding="utf-8")
    return {name.replace(",", ", "): graph for name, graph in json.loads(text).items()}
