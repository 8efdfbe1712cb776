"""Looks at the options of a benchmark."""

from __future__ import annotations

from typing import Any

from ....support.seed import as_seed
from ...distributed.calls.reduce_ops import OPERATIONS
from ...distributed.processes.rendezvous import BACKENDS
from ...programs.checks import check_choice, check_counts
from .sizes import DATATYPES

__all__ = ["check_words", "checked_config"]


def check_words(datatype: str, op: str, backend: str) -> None:
    """Refuse what is no name of its kind."""
    check_choice("datatype", datatype, DATATYPES)
    check_choice("op", op, OPERATIONS)
    check_choice("backend", backend, BACKENDS)


def checked_config(
    minbytes: int,
    maxbytes: int,
    stepfactor: int | None,
    stepbytes: int,
    iters: int,
    warmup_iters: int,
    check: int,
    slices: int,
    seed: int,
) -> dict[str, Any]:
    """Check the numbers, and name them as nccl-tests does in its JSON files."""
    counts = {"minbytes": minbytes, "maxbytes": maxbytes, "stepbytes": stepbytes, "iters": iters, "slices": slices}
    check_counts(counts)
    check_counts({"warmup_iters": warmup_iters, "check": check}, least=0)
    check_counts({} if stepfactor is None else {"stepfactor": stepfactor}, least=2)
    step = {"step_bytes": stepbytes} if stepfactor is None else {"step_factor": stepfactor}
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": minbytes,
        "maximum_bytes": maxbytes,
        **step,
        "warmup_iters": warmup_iters,
        "iterations": iters,
        "aggregated_iterations": 1,
        "validation": check,
        "graph": 0,
        "blocking_collectives": "false",
        "parallel_init": "false",
        "slices": slices,
        "seed": as_seed(seed),
    }
