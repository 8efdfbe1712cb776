"""Configuration of NCCL's example tuner plugin (plugins/tuner/example): the algorithm for each size.

A line has ``collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks``, with -1 for any number of
boxes or ranks.  Channels are 0 to leave them to NCCL, which takes its own number then (src/enqueue.cc of NCCL 2.30.7,
line 2178): the plugin sets 1 before it looks at its lines, and keeps it where a line has -1 (plugin.c, lines 361, 407).
"""

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import ALLREDUCE, TREE_COLLECTIVES, as_bytes
from ...support.files import write_whole
from ...support.validation import as_kind, is_int, shown
from ..mscclpp.export import boxes_of
from ..programs.program import check_choice
from .families import fastest_windows
from .graph import MAX_CHANNELS, ring_channels

__all__ = ["PROTOCOLS", "export_nccl_tuner", "write_nccl_tuner"]

HEADER = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n"
PROTOCOLS = ("ll", "ll128", "simple")
TREE_PLANNER = "double-binary-tree"
SWITCH_ALGORITHMS = {"nvls": "nvls", "nvls-tree": "nvls_tree", "collnet": "collnet_direct"}  # by planner
MAX_BYTES = 2**32 - 1  # The largest size in NCCL's own example
ANY = -1
OWN_CHANNELS = 0


class _Window(NamedTuple):
    """Range of sizes for an algorithm and its number of channels."""

    low: int
    high: int
    algorithm: str
    channels: int


def export_nccl_tuner(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    min_bytes: int | str = 0,
    max_bytes: int | str = MAX_BYTES,
    protocol: str = "simple",
    channels: int = OWN_CHANNELS,
    boxes: int = ANY,
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
    """
    algorithm = _algorithm(plan)
    low, high = as_bytes(min_bytes, "min_bytes", low=0), as_bytes(max_bytes, "max_bytes", low=0)
    if high < low:
        raise UnsupportedError(f"max_bytes is {high}, less than min_bytes, {low}; expected at least as many")
    window = _Window(low, high, algorithm, _channels(channels))
    _write(path, plan, [window], protocol, boxes)


def write_nccl_tuner(
    plans: Sequence[Plan],
    path: str | os.PathLike[str],
    *,
    protocol: str = "simple",
    boxes: int = ANY,
    max_bytes: int | str = MAX_BYTES,
) -> None:
    """Write lines that make NCCL use the algorithm of the plan with the least predicted time, by size.

    Times are compared at every power of two, and a change between two of these is sought where their plans differ; one
    that is the fastest only in between may be overlooked.

    Parameters
    ----------
    plans : sequence of Plan
        Of one collective on one topology; compared by `Plan.estimate`, as in `write_family`.
    path, protocol, boxes : path, str, int
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
    windows: list[_Window] = []
    # NCCL does not tell plans of one algorithm apart.
    for kind, group in groupby(fastest_windows(candidates, 0, largest), key=lambda window: kinds[window.plan]):
        ranges = list(group)
        windows.append(_Window(ranges[0].first, ranges[-1].last, kind, OWN_CHANNELS))
    _write(path, first, windows, protocol, boxes)


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


def _write(path: str | os.PathLike[str], plan: Plan, windows: Sequence[_Window], protocol: str, boxes: object) -> None:
    check_choice("protocol", protocol, PROTOCOLS)
    used = {window.algorithm for window in windows}.intersection(SWITCH_ALGORITHMS.values())
    if used and protocol != "simple":
        raise UnsupportedError(f"NCCL runs {min(used)} with the protocol simple alone, not {protocol}")
    ranks, num_boxes = plan.topology.num_ranks, max(boxes_of(plan.topology)) + 1
    # Where names do not tell boxes, as in a ring, each rank may be one.
    if not is_int(boxes) or (boxes != ANY and not num_boxes <= boxes <= (num_boxes if num_boxes > 1 else ranks)):
        expected = (
            f"{num_boxes}, as in {plan.topology}" if num_boxes > 1 else f"1 to {ranks}, the ranks of {plan.topology}"
        )
        raise UnsupportedError(f"boxes is {shown(boxes)}; expected {expected}, or -1 for any number")
    rows = [
        f"{plan.collective.nccl_name},{low},{high},{algorithm},{protocol},{channels},{boxes},{ranks}\n"
        for low, high, algorithm, channels in windows
    ]
    write_whole(path, HEADER + "".join(rows))
