"""Python code that registers execution plans with MSCCL++, and selects them for the calls that they are for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from pprint import pformat
from typing import Any

from ...errors import UnsupportedError
from ...support.validation import as_path
from ...support.writing import write_whole
from ..programs.checks import check_choice
from .format.execution_plan import ALIGNMENT, MAIN, VERSIONS, ExecutionPlan, message_chunks
from .format.reader import read_mscclpp
from .machine.memory import layout_of

__all__ = ["write_registration"]

CODE = '''"""Registers MSCCL++ execution plans, and selects them for the calls that they are for.

For MSCCL++ 0.9.0 or newer.  With libmscclpp_nccl.so preloaded, call ``register(rank)`` on every rank before the first
communicator is made.  Programs that call the executor themselves take the plan of ``algorithms(rank)``.

The request says nothing of the operation: register plans that add up only in programs that only sum.  Nor does a rank
know where the buffers of others begin: input and output have to be at the same offsets of their allocations on all.
"""

from pathlib import Path

import mscclpp
from mscclpp.ext import AlgorithmCollectionBuilder

PLANS = {plans}
TYPES = [getattr(mscclpp.DataType, name) for name in ("float16", "bfloat16", "float32", "int32", "uint32")]


def algorithms(rank):
    """Load the plans of a rank, by name."""
    folder = Path(__file__).resolve().parent
    return {{
        name: mscclpp.Algorithm(id=name, execution_plan=mscclpp.ExecutionPlan(str(folder / plan["file"]), rank))
        for name, plan in PLANS.items()
    }}


def register(rank):
    """Let MSCCL++'s library for NCCL's functions select these plans."""
    builder = AlgorithmCollectionBuilder()
    for algorithm in algorithms(rank).values():
        builder.add_algorithm_builder(algorithm)
    builder.set_algorithm_selector(select)


def select(known, request):
    """Return the plan for a call; None leaves it to MSCCL++ and to NCCL."""
    for name, plan in PLANS.items():
        if fits(plan, request):
            return known[plan["collective"]][name]
    return None


def fits(plan, request):
    """Whether a plan is for a call; all ranks find the same."""
    ranks, size = request.world_size, request.message_size
    if request.collective != plan["collective"] or ranks != plan["ranks"]:
        return False
    size *= ranks if request.collective == "allgather" else 1  # The request has the size of one shard
    shard = request.rank * (size // ranks)
    apart = {{"allgather": -shard, "reducescatter": shard}}.get(request.collective, 0)
    return (
        request.n_ranks_per_node % plan["ranks_per_box"] == 0
        and (request.output_buffer - request.input_buffer == apart) == plan["in_place"]
        and plan["first"] <= size <= plan["last"]
        and size % plan["multiple"] == 0
        and request.input_buffer % {alignment} == request.output_buffer % {alignment} == 0
        and request.dtype in TYPES
        and request.hints.get("root", [plan["root"]])[0] == plan["root"]
    )
'''


def write_registration(
    plans: Iterable[str | os.PathLike[str]], path: str | os.PathLike[str], *, version: str = MAIN
) -> None:
    """Write Python code that registers plan files with MSCCL++ and selects among them.

    Raises `UnsupportedError` for a version of MSCCL++ that registers no plans, or if two have one name.

    Parameters
    ----------
    plans : iterable of paths
        Plan files, the first that fits a call being selected.
    path : path
        Python file to write.
    version : {"main", "0.10.0", "0.9.0"}
        Of MSCCL++.
    """
    check_choice("version", version, VERSIONS)
    if version == VERSIONS[0]:
        raise UnsupportedError(
            f"MSCCL++ {version} registers no plans; put them into a folder of their own, and set "
            "MSCCLPP_EXECUTION_PLAN_DIR to it"
        )
    target, entries = as_path(path), {}
    for file in map(as_path, plans):
        plan = read_mscclpp(file)
        if plan.name in entries:
            raise UnsupportedError(f"{file} has the name {plan.name} of another plan; names must be unique")
        entries[plan.name] = {"file": _relative(file, target)} | _conditions(plan)
    if not entries:
        raise UnsupportedError("there are no plans; expected the names of plan files")
    table = pformat(entries, width=100, sort_dicts=False)
    write_whole(target, CODE.format(plans=table, alignment=ALIGNMENT))


def _relative(file: Path, target: Path) -> str:
    return Path(os.path.relpath(file.resolve(), target.resolve().parent)).as_posix()


def _conditions(plan: ExecutionPlan) -> dict[str, Any]:
    root = None
    if plan.collective.has_one_root:
        root = next(rank for rank, shard in enumerate(layout_of(plan).shards) if shard)
    return {
        "collective": plan.collective.nccl_name,
        "in_place": plan.in_place,
        "ranks": plan.num_ranks,
        "ranks_per_box": _ranks_per_box(plan),
        "first": plan.min_bytes,
        "last": plan.max_bytes,
        "multiple": ALIGNMENT * message_chunks(plan.collective, plan.gpus),
        "root": root,
    }


def _ranks_per_box(plan: ExecutionPlan) -> int:
    """Return the smallest size of boxes in which no memory or switch channel leaves a box."""
    together = [(rank, peer) for rank, gpu in enumerate(plan.gpus) for peer in gpu.peers["memory"]]
    together += [(rank, peer) for rank, gpu in enumerate(plan.gpus) for group in gpu.switches for peer in group.ranks]
    sizes = (size for size in range(1, plan.num_ranks + 1) if plan.num_ranks % size == 0)
    return next(size for size in sizes if all(one // size == other // size for one, other in together))
