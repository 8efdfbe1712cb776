"""What failures cost: bound, plan and loss of each case, beside what fixed patterns lose."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import BoundError, ColloptError, NoAnswerError, TopologyError, UnsupportedError
from ...schedules import COLLECTIVES, Collective, Demands
from ...schedules.collective import DEMANDS, AnyCollective, as_collective
from ...solvers.lp.options import as_here
from ...support import progress
from ...support.quantities import Exact
from ...support.validation import as_list, as_options, as_whole, shown
from ...topologies import Topology
from ...topologies.network.failures import Failure
from ...topologies.network.links import as_root
from ...topologies.network.topology import as_topology
from ...topologies.symmetry.failure_orbits import FAILURE_KINDS, failure_cases
from ..plans.plan import Plan
from ..plans.registry import as_planner, plan
from .compare import check_feasible
from .folder import CaseEntry, FaultEntry, PlanFolder, Status, failure_of

if TYPE_CHECKING:
    import pandas as pd

BASELINES = ("ring", "double-binary-tree")
FEW_TASKS = 8  # planned in this process by a script that processes would run again


class _Task(NamedTuple):
    """A case for one collective, as another process takes it."""

    topology: Topology
    collective: Collective
    kind: str
    members: int
    failure: Failure
    planner: str
    root: str | None
    baselines: tuple[str, ...]


def survive(
    topology: Topology,
    collective: AnyCollective | Sequence[AnyCollective],
    *,
    failures: Iterable[str] = FAILURE_KINDS,
    derate: Iterable[Exact] = (),
    pairs: Iterable[str] = (),
    planner: str = "auto",
    root: int | str | None = None,
    baselines: Iterable[str] = BASELINES,
    folder: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
) -> pd.DataFrame:
    """Plan for every failure of a network, and compare with the intact one.

    Failures that are alike by a symmetry of the network are one case.  Scripts call this under
    ``if __name__ == "__main__":``, since processes import them.  After the failure of a GPU the collective runs
    on the ranks that are left.  Raises `TopologyError` for failures that are not understood, `UnsupportedError` for
    other requests, and `NoAnswerError` if the executor dies; what was finished until then is in the folder.

    Parameters
    ----------
    topology : Topology
        The intact network, which connects all ranks.
    collective : str, Collective or sequence of these
        One or several.
    failures, derate, pairs
        Which cases: as `kinds`, `derate` and `pairs` of `failure_cases`.
    planner : str
        A key of `PLANNERS`.
    root : int or str, optional
        The root of a broadcast or reduce.
    baselines : iterable of str
        Planners of fixed patterns to compare with.
    folder : path, optional
        Where to write the plans as a `PlanFolder`, each as soon as it is found.  An interrupted run resumes there.
    jobs : int, optional
        Processes to plan in, by default as many as there are processors; with 1, in this one.
    executor : concurrent.futures.Executor, optional
        Where to plan instead of in processes of this machine.

    Returns
    -------
    DataFrame
        One row per collective and case, the intact network first.

        - ``collective``; ``failure``: the one that stands for all of the case, as text; ``kind``; ``count``: how many.
        - ``status``: ``"ok"``, ``"disconnected"`` or ``"failed"``; ``reason``: why there is no plan.
        - ``ranks``: how many take part.
        - ``algbw``, ``algbw_exact``, ``bound_exact``: GB/s of the plan, and what no schedule exceeds.
        - ``gap_exact``: share of the bound that the plan misses; 0 means optimal.
        - ``loss``, ``loss_exact``: share of the intact network's algbw that is lost; negative if fewer ranks gain.
        - ``algbw_<name>`` and ``loss_<name>``, exact, of each of `baselines`; its loss is against itself.
        - ``seconds``: of planning and verifying.  ``file``: of the plan in the folder.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> table = survive(dgx_a100(boxes=2), "allgather", failures=["nic", "gpu"], baselines=["ring"], jobs=1)
    >>> print(table[["failure", "count", "algbw_exact", "loss_exact", "loss_ring"]].to_string(index=False))
      failure  count algbw_exact loss_exact loss_ring
       intact      1      1040/3          0         0
    box0/nic0     16         320       1/13       1/8
    box0/gpu0     16      2625/8    89/1664    31/256
    """
    import pandas as pd

    as_topology(topology)
    collectives = [collective] if isinstance(collective, str | Collective) else as_list(collective, "the collectives")
    planned = [
        as_collective(entry, (*COLLECTIVES.values(), DEMANDS), "there is no planner for") for entry in collectives
    ]
    _check_demands(planned, folder)
    names = tuple(as_options(baselines, "the baselines"))
    for name in (planner, *names):
        as_planner(name)
    rooted = None if root is None else topology.compute_nodes[as_root(topology.compute_nodes, root)]
    for entry in planned:
        check_feasible(topology, entry, root=rooted)
    home = PlanFolder.create(folder, topology, {"planner": planner, "root": rooted})
    cases = failure_cases(topology, failures, derate=derate, pairs=pairs, symmetries=home.symmetries)
    failures_by_case = [(case.kind, len(case.members), case.failure) for case in cases]
    if planned[0].has_items:  # which symmetries of the network may not keep
        failures_by_case = [(case.kind, 1, failure) for case in cases for failure in case.members]
    listed = [("intact", 1, Failure()), *failures_by_case]
    tasks = [_Task(topology, entry, *case, planner, rooted, names) for entry in planned for case in listed]
    missing = [task for task in tasks if not home.is_complete(home.case_of(str(task.collective), task.failure), names)]
    with _running(executor, jobs, len(missing)) as pool:
        try:
            for case, new_plan in progress.iterate(_answers(missing, pool, home.path), len(missing)):
                home.add(case, new_plan)
        finally:
            home.save()
    cases_by_name = {str(entry): [home.case_of(str(entry), failure) for _, _, failure in listed] for entry in planned}
    return pd.DataFrame(
        [_row(case, rows[0], names) for rows in cases_by_name.values() for case in rows if case and rows[0]]
    )


def _check_demands(planned: Sequence[Collective], folder: object) -> None:
    """Refuse demands beside other collectives, whose failures may be alike, and in folders, which rest on that."""
    if any(entry.has_items for entry in planned) and (len(planned) > 1 or folder is not None):
        raise UnsupportedError("demands are planned alone and not kept in folders; leave folder and other ones out")


@contextmanager
def _running(executor: Executor | None, jobs: int | None, tasks: int) -> Iterator[Executor | None]:
    """Return the executor, or start processes; None for this process."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise UnsupportedError(f"executor is {shown(executor)}; expected one like those of concurrent.futures")
    # macOS does not tell which processors this process may use.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(processors if jobs is None else as_whole(jobs, "jobs"), tasks)
    if executor is None and count > 1 and _unguarded():
        if jobs is not None or tasks > FEW_TASKS:
            raise UnsupportedError(
                f"processes for {tasks} cases would run this script again; call survive under "
                '`if __name__ == "__main__":`, or give jobs=1'
            )
        count = 1
    if executor is not None or count < 2:
        yield executor
        return
    # A fork would copy locks that other threads hold.
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _unguarded() -> bool:
    """Whether new processes would run the script that is running now again, as it has no guard."""
    main = sys.modules["__main__"]
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if script is None or (spec is not None and spec.name.endswith("__main__")):
        return False  # interpreters, notebooks and packages are not run again
    try:
        return b"__main__" not in Path(script).read_bytes()
    except OSError:
        return False


