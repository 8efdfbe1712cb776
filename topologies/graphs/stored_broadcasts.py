"""Schedules of Diamond and the modified de Bruijn graphs, where broadcasts breadth-first are not bandwidth-optimal.

Most of these graphs are not isomorphic to their transposes, so a reduce-scatter takes an allgather of the transpose
(direct-connect paper, Corollary 1.1): the transposes have schedules here, too.
"""

from __future__ import annotations

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

__all__ = ["BaseSchedule", "base_schedule_names", "base_schedule_rows", "base_transpose_names"]

TRANSPOSED = "^T"
"""What `DirectGraph.transpose` adds to a name."""


@dataclass(frozen=True, eq=False)
class BaseSchedule:
    """An allgather in steps, one row for every chunk that passes a link.

    Attributes
    ----------
    graph : DirectGraph
        What it runs on.
    chunks : int
        Pieces of equal size that a shard is cut into: the paper's P.
    num_steps : int
        The paper's T_L, in units of alpha.
    rows : ndarray of int64, shape (sends, 5)
        Source of the shard, chunk, tail, head and step, which counts from 1; not to be written to.
    """

    graph: DirectGraph
    chunks: int
    num_steps: int
    rows: npt.NDArray[np.int64]


def base_schedule_names() -> tuple[str, ...]:
    """Return the names of the paper's graphs that `base_schedule_rows` knows; those of transposes come beside.

    Returns
    -------
    tuple of str

    See Also
    --------
    base_transpose_names : The transposes that it knows.

    Examples
    --------
    >>> base_schedule_names()
    ('Diamond', 'DBJMod(2, 3)', 'DBJMod(2, 4)', 'DBJMod(3, 2)', 'DBJMod(4, 2)')
    """
    return tuple(name for name in _stored() if not name.endswith(TRANSPOSED))


def base_transpose_names() -> tuple[str, ...]:
    """Return the names of the transposed graphs that `base_schedule_rows` knows.

    Returns
    -------
    tuple of str
        As `DirectGraph.transpose` names them.

    Notes
    -----
    DBJMod(2, 3) is isomorphic to its transpose, and needs no schedule for that.

    Examples
    --------
    >>> base_transpose_names()
    ('Diamond^T', 'DBJMod(2, 4)^T', 'DBJMod(3, 2)^T', 'DBJMod(4, 2)^T')
    """
    return tuple(name for name in _stored() if name.endswith(TRANSPOSED))


def base_schedule_rows(name: str) -> BaseSchedule:
    """Return the schedule that comes with collopt for one of the graphs without a good breadth-first one.

    Parameters
    ----------
    name : str
        As `DirectGraph.name` has it: ``"Diamond"``, ``"DBJMod(2, 3)"``, ``"Diamond^T"``, ...

    Returns
    -------
    BaseSchedule

    Raises
    ------
    UnsupportedError
        If there is none for this graph.

    Notes
    -----
    Found once by integer programming, and bandwidth-optimal: in step t every link carries the same number of chunks,
    and over all steps each node receives every chunk of the others once.  Steps and bandwidth are those of the
    direct-connect paper's Table 9, and the transposes, of which it says nothing, take no more; nothing here is taken on
    trust, the steps are checked like those of any schedule.

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
