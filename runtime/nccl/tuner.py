"""Files that choose an algorithm for each size: of NCCL's example tuner plugin, of NCCLX, and of UCC.

A line for NCCL's plugin (plugins/tuner/example) is
``collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks``, with -1 for any number of boxes or
ranks.  Channels are 0 to leave them to NCCL, which takes its own number then (src/enqueue.cc of 2.30.7, line 2178): the
plugin sets 1 before it looks at its lines, and keeps it where a line has -1 (plugin.c, lines 361, 407).

NCCLX, of torchcomms (comms/ncclx/meta/tuner of 59426ba4, README.md and ConfigParse.h), has intervals of bytes per rank,
nBytes / nRanks in whole numbers (MetaTuner.cc, line 303), and -1 leaves channels to it.  Ends of UCC's ranges of bytes
differ and belong to them (src/coll_score/ucc_coll_score.c of 8263de47, line 57; ucc_coll_score_map.c, line 106), of
all, but of one rank in a reduce_scatter (src/utils/ucc_coll_utils.c, line 399).
"""

import json
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import ALLGATHER, ALLREDUCE, REDUCE_SCATTER, TREE_COLLECTIVES, Collective, as_bytes
from ...support.files import write_whole
from ...support.validation import as_kind, is_int, shown
from ..lowering.devices import boxes_of
from ..programs.program import check_choice
from .families import fastest_windows
from .graph import MAX_CHANNELS, ring_channels

__all__ = ["FORMS", "PROTOCOLS", "Window", "export_nccl_tuner", "write_nccl_tuner", "write_windows"]

FORMS = ("nccl", "ncclx-csv", "ncclx-json", "ucc")
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
UCC_NAMES = {
    ("ring", ALLGATHER): "ring",
    ("ring", REDUCE_SCATTER): "ring",
    ("ring", ALLREDUCE): "ring",
    ("tree", ALLREDUCE): "dbt",
}
"""Algorithms of UCC's TL/UCP (src/components/tl/ucp) by NCCL's and the collective."""

HEADER = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n"
NCCLX_HEADER = "# collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks\n"
NCCLX_FILTER, NCCLX_CONFIG = (
    ("collective", "bytesPerRank", "nNodes", "nLocalRanks"),
    ("algorithm", "protocol", "channels"),
)
PROTOCOLS = ("ll", "ll128", "simple")
TREE_PLANNER = "double-binary-tree"
SWITCH_ALGORITHMS = {"nvls": "nvls", "nvls-tree": "nvls_tree", "collnet": "collnet_direct"}  # by planner
MAX_BYTES = 2**32 - 1  # The largest size in NCCL's own example
ANY = -1
OWN_CHANNELS = 0


class Window(NamedTuple):
    """Range of sizes, in bytes of all data, for an algorithm, with its number of channels and its protocol."""

    low: int
    high: int
    algorithm: str
    channels: int = OWN_CHANNELS
    protocol: str = "simple"


def export_nccl_tuner(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    min_bytes: int | str = 0,
    max_bytes: int | str = MAX_BYTES,
    protocol: str = "simple",
    channels: int = OWN_CHANNELS,
    boxes: int = ANY,
    form: str = "nccl",
) -> None:
    """Write one line that makes NCCL use the algorithm of a plan.

    Raises `UnsupportedError` if NCCL has no such algorithm, or an option makes no sense; `OSError` if the file cannot
    be written.

    Parameters
    ----------
    plan : Plan
        Of rings; an allreduce by ``"double-binary-tree"``; or by ``"nvls"``, ``"nvls-tree"`` or ``"collnet"``.
    path : path
        File to write.
    min_bytes, max_bytes : int or str
        Sizes that the line is for, such as ``"1M"``, as nccl-tests counts them; by default up to that of NCCL's own
        example.
    protocol : str
        One of `PROTOCOLS`; ``"simple"`` for the last three planners.
    channels : int, optional
        0, the default, leaves it to NCCL.
    boxes : int
        Number of boxes that the line is for, which is the plan's where names of ranks tell it, as in ``"box0/gpu0"``;
        -1, the default, is any.
    form : {"nccl", "ncclx-csv", "ncclx-json", "ucc"}
        Whose file: of NCCL's example plugin, of NCCLX, or an assignment of UCC's ``UCC_TL_UCP_TUNE``, which has rings
        and double binary trees only, and neither protocols nor channels.
    """
    algorithm = _algorithm(plan)
    low, high = as_bytes(min_bytes, "min_bytes", low=0), as_bytes(max_bytes, "max_bytes", low=0)
    if high < low:
        raise UnsupportedError(f"max_bytes is {high}, less than min_bytes, {low}; expected at least as many")
    window = Window(low, high, algorithm, _channels(channels), protocol)
    _write(path, plan, [window], boxes, form)