def _answers(
    tasks: Sequence[_Task], executor: Executor | None, folder: Path | None
) -> Iterator[tuple[CaseEntry, Plan | None]]:
    """Yield answers as they come."""
    if executor is None:
        yield from map(_answer, tasks)
        return
    work, done = as_here(_answer), 0
    try:
        for future in as_completed([executor.submit(work, task) for task in tasks]):
            yield future.result()
            done += 1
    except ColloptError:
        raise
    except Exception as error:
        advice = "give a folder, which keeps them" if folder is None else f"{folder} keeps them: run again to resume"
        if not done and isinstance(error, BrokenExecutor):
            advice = 'in a script, call this under if __name__ == "__main__": or with jobs=1, as processes run it again'
        raise NoAnswerError(
            f"the executor ended after {done} of {len(tasks)} cases ({type(error).__name__}: {error}); {advice}"
        ) from error


def _answer(task: _Task) -> tuple[CaseEntry, Plan | None]:
    """Plan for what is left of the network, and with baselines where there is a plan."""
    start = time.perf_counter()
    ranks, new_plan, reason = 0, None, ""
    status: Status = "ok"
    options: dict[str, Any] = {} if task.root is None else {"root": task.root}
    try:
        left = task.failure.applied(task.topology)
        ranks = left.num_ranks
        collective = task.collective
        if isinstance(collective, Demands):
            collective = collective.among(left.compute_nodes)
        new_plan = plan(left, collective, planner=task.planner, **options)
    except (BoundError, TopologyError) as error:
        status, reason = "disconnected", str(error)
    except ColloptError as error:
        status, reason = "failed", str(error)
    seconds = time.perf_counter() - start
    rates: dict[str, Fraction | None] = dict.fromkeys(task.baselines)
    if new_plan is not None:
        for name in task.baselines:
            with suppress(ColloptError):  # a baseline that does not run there
                rates[name] = plan(new_plan.topology, new_plan.collective, planner=name, **options).algbw
    case = CaseEntry(
        collective=str(task.collective),
        failure=tuple(FaultEntry(nodes=nodes, factor=factor) for nodes, factor in task.failure.faults),
        kind=task.kind,
        count=task.members,
        status=status,
        reason=reason,
        ranks=ranks,
        bound=None if new_plan is None else new_plan.bound.algbw,
        algbw=None if new_plan is None else new_plan.algbw,
        baselines=rates,
        seconds=seconds,
    )
    return case, new_plan


def _row(case: CaseEntry, intact: CaseEntry, baselines: Iterable[str]) -> dict[str, object]:
    """Return the row of a case."""
    algbw, bound, loss = case.algbw, case.bound, _loss(case.algbw, intact.algbw)
    row: dict[str, object] = {
        "collective": case.collective,
        "failure": str(failure_of(case)),
        "kind": case.kind,
        "count": case.count,
        "status": case.status,
        "reason": case.reason,
        "ranks": case.ranks,
        "algbw": None if algbw is None else float(algbw),
        "algbw_exact": algbw,
        "bound_exact": bound,
        "gap_exact": _loss(algbw, bound),
        "loss": None if loss is None else float(loss),
        "loss_exact": loss,
    }
    for name in baselines:
        rate = case.baselines[name]
        row |= {f"algbw_{name}": rate, f"loss_{name}": _loss(rate, intact.baselines[name])}
    return row | {"seconds": case.seconds, "file": case.file}


def _loss(rate: Fraction | None, reference: Fraction | None) -> Fraction | None:
    return None if rate is None or reference is None else 1 - rate / reference
