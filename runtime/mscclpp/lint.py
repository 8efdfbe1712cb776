"""Lint of an MSCCL++ execution plan: whether it loads, deadlocks or computes wrong results, and for which sizes.

A plan is refused that the executor would refuse, misread or run out of bounds on; it checks less itself.
"""

import os
from collections.abc import Iterator

from ...errors import FileFormatError, ProgramError, UnsupportedError
from ...support.files import name_of, read_bytes
from ...support.seed import current_seed
from ...support.validation import shown
from ..programs.findings import Finding, LintReport, Window
from . import executor
from .check import PlanError
from .execution_plan import ExecutionPlan
from .interpret import run_execution_plan
from .loader import decoded, load
from .lower import DEFAULT_THREAD_BLOCKS
from .reader import MAX_BYTES_OF_FILE, parse_document

RUNTIME = "mscclpp"
STORES = {"gstore", "gstorepkt"}  # Which versions before 0.10.0 refuse as an invalid operation
STORE_NEEDS = "gstore is an invalid operation for MSCCL++ 0.9.0; it runs since 0.10.0, of July 2026"
EQUAL_OFFSETS = (
    "input and output have to begin at the same offsets of their allocations on all ranks (symmetric buffers), and to "
    "end within 4 GiB of their start, as a rank adds its own offsets to what it accesses on others"
)
FIRST_SCRATCH = (
    "NICs put packets from the scratch of the first plan that a process runs (execution_kernel.hpp, line 297), so run "
    "this one first"
)
SUM_TYPES = (
    "switches add 32-bit integers and floating point, not 8-bit integers, nor 8-bit floating point before sm_100a; "
    "plan with in_network=False (--no-in-network) for these"
)
SWITCH_NEEDS = (
    "switch channels need NVLS, and buffers of one size at one offset in allocations that can be multicast, such as "
    "those of mscclpp.GpuBuffer"
)
UNIQUE = "plan names must be unique within a process: their setup is cached by name"
DIRECT = "pass it to mscclpp.ExecutionPlan(path, rank) and pass that to Executor.execute"
LOADING = {
    "0.8.0": "or set MSCCLPP_EXECUTION_PLAN_DIR to a folder of nothing but plans, which libmscclpp_nccl.so loads",
    "": "or register it, with a selector, before libmscclpp_nccl.so makes a communicator; no folder is searched",
}


def lint_plan(
    path: str | os.PathLike[str], version: str | None = None, *, max_thread_blocks: int = DEFAULT_THREAD_BLOCKS
) -> LintReport:
    """Check whether MSCCL++, by default its first version with all operations of the file, runs it correctly."""
    if version not in (None, *executor.VERSIONS):
        raise UnsupportedError(
            f"version is {shown(version)}; those known of {RUNTIME} are {', '.join(executor.VERSIONS)}"
        )
    ignored: set[str] = set()
    plan = _loaded(path, executor.MAIN if version is None else version, ignored)
    if isinstance(plan, Finding):
        return _report(path, version, None, [plan])
    findings = []
    if (blocks := max(len(gpu.thread_blocks) for gpu in plan.gpus)) > max_thread_blocks:
        message = f"a GPU has {blocks} thread blocks, which wait for each other, and runs {max_thread_blocks} at once"
        findings.append(Finding("hangs", message, ""))
    findings += _run_findings(plan)
    names, collective = {operation.name for operation in plan.operations()}, plan.collective
    notes = {
        STORE_NEEDS: bool(STORES & names),
        f"the loader does not read {shown(sorted(ignored))}": bool(ignored),
        EQUAL_OFFSETS: _needs_equal_offsets(plan),
        SUM_TYPES: "glres" in names,
        SWITCH_NEEDS: any(gpu.switches for gpu in plan.gpus),
        FIRST_SCRATCH: any(
            operation.name == "ppkt" and operation.channel_type == "port" for operation in plan.operations()
        ),
        f"the plan is for one root, and every {collective} can pick it, whatever its root": (
            collective is not None and collective.has_one_root
        ),
        "the executor always sums, whatever reduction operation the call requests": (
            collective is not None and collective.reduces
        ),
        "the collective is none that collopt knows, so nobody has seen whether the results are right": (
            collective is None
        ),
    }
    findings += [Finding("note", message, "") for message, applies in notes.items() if applies]
    return _report(path, version, plan, findings)


def _loaded(path: str | os.PathLike[str], version: str, ignored: set[str]) -> ExecutionPlan | Finding:
    """Load a plan, or say why it does not run."""
    where, content = name_of(path), read_bytes(path, MAX_BYTES_OF_FILE)
    try:
        return parse_document(load(decoded(content), version, ignored), where)
    except PlanError as error:
        return Finding(error.severity, _without(where, error), "")
    except FileFormatError as error:
        return Finding("rejected", _without(where, error), "")
    except UnsupportedError as error:
        return Finding("not checked", _without(where, error), "")


def _run_findings(plan: ExecutionPlan) -> Iterator[Finding]:
    """Run a plan with buffers that start their allocations, then with some that do not."""
    where = ""
    try:
        run_execution_plan(plan, interleavings=1, seed=current_seed(), pads=(0, 0))
        where = "where a buffer begins behind the start of its allocation, as most tensors of PyTorch do: "
        run_execution_plan(plan, interleavings=1, seed=current_seed())
    except ProgramError as error:
        yield Finding("hangs" if "deadlocks" in str(error) else "wrong data", f"{where}{error}", "")
    except UnsupportedError as error:
        yield Finding("not checked", str(error), "")


def _needs_equal_offsets(plan: ExecutionPlan) -> bool:
    """Whether GPUs access inputs or outputs of each other, which they take to begin where their own do."""
    remote = any(place.buffer != "scratch" for operation in plan.operations() for place in operation.remote_places)
    return remote or any(group.buffer != "scratch" for gpu in plan.gpus for group in gpu.switches)


def _report(
    path: str | os.PathLike[str], version: str | None, plan: ExecutionPlan | None, findings: list[Finding]
) -> LintReport:
    if version is None:
        stores = plan is not None and any(operation.name in STORES for operation in plan.operations())
        version = executor.STORING[0] if stores else executor.VERSION
    if plan is None:
        return LintReport(str(path), RUNTIME, version, tuple(findings), loading=loading_lines(version))
    place = "in place" if plan.in_place else "out of place"
    multiple = plan.smallest_message
    low, high = max(plan.min_bytes, multiple), min(plan.max_bytes, plan.largest_message)
    # In 0.8.0 the selector of a plan compares its largest size by "less than" (nccl.cu, line 623).
    windows: tuple[Window, ...] = ()
    if plan.collective is not None:
        name, upper = plan.collective.nccl_name, high + (version != executor.VERSIONS[0])
        windows = (Window(name, plan.num_ranks, plan.in_place, low, upper),)
    return LintReport(
        str(path),
        RUNTIME,
        version,
        tuple(findings),
        f"{plan.collective or 'some collective'} on {plan.num_ranks} ranks, {place}, from {low} to {high} bytes",
        loading=(*loading_lines(version), f"only calls of a multiple of {multiple} bytes can run it"),
        windows=windows,
    )


def loading_lines(version: str) -> tuple[str, ...]:
    """Say how a version is made to load plans."""
    return DIRECT, LOADING.get(version, LOADING[""]), UNIQUE


def _without(where: str, error: Exception) -> str:
    """Remove the file name from a message, as the report has it."""
    return str(error).removeprefix(f"{where}: ")