def write_nccl_tuner(
    plans: Sequence[Plan],
    path: str | os.PathLike[str],
    *,
    protocol: str = "simple",
    boxes: int = ANY,
    form: str = "nccl",
    max_bytes: int | str = MAX_BYTES,
) -> None:
    """Write lines that make NCCL use the algorithm of the plan with the least predicted time, by size.

    Times are compared at every power of two, and a change between two of these is sought where their plans differ; one
    that is the fastest only in between may be overlooked.

    Parameters
    ----------
    plans : sequence of Plan
        Of one collective on one topology; compared by `Plan.estimate`, as in `write_family`.
    path, protocol, boxes, form : path, str, int, str
        As for `export_nccl_tuner`.
    max_bytes : int or str
        The largest size.
    """
    largest = as_bytes(max_bytes, "max_bytes")
    if not isinstance(plans, Iterable) or not (candidates := list(plans)):
        raise UnsupportedError(f"the plans are {shown(plans)}; expected at least one Plan")
    kinds = {plan: _algorithm(plan) for plan in candidates}
    first = candidates[0]
    for plan in candidates[1:]:
        if plan.collective != first.collective or plan.topology.digest != first.topology.digest:
            raise UnsupportedError(
                f"the plans are for {first.collective} on {first.topology.name} and for {plan.collective} on "
                f"{plan.topology.name}; expected one collective on one topology"
            )
    windows: list[Window] = []
    # NCCL does not tell plans of one algorithm apart.
    for kind, group in groupby(fastest_windows(candidates, 0, largest), key=lambda window: kinds[window.plan]):
        ranges = list(group)
        windows.append(Window(ranges[0].first, ranges[-1].last, kind, protocol=protocol))
    _write(path, first, windows, boxes, form)


def _algorithm(plan: Plan) -> str:
    """NCCL's name for a plan's algorithm."""
    as_kind(plan, Plan, "the plan")
    if plan.collective not in TREE_COLLECTIVES:
        raise UnsupportedError(
            f"the plan is for {plan.collective}, which NCCL's tuner does not support; expected one of "
            f"{', '.join(map(str, TREE_COLLECTIVES))}"
        )
    if plan.planner == TREE_PLANNER and plan.collective is ALLREDUCE:
        return "tree"
    if plan.planner in SWITCH_ALGORITHMS:
        return SWITCH_ALGORITHMS[plan.planner]
    ring_channels(plan)
    return "ring"


def _channels(channels: object) -> int:
    if not is_int(channels) or not 0 <= channels <= MAX_CHANNELS:
        raise UnsupportedError(f"channels is {shown(channels)}; expected 1 to {MAX_CHANNELS}, or 0 to leave it to NCCL")
    return channels


def _write(path: str | os.PathLike[str], plan: Plan, windows: Sequence[Window], boxes: object, form: str) -> None:
    ranks, num_boxes = plan.topology.num_ranks, max(boxes_of(plan.topology)) + 1
    # Where names do not tell boxes, as in a ring, each rank may be one.
    if not is_int(boxes) or (boxes != ANY and not num_boxes <= boxes <= (num_boxes if num_boxes > 1 else ranks)):
        expected = (
            f"{num_boxes}, as in {plan.topology}" if num_boxes > 1 else f"1 to {ranks}, the ranks of {plan.topology}"
        )
        raise UnsupportedError(f"boxes is {shown(boxes)}; expected {expected}, or -1 for any number")
    write_windows(path, plan.collective, windows, ranks, boxes, form)


