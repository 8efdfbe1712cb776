"""``collopt doctor``: versions, a check of the core, and the available features."""

from __future__ import annotations

import importlib
import platform
import re
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

import typer

from ... import planners
from ...errors import ColloptError, MissingDependencyError
from ...support.packages import ABSENT, remedy, requirements
from ..terminal.output import CHECK_FAILED, emit_json, emit_rows
from ..terminal.progress import computing, working

if TYPE_CHECKING:
    from ...runtime.execution.rendezvous import TorchFacts

PACKAGES = (
    "numpy", "scipy", "numba", "highspy", "pyomo", "cvxpy", "networkx", "pandas", "python-flint", "torch", "jax",
    "matplotlib", "tornado",
)  # fmt: skip
EXTRAS = {
    "plans in JAX": "jax",
    "figures": "plot",
    "reports": "report",
    "the explorer": "explore",
    "building the documentation": "docs",
}
"""Features, and the extra that brings what each needs."""


class Check(NamedTuple):
    """One part of the core."""

    name: str
    works: bool
    detail: str  # What was shown, or what went wrong


class Feature(NamedTuple):
    """An optional feature."""

    name: str
    works: bool
    needs: str  # What to install, where it does not work; what is wrong besides, if something is there


def doctor(compile_kernels: bool = False, as_json: bool = False) -> None:
    """Print versions, check that plans can be made and verified here, and list the available features.

    The exit status is 0 if all core checks pass, even if optional features are missing, and 1 otherwise.
    """
    with working("checking packages") if _can_show() else nullcontext():
        checks = [_checked("packages", _packages)]
    facts: TorchFacts | None = None
    folder, compiled, features = None, False, list[Feature]()
    # Without packages everything else would only fail for the same reason.
    if checks[0].works:
        from ...planners.plans.stages import Trace
        from ...runtime.execution.rendezvous import torch_facts
        from ...support.kernels import kernels_in

        if compile_kernels:
            with computing("compiling kernels"), kernels_in("compiled"):
                _compile()
        trace = Trace()
        with computing("checking"):
            folder, compiled = _kernels()
            for name, check in (("linear programs", _solve), ("plans", _plan), ("kernels", _compile_one)):
                with trace.stage(name):
                    checks.append(_checked(name, check))
            with trace.stage("torch"):
                facts = torch_facts()
            with trace.stage("features"):
                features = _features(facts)
    works = all(check.works for check in checks)
    if as_json:
        emit_json(
            {
                "ok": works,
                "versions": _versions(),
                "core": [check._asdict() for check in checks],
                "kernels": {"folder": folder, "compiled_before": compiled},
                "torch": facts and facts._asdict(),
                "features": [feature._asdict() for feature in features],
            }
        )
    else:
        _print(checks, features, facts, folder, compiled)
    if not works:
        raise typer.Exit(CHECK_FAILED)


def _can_show() -> bool:
    """Whether rich is installed; if not, `_packages` reports it."""
    try:
        importlib.import_module("rich.progress")
    except Exception:  # noqa: BLE001 - broken packages fail in every way
        return False
    return True


def _packages() -> str:
    """Import the required packages."""
    required = requirements()
    problems, command = remedy(required, "")
    if problems:
        raise MissingDependencyError(f"{', and '.join(problems)}; fix with: {command}")
    return f"all {len(required)} required packages can be imported"


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"collopt": version("collopt"), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


def _kernels() -> tuple[str | None, bool]:
    """Folder of the kernel cache, and whether it holds the last kernel that planning compiles."""
    from ...solvers.trees.height_reduction import _exchange
    from ...support.kernels import cache_folder, is_ready

    try:
        folder = cache_folder(_exchange)
        return (None, False) if folder is None else (str(folder), is_ready(_exchange))
    except Exception:  # noqa: BLE001 - the check of the kernels says what is wrong
        return None, False


