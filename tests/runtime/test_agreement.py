"""Agreement of ranks: time limits, the devices on which ranks compare calls, and the first meeting on GPUs."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime.execution import agreement
from collopt.runtime.execution.agreement import connect, wait, wait_for_all
from collopt.runtime.execution.arguments import agreement_device, served_devices


class Group:
    """Stands for a process group with backends for some devices."""

    def __init__(self, *kinds: str) -> None:
        self._device_types = [torch.device(kind) for kind in kinds]


class Work:
    """Takes a second, and notes its time limit."""

    def __init__(self, clock: list[float], limits: list[timedelta | None]) -> None:
        self.clock = clock
        self.limits = limits

    def wait(self, limit: timedelta | None = None) -> None:
        """Let the time pass."""
        self.limits.append(limit)
        self.clock[0] += 1


def test_works_of_a_batch_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each work gets the time that remains, at least a millisecond, as torch takes zero for no limit; None stays."""
    clock: list[float] = [100.0]
    limits: list[timedelta | None] = []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    wait_for_all([Work(clock, limits) for _ in range(4)], 2.5)
    wait_for_all([Work(clock, limits)], None)
    wait(Work(clock, limits), 1e-9)
    assert limits == [*(timedelta(seconds=seconds) for seconds in (2.5, 1.5, 0.5, 0.001)), None, timedelta(0, 0, 1000)]


def test_ranks_that_stop_leave_a_note_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends breaks connections of ranks that have not heard it yet."""
    done: list[str] = []

    def rows(*_: object) -> np.ndarray:
        done.append("rows")
        return np.array([[0, 0, 5], [0, 0, 7]])

    monkeypatch.setattr(agreement, "_rows", rows)
    monkeypatch.setattr(agreement, "leave_note", lambda _, note: done.append(note))
    with pytest.raises(UnsupportedError, match="too long"):
        agreement.refuse(agreement.PLAN, UnsupportedError("too long"), Group(), None)
    for equal, size in (({"op": "sum"}, None), ({}, "the size")):
        with pytest.raises(ProgramError, match="disagree"):
            agreement.agree_on(agreement.PLAN, equal, [5], Group(), None, size)
    one, two = ("disagree about op: 5 on rank 0", "disagree about the size: 5 on rank 0")
    assert done[:3] == ["refused its arguments of the run of a plan: too long", "rows", "rows"]
    assert (one in done[3], done[4], two in done[5]) == (True, "rows", True)


@pytest.mark.parametrize(
    ("kinds", "place"), [(("cpu",), "cpu"), (("cuda",), "cuda:3"), (("cuda", "cpu"), "cpu"), (("xpu",), "cpu")]
)
def test_ranks_compare_calls_on_a_common_device(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], place: str
) -> None:
    """The device is the CPU unless the group serves GPUs only."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert agreement_device(Group(*kinds)) == torch.device(place)
    assert served_devices(Group(*kinds)) == set(kinds)


@pytest.mark.parametrize(
    ("kinds", "backend", "device", "calls"),
    [
        (("cpu", "cuda"), "cpu:gloo,cuda:nccl", "cuda", 1),
        (("cpu", "cuda"), "undefined", "cuda", 1),
        (("cpu", "cuda"), "cpu:gloo,cuda:nccl", "cpu", 0),
        (("cpu", "cuda"), "gloo", "cuda", 0),
        (("cuda",), "nccl", "cuda", 0),
    ],
)
def test_ranks_that_compared_on_the_cpu_meet_once_on_their_gpus(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], backend: str, device: str, calls: int
) -> None:
    """NCCL requires it before a group's first batch there; a comparison on the GPUs suffices."""
    sums: list[object] = []

    def all_reduce(tensor: object, *, group: object, async_op: bool) -> Work:
        assert async_op
        sums.append((tensor, group))
        return Work([0.0], [])

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "zeros", lambda size, device: (size, str(device)))
    monkeypatch.setattr(dist, "get_backend", lambda _: backend)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    group = Group(*kinds)
    for _ in range(2):
        connect(group, torch.device(device), 5)
    assert sums == [((1, "cuda"), group)] * calls
