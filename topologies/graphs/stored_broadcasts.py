"""Stored allgather schedules of Diamond and the modified de Bruijn graphs.

Breadth-first broadcasts are not bandwidth-optimal there.  Most of these graphs are not isomorphic to their transposes,
so reduce-scatter reverses an allgather of the transpose (direct-connect paper, Corollary 1.1), which is stored as well.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...support.validation import shown
from ..network.direct_graph import DirectGraph

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

    Found by integer programming, and bandwidth-optimal: in each step every link carries the same number of chunks, and
    over all steps each node receives every chunk of the others once.  Steps and bandwidth are those of the
    direct-connect paper's Table 9; the transposes, which it does not list, take no more.  The steps are verified like
    those of any schedule.

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
    >>> schedule.rows[0].tolist()
    [0, 0, 0, 1, 1]
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