def _checked(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except ColloptError as error:
        return Check(name, False, str(error))
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what people came to learn
        return Check(name, False, " ".join(f"{type(error).__name__}: {error}".split()))


def _solve() -> str:
    from ...formulations import throughput
    from ...solvers import solve
    from ...topologies import ring

    rate = solve(throughput.build(ring(4, bandwidth=30))).exact.objective
    if rate != 20:
        raise ArithmeticError(f"HiGHS returns {rate}; expected 20")
    return "HiGHS solves the throughput of a ring to its exact optimum"


def _plan() -> str:
    from ...schedules import ALLGATHER
    from ...topologies import dgx_a100

    planned = planners.plan(dgx_a100(boxes=2), ALLGATHER, trees_per_root=1)
    planned.verify()
    return f"an allgather on {planned.topology.name} was planned and verified"


def _compile() -> None:
    """Make plans that need kernels of all kinds."""
    from ... import planners
    from ...runtime import lower, run_program
    from ...schedules import ALL_TO_ALL, ALLGATHER, ALLREDUCE, BROADCAST, REDUCE_SCATTER
    from ...topologies import dgx_a100, torus

    boxes, grid = dgx_a100(boxes=2), torus(4, 4)
    for network in (boxes, grid):
        for collective in (ALLGATHER, REDUCE_SCATTER, ALLREDUCE, ALL_TO_ALL):
            planned = planners.plan(network, collective)
            planned.estimate("1M")
            run_program(lower(planned.schedule, collective))
        for collective in (ALLGATHER, ALLREDUCE, ALL_TO_ALL):
            planners.compare(network, collective, sizes=["1M"], bounds=[])
        planners.plan(network, BROADCAST, root=0)
        planners.plan(network, ALLGATHER, trees_per_root=1)
        planners.plan(network, ALLGATHER, size="1M")
    planners.plan(grid, ALLGATHER, planner="bfb")
    planners.bound_sizes(grid, ALLGATHER, ["1M"])
    planners.find_topologies(8, 2)
    traffic = [[1 + one * other % 7 for other in range(16)] for one in range(16)]
    planners.schedule_all_to_allv(traffic, servers=2, gpus_per_server=8)
    routed = planners.count_dispatch([[[0, 1]], [[1, 0]]], [0, 1], servers=2, gpus_per_server=1)
    planners.schedule_dispatch(routed, relay_rounds=1)


def _compile_one() -> str:
    """Compile a kernel that is quick to compile, or load it."""
    import numpy as np

    from ...solvers.flows.max_flow import paired_network
    from ...support.kernels import cache_problems, kernels_in

    ends = np.array([0, 1])
    with kernels_in("compiled"):
        paired_network(2, ends, ends[::-1], ends + 1)
    folder, compiled = _kernels()
    if folder is None:
        return "compiled, but not cached: every process compiles them again"
    how = "those of large plans are cached" if compiled else "Python runs those of small plans"
    advice = "`collopt doctor --compile` caches those of all commands"
    return f"{how}; {advice}" + f"; {'; '.join(cache_problems.values())}" * bool(cache_problems)


def _features(facts: TorchFacts) -> list[Feature]:
    problems, command = remedy(requirements("torch"), "'collopt[torch]'") if facts.version else ([], "")
    torch = f"{problems[0]}; {command}" if problems else "pip install 'collopt[torch]'"
    if facts.problem:
        torch = f"torch cannot be imported here ({facts.problem}); pip install --force-reinstall 'collopt[torch]'"
    gpus = "a GPU and a build of torch for it; see pytorch.org"
    return [
        Feature("collopt run and bench on gloo", "gloo" in facts.backends and not problems, torch),
        Feature("collopt run and bench on NCCL or RCCL", "nccl" in facts.backends and bool(facts.devices), gpus),
        *_rccl_feature(facts.accelerator),
        *(_extra(name, extra) for name, extra in EXTRAS.items()),
    ]


def _rccl_feature(accelerator: str) -> list[Feature]:
    """Whether the RCCL of a build of torch for ROCm can load MSCCL XML."""
    from ...runtime.msccl.limits import dialect_of

    release = re.match(r"ROCm (\d{1,3}\.\d{1,3})", accelerator)
    if not release:
        return []
    absent = dialect_of("rccl", release[1]).absent
    return [Feature("MSCCL XML in RCCL", not absent, f"{absent}; use the torch backend, or MSCCL++'s own package")]


def _extra(name: str, extra: str) -> Feature:
    problems, command = remedy(requirements(extra), f"'collopt[{extra}]'")
    if all(problem.endswith(ABSENT) for problem in problems):
        return Feature(name, not problems, command or f"pip install 'collopt[{extra}]'")
    return Feature(name, False, f"{', and '.join(problems)}; {command}")


def _print(
    checks: list[Check], features: list[Feature], facts: TorchFacts | None, folder: str | None, compiled: bool
) -> None:
    emit_rows("versions", {name: number or "not installed" for name, number in _versions().items()})
    emit_rows("core", {check.name: f"{'ok' if check.works else 'FAILED'}: {check.detail}" for check in checks})
    if facts is None:
        return
    kept = folder or "none that can be written; set NUMBA_CACHE_DIR"
    emit_rows("compiled kernels", {"cache folder": kept, "a plan's cached before": "yes" if compiled else "no"})
    rows = {
        "installed": facts.version or (f"FAILED: {facts.problem}" if facts.problem else "no"),
        "built for": facts.accelerator or "no GPU",
        "backends": ", ".join(facts.backends) or "none",
        "GPUs": ", ".join(facts.devices) or "none",
    }
    emit_rows("torch", rows)
    emit_rows("features", {feature.name: "yes" if feature.works else f"no: {feature.needs}" for feature in features})
