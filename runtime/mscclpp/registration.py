"""Python code that registers execution plans with MSCCL++, and selects them for the calls that they are for."""

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from pprint import pformat
from typing import Any

from ...errors import UnsupportedError
from ...support.files import write_whole
from ...support.validation import as_path
from ..programs.program import check_choice
from . import executor
from .execution_plan import ExecutionPlan
from .memory import layout_of
from .reader import read_mscclpp

__all__ = ["write_registration"]


def write_registration(
    plans: Iterable[str | os.PathLike[str]], path: str | os.PathLike[str], *, version: str = executor.MAIN
) -> None:
    """Write Python code that registers plan files with MSCCL++, and selects the first of them that fits a call."""
    check_choice("version", version, executor.VERSIONS)
    if version not in executor.STORING:
        raise UnsupportedError(
            f"MSCCL++ {version} takes no selector written in Python; expected 0.10.0 or newer, or with 0.8.0 a folder "
            "of plans, and MSCCLPP_EXECUTION_PLAN_DIR set to it"
        )
    target = as_path(path)
    write_whole(target, registration_code(((file, read_mscclpp(file)) for file in map(as_path, plans)), target))


def registration_code(plans: Iterable[tuple[Path, ExecutionPlan]], target: Path) -> str:
    """Return the code that registers plans, by their paths from `target`, where it is to be written."""
    entries: dict[str, dict[str, Any]] = {}
    for file, plan in plans:
        if plan.name in entries:
            raise UnsupportedError(f"{file} has the name {plan.name} of another plan; names must be unique")
        relative = Path(os.path.relpath(file.resolve(), target.resolve().parent)).as_posix()
        entries[plan.name] = {"file": relative} | _conditions(plan)
    if not entries:
        raise UnsupportedError("there are no plans; expected the names of plan files")
    table = pformat(entries, width=100, sort_dicts=False)
    code = (files(__package__) / "register.py.txt").read_text(encoding="utf-8")
    return code.replace("{}  # Written here", table)


def _conditions(plan: ExecutionPlan) -> dict[str, Any]:
    return {
        "collective": plan.collective.nccl_name,
        "in_place": plan.in_place,
        "ranks": plan.num_ranks,
        "ranks_per_box": _ranks_per_box(plan),
        "first": plan.min_bytes,
        "last": plan.max_bytes,
        "multiple": plan.smallest_message,
        "root": layout_of(plan).root,
    }


def _ranks_per_box(plan: ExecutionPlan) -> int:
    """Return the smallest size of boxes in which no memory or switch channel leaves a box."""
    together = [(rank, peer) for rank, gpu in enumerate(plan.gpus) for peer in gpu.peers["memory"]]
    together += [(rank, peer) for rank, gpu in enumerate(plan.gpus) for group in gpu.switches for peer in group.ranks]
    sizes = (size for size in range(1, plan.num_ranks + 1) if plan.num_ranks % size == 0)
    return next(size for size in sizes if all(one // size == other // size for one, other in together))