def write_windows(
    path: str | os.PathLike[str],
    collective: Collective,
    windows: Sequence[Window],
    ranks: int,
    boxes: int = ANY,
    form: str = "nccl",
) -> None:
    """Write windows of sizes, which rise, as a file of one of `FORMS`."""
    check_choice("form", form, FORMS)
    for window in windows:
        check_choice("protocol", window.protocol, PROTOCOLS)
        if window.algorithm in SWITCH_ALGORITHMS.values() and window.protocol != "simple":
            raise UnsupportedError(
                f"NCCL runs {window.algorithm} with the protocol simple alone, not {window.protocol}"
            )
        if form == "ucc" and (window.algorithm, collective) not in UCC_NAMES:
            raise UnsupportedError(f"UCC has no {window.algorithm} for {collective}; expected rings or binary trees")
    if form != "nccl" and boxes != ANY and ranks % boxes:
        raise UnsupportedError(f"boxes is {boxes}, which does not divide {ranks} ranks; expected equal boxes, or -1")
    write_whole(path, _TEXTS[form](collective, windows, ranks, boxes))


def _nccl_text(collective: Collective, windows: Sequence[Window], ranks: int, boxes: int) -> str:
    rows = [
        f"{collective.nccl_name},{low},{high},{algorithm},{protocol},{channels},{boxes},{ranks}\n"
        for low, high, algorithm, channels, protocol in windows
    ]
    return HEADER + "".join(rows)


def _rules(collective: Collective, windows: Sequence[Window], ranks: int, boxes: int) -> list[tuple[object, ...]]:
    """Columns of NCCLX's rules; a window without a whole number of bytes per rank has none."""
    nodes, local = (boxes, ranks // boxes) if boxes != ANY else ("*", "*")
    return [
        (
            collective.nccl_name, f"[{window.low // ranks},{(window.high + 1) // ranks})", window.algorithm,
            window.protocol, window.channels or ANY, nodes, local,
        )
        for window in windows
        if window.low // ranks < (window.high + 1) // ranks
    ]  # fmt: skip


def _ncclx_csv(collective: Collective, windows: Sequence[Window], ranks: int, boxes: int) -> str:
    rows = [",".join(map(str, rule)) + "\n" for rule in _rules(collective, windows, ranks, boxes)]
    return NCCLX_HEADER + "".join(rows)


def _ncclx_json(collective: Collective, windows: Sequence[Window], ranks: int, boxes: int) -> str:
    rules = [
        {
            "filter": dict(zip(NCCLX_FILTER, (name, sizes, *sides), strict=True)),
            "config": dict(zip(NCCLX_CONFIG, how, strict=True)),
        }
        for name, sizes, *how, nodes, local in _rules(collective, windows, ranks, boxes)
        for sides in [(nodes, local)]
    ]
    return json.dumps({"rules": rules}, indent=2) + "\n"


def _ucc_text(collective: Collective, windows: Sequence[Window], ranks: int, boxes: int) -> str:  # noqa: ARG001
    parts, name = ranks if collective is REDUCE_SCATTER else 1, collective.name
    rows = []
    for window in windows:
        first, last = window.low // parts, (window.high + 1) // parts - 1
        if last < first:
            continue
        algorithm = UCC_NAMES[window.algorithm, collective]
        rows.append(f"{name}:{first}-{max(last, first + 1)}:[{ranks}]:@{algorithm}")
    return f"UCC_TL_UCP_TUNE={'#'.join(rows)}\n"


_TEXTS = {"nccl": _nccl_text, "ncclx-csv": _ncclx_csv, "ncclx-json": _ncclx_json, "ucc": _ucc_text}
