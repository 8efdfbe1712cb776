"""Plans on CUDA or ROCm tensors, through NCCL or RCCL: four ranks, which share GPUs where there are fewer."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gpu_tasks
import pytest

import collopt
from collopt.runtime import measure_plans, run_local
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.runtime.execution.rendezvous import SHARING
from collopt.topologies import ring

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("shared_gpus", "real_supervisors")]
PRELOAD = ("torch", "torch.distributed", "gpu_tasks")
NETWORK = ring(gpu_tasks.RANKS, bandwidth=25)
OPTIONS = {
    "allgather": {}, "reduce_scatter": {}, "allreduce": {}, "all_to_all": {}, "broadcast": {"root": 2},
    "reduce": {"root": 1},
}  # fmt: skip


@pytest.fixture
def shared_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks share GPUs."""
    monkeypatch.setenv(SHARING, "1")


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a plan for every collective."""
    folder: Path = tmp_path_factory.mktemp("plans")
    for collective, options in (*OPTIONS.items(), ("broadcast", {})):
        root = {"root": 0} if collective == "broadcast" and not options else options
        collopt.plan(NETWORK, collective, **root).save(folder / f"{collective}-{root.get('root')}.json")
    return str(folder)


@pytest.mark.parametrize("collective", OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_results_are_those_of_nccl(collective: str, dtype: str) -> None:
    """Every collective agrees, with slices, for numbers of elements that do not divide into chunks."""
    plan = collopt.plan(NETWORK, collective, **OPTIONS[collective])
    report = run_local(plan, backend="nccl", elements=100003, dtype=dtype, slices=2)
    assert report.backend == "nccl"
    assert report.correct == (True,) * gpu_tasks.RANKS


@pytest.mark.parametrize("planner", ["bfb", "multitree", "ring"])
def test_schedules_of_other_planners_run_too(planner: str) -> None:
    """Schedules in steps and of single trees run a whole allreduce."""
    plan = collopt.plan(NETWORK, "allreduce", planner=planner)
    assert run_local(plan, backend="nccl", elements=100003).all_correct


def test_a_plan_and_nccl_are_measured_side_by_side() -> None:
    """CUDA events measure both, without a wrong element."""
    plan = collopt.plan(NETWORK, "allreduce")
    report = measure_plans(
        {"plan": plan}, minbytes=1 << 16, maxbytes=1 << 20, stepfactor=16, iters=3, warmup_iters=1, backend="nccl"
    )
    assert report.names == ("nccl", "plan")
    assert report.wrong_elements == 0
    assert all(reading.microseconds > 0 for row in report.rows for reading in row.readings)


def test_calls_overlap_with_other_kernels() -> None:
    """Asynchronous calls give what synchronous ones do, also if their input is freed before they run."""
    results = run_ranks(gpu_tasks.overlapped_calls, gpu_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    assert {len(each) for each in results} == {4}
    assert failures(results) == []


def test_unequal_splits_agree_with_torch() -> None:
    """Two servers with two GPUs each agree, and one server per GPU."""
    results = run_ranks(gpu_tasks.exchanges, gpu_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    assert {len(each) for each in results} == {9}
    assert failures(results) == []


def test_mixtures_of_experts_agree_with_one_rank() -> None:
    """Dispatches and combines take CUDA tensors."""
    results = run_ranks(gpu_tasks.mixture, gpu_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    assert {len(each) for each in results} == {12}
    assert failures(results) == []


def test_the_torch_backend_agrees_with_nccl(plans: str) -> None:
    """Every collective agrees and runs by a plan."""
    answers = run_ranks(partial(gpu_tasks.backend_calls, plans=plans), gpu_tasks.RANKS, timeout_s=240, preload=PRELOAD)
    assert failures([agrees for agrees, _ in answers]) == []
    calls = 2 * len(gpu_tasks.SIZES)
    for _, planned in answers:
        assert planned == {
            "allgather": 2 * calls, "allreduce": calls, "all_to_all": calls, "broadcast": calls, "reduce": calls,
            "reduce_scatter": 2 * calls,
        }  # fmt: skip


def test_models_train_as_with_nccl(plans: str) -> None:
    """DDP has equal losses on exact numbers, FSDP to rounding, and both run by plans."""
    for each in run_ranks(partial(gpu_tasks.trained, plans=plans), gpu_tasks.RANKS, timeout_s=240, preload=PRELOAD):
        assert each["ddp collopt"] == each["ddp nccl"]
        assert each["fsdp collopt"] == pytest.approx(each["fsdp nccl"], rel=1e-5)
        assert each["fsdp nccl"][-1] < each["fsdp nccl"][0]
        assert all(count > 0 for count in each["planned"])


def failures(results: list[dict[str, bool]]) -> list[tuple[int, str]]:
    """Ranks and names of what was not right."""
    return [(rank, name) for rank, each in enumerate(results) for name, right in each.items() if not right]
