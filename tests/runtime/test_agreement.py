"""What comes around the messages of a call: where ranks tell each other what they do, and how long they wait."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from collopt.runtime.execution.agreement import connect, wait, wait_for_all
from collopt.runtime.execution.arguments import agreement_device, p2p_group, served_devices


class Group:
    """What is asked of a process group here."""

    def __init__(self, *kinds: str) -> None:
        self._device_types = [torch.device(kind) for kind in kinds]


class Work:
    """Takes a second, and notes how long it might have taken."""

    def __init__(self, clock: list[float], limits: list[timedelta | None]) -> None:
        self.clock = clock
        self.limits = limits

    def wait(self, limit: timedelta | None = None) -> None:
        """Let the time pass."""
        self.limits.append(limit)
        self.clock[0] += 1


def test_the_works_of_a_batch_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a round of many messages could take as many times as long; torch takes zero, or less, for no limit."""
    clock: list[float] = [100.0]
    limits: list[timedelta | None] = []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    wait_for_all([Work(clock, limits) for _ in range(4)], 2.5)
    assert limits == [timedelta(seconds=seconds) for seconds in (2.5, 1.5, 0.5, 0.001)]


def test_without_a_timeout_the_group_decides() -> None:
    """Torch has its own limit then."""
    limits: list[timedelta | None] = []
    wait_for_all([Work([0.0], limits) for _ in range(2)], None)
    wait(Work([0.0], limits), 1e-9)
    assert limits == [None, None, timedelta(milliseconds=1)]


@pytest.mark.parametrize(
    ("kinds", "place"), [(("cpu",), "cpu"), (("cuda",), "cuda:3"), (("cuda", "cpu"), "cpu"), (("xpu",), "cpu")]
)
def test_ranks_compare_their_calls_where_all_of_them_can(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], place: str
) -> None:
    """A rank whose tensors are in the wrong place too: on the CPU unless the group has nothing but GPUs."""
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
    """Before a group's first batch there, for which NCCL asks; a comparison on the GPUs does as well."""
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


def test_messages_go_through_the_plan_group_of_a_planned_group() -> None:
    """That for the tensors' device; groups of torch's own kinds are what they are."""

    class Planned(Group):
        """Knows its plain groups."""

        def plan_group(self, device: str | None = None) -> str:
            """Tell which was asked for."""
            return f"for {device}"

    group = Group("cpu")
    assert p2p_group(group, torch.zeros(1)) is group
    assert p2p_group(Planned("cpu"), None, torch.zeros(1, device="meta")) == "for meta"
    assert p2p_group(Planned("cpu"), None, "no tensor") == "for None"
