"""Lint of an MSCCL++ execution plan: whether it loads, deadlocks or computes wrong results, and for which sizes.

A plan is refused that the executor would refuse, misread or run out of bounds on; it checks less itself.
"""

from __future__ import annotations

import os

from ...errors import FileFormatError, ProgramError, UnsupportedError
from ...support.reading import name_of, read_bytes
from ...support.seed import current_seed
from ...support.validation import shown
from ..interpreter.findings import Finding, LintReport, Window
from .format.execution_plan import (
    ALIGNMENT,
    MAIN,
    VERSION,
    VERSIONS,
    ExecutionPlan,
    flat,
    message_chunks,
    stores_on_switches,
)
from .format.reader import MAX_BYTES_OF_FILE, parse_content
from .lowering.lower import DEFAULT_THREAD_BLOCKS
from .machine.machine import run_execution_plan

RUNTIME = "mscclpp"
STORE_NEEDS = "gstore is an invalid operation for MSCCL++ 0.9.0; its main branch runs it since July 2026"
SUM_TYPES = (
    "switches add 32-bit integers and floating point, not 8-bit integers, nor 8-bit floating point before sm_100a; "
    "plan with in_network=False (--no-in-network) for these"
)
SWITCH_NEEDS = (
    "switch channels need NVLS, and buffers of one size at one offset in allocations that can be multicast, such as "
    "those of mscclpp.GpuBuffer"
)
LOADING = (
    "pass it to mscclpp.ExecutionPlan(path, rank) and pass that to Executor.execute; no folder is searched",
    "plan names must be unique within a process: their setup is cached by name",
)


def lint_plan(
    path: str | os.PathLike[str], version: str | None = None, *, max_thread_blocks: int = DEFAULT_THREAD_BLOCKS
) -> LintReport:
    """Check whether the MSCCL++ executor loads a plan file and computes correct results with it.

    `version` is one of `VERSIONS`, by default the first that knows all operations of the file.
    """
    if version not in (None, *VERSIONS):
        raise UnsupportedError(f"version is {shown(version)}; those known of {RUNTIME} are {' and '.join(VERSIONS)}")
    where = name_of(path)
    content = read_bytes(path, MAX_BYTES_OF_FILE)
    try:
        plan = parse_content(content, where)
    except FileFormatError as error:
        return _report(path, version, None, [Finding("rejected", _without(where, error), "")])
    except UnsupportedError as error:
        return _report(path, version, None, [Finding("not checked", _without(where, error), "")])
    findings = []
    if (most := max(len(gpu.thread_blocks) for gpu in plan.gpus)) > max_thread_blocks:
        message = f"a GPU has {most} thread blocks, which wait for each other, and runs {max_thread_blocks} at once"
        findings.append(Finding("hangs", message, ""))
    try:
        run_execution_plan(plan, interleavings=2, seed=current_seed())
    except ProgramError as error:
        findings.append(Finding("hangs" if "deadlocks" in str(error) else "wrong data", str(error), ""))
    except UnsupportedError as error:
        findings.append(Finding("not checked", str(error), ""))
    names = {each.name for gpu in plan.gpus for block in gpu.thread_blocks for each in flat(block)}
    if stores_on_switches(plan):
        findings.append(Finding("rejected" if version == VERSION else "note", STORE_NEEDS, ""))
    if "glres" in names:
        findings.append(Finding("note", SUM_TYPES, ""))
    if any(gpu.switches for gpu in plan.gpus):
        findings.append(Finding("note", SWITCH_NEEDS, ""))
    if plan.collective.has_one_root:
        message = f"the plan is for one root, and every {plan.collective} can pick it, whatever its root"
        findings.append(Finding("note", message, ""))
    if plan.collective.reduces:
        findings.append(Finding("note", "the executor always sums, whatever reduction operation the call requests", ""))
    return _report(path, version, plan, findings)


def _report(
    path: str | os.PathLike[str], version: str | None, plan: ExecutionPlan | None, findings: list[Finding]
) -> LintReport:
    if version is None:
        version = MAIN if plan is not None and stores_on_switches(plan) else VERSION
    if plan is None:
        return LintReport(str(path), RUNTIME, version, tuple(findings), loading=LOADING)
    place = "in place" if plan.in_place else "out of place"
    multiple = ALIGNMENT * message_chunks(plan.collective, plan.gpus)
    window = Window(plan.collective.nccl_name, plan.num_ranks, plan.in_place, plan.min_bytes, plan.max_bytes + 1)
    return LintReport(
        str(path),
        RUNTIME,
        version,
        tuple(findings),
        f"{plan.collective} on {plan.num_ranks} ranks, {place}, from {plan.min_bytes} to {plan.max_bytes} bytes",
        loading=(*LOADING, f"only calls of a multiple of {multiple} bytes can run it"),
        windows=(window,),
    )


def _without(where: str, error: Exception) -> str:
    """Remove the file name from a message, as the report has it."""
    return str(error).removeprefix(f"{where}: ")
