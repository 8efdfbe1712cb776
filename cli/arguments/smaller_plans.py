"""Files of a plan with fewer trees or chunks, where a runtime does not take as many as the best plan has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import TooLargeError
from ..terminal.output import note
from ..terminal.progress import computing
from .parameters import takes_option

if TYPE_CHECKING:
    from ...planners import Plan

FEW_TREES, MANY_TREES = 8, 256
"""Trees of a root that are few, and of all roots that are many."""
FEW_CHUNKS = (4, 2, 1)
"""Numbers of chunks to try, per shard or unit of traffic."""


def write_fitting(made: Plan, write: Callable[[Plan], None], planner: str, asked: Mapping[str, Any]) -> Plan:
    """Write a plan's files, or those of the first smaller plan that fits, and say so."""
    try:
        write(made)
    except TooLargeError as error:
        refusal = error
    else:
        return made
    for other, option in _smaller(made, planner, asked):
        try:
            write(other)
        except TooLargeError:
            continue
        rates = f"{float(other.algbw):.2f} GB/s instead of {float(made.algbw):.2f} GB/s"
        note(
            f"collopt: note: the best plan ({_size(made)}) does not fit: {str(refusal).partition(';')[0]}; using "
            f"{option} instead: {_size(other)}, {'same algbw' if other.algbw == made.algbw else rates}"
        )
        return other
    raise refusal


def _smaller(made: Plan, planner: str, asked: Mapping[str, Any]) -> Iterator[tuple[Plan, str]]:
    """Smaller plans, and the options that make them."""
    if takes_option(planner, made.collective, "trees_per_root"):
        yield from _fewer_trees(made, planner, asked)
    elif takes_option(planner, made.collective, "chunks"):
        yield from _fewer_chunks(made, planner, asked)


def _fewer_trees(made: Plan, planner: str, asked: Mapping[str, Any]) -> Iterator[tuple[Plan, str]]:
    """Plans of ever fewer trees, the fastest first."""
    from ...planners import scan_trees_per_root

    with computing(f"planning {made.collective} on {made.topology.name} with fewer trees"):
        counts = list(_counts(made))
        frame = scan_trees_per_root(made.topology, made.collective, counts or None, planner=planner, **asked)
        plans = list(frame["plan"])
    fewest = made.trees.num_trees
    for other in sorted(plans, key=lambda plan: (-plan.algbw, plan.trees.num_trees)):
        if other.trees.num_trees < fewest:
            fewest = other.trees.num_trees
            yield other, f"--trees-per-root {other.trees.forests[-1].trees_per_root}"


def _counts(made: Plan) -> Iterator[int]:
    """Numbers of trees per root to try: some that are small, and doubles of them as long as all trees are few."""
    roots = int((made.trees.root_weights > 0).sum())
    count = 1
    while count < made.trees.forests[-1].trees_per_root and (count <= FEW_TREES or count * roots <= MANY_TREES):
        yield count
        count += 1 if count < FEW_TREES else count


def _fewer_chunks(made: Plan, planner: str, asked: Mapping[str, Any]) -> Iterator[tuple[Plan, str]]:
    from ...planners import plan
    from ...planners.registry import as_planner

    for count in FEW_CHUNKS:
        if count < _chunks(made):
            with computing(f"planning {made.collective} on {made.topology.name} with --chunks {count}"):
                other = plan(made.topology, made.collective, planner=as_planner(planner), chunks=count, **asked)
            yield other, f"--chunks {count}"


def _chunks(made: Plan) -> int:
    """Chunks per shard or unit of traffic; the most of them where halves of an allreduce differ."""
    return 1 if made.schedule.num_trees else max(made.schedule.load_units)


def _size(made: Plan) -> str:
    number, what = (made.schedule.num_trees, "tree") if made.schedule.num_trees else (_chunks(made), "chunk")
    return f"{number} {what}{'' if number == 1 else 's'}"
