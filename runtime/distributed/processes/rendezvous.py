"""Brings ranks together, on this machine or as a launcher has started them, and has each do its part of a task."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ....errors import ColloptError, MissingDependencyError, ProgramError, UnsupportedError
from ..calls.agreement import first_line
from ..calls.arguments import import_torch
from .local_ranks import Listener, listening, run_ranks
from .torchrun import launch_of_environment, launched_rank

BACKENDS = ("gloo", "nccl")
PROGRAMS = ("the plan", "the plans")
"""Terms whose values, digests, would tell nobody anything."""

Part = TypeVar("Part")


class Meeting(NamedTuple):
    """Who meets, and how.

    `backend`: One of `BACKENDS`; a process group that there is already keeps its own.
    `timeout_s`: Seconds for everything.
    """

    num_ranks: int
    backend: str
    timeout_s: float


def on_all_ranks(
    task: Callable[[Any], Part],
    meeting: Meeting,
    *,
    terms: Mapping[str, object],
    preload: Sequence[str] = (),
    heard: Listener | None = None,
) -> list[Part]:
    """Run ``task(device)`` on every rank, in torch.distributed's default group.

    In a process that torchrun started, or in which torch.distributed is initialised, this process is one of the ranks,
    and all have to make the same call; otherwise one process per rank is started on this machine.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("running a plan needs torch; install it with: pip install 'collopt[torch]'")
    if launched_rank() is not None:
        with listening(heard):
            return _as_one_of_them(task, meeting, terms)
    return run_ranks(
        partial(_as_local_rank, task, meeting),
        meeting.num_ranks,
        timeout_s=meeting.timeout_s,
        preload=("torch", "torch.distributed", *preload),
        heard=heard,
    )


def _as_one_of_them(task: Callable[[Any], Part], meeting: Meeting, terms: Mapping[str, object]) -> list[Part]:
    """Be one of the ranks that somebody else started, and hear from the others."""
    _, dist = import_torch()
    if dist.is_initialized():
        _check_size(meeting, dist.get_world_size())
        return _gathered(task, meeting, terms, int(os.environ.get("LOCAL_RANK", dist.get_rank())))
    launch = launch_of_environment()
    assert launch is not None  # Or `launched_rank` would have said that this process is no rank.
    _check_size(meeting, launch.size)
    _check_backend(meeting.backend, launch.local_size)
    with _told_by(f"rank {launch.rank} of {launch.size} could not join the others at {launch.meeting_point}"):
        dist.init_process_group(meeting.backend, timeout=timedelta(seconds=meeting.timeout_s))
    try:
        return _gathered(task, meeting, terms, launch.local_rank)
    finally:
        # After a failure the group may be past an orderly end, and the failure is what is to be told.
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _gathered(
    task: Callable[[Any], Part], meeting: Meeting, terms: Mapping[str, object], local_rank: int
) -> list[Part]:
    import torch.distributed as dist

    parts: list[Any] = [None] * meeting.num_ranks
    with _told_by(f"rank {dist.get_rank()} of {meeting.num_ranks} could not finish"):
        device = _device(dist.get_backend(), local_rank)
        # Gloo ends the process, without an exception, where sizes differ.
        dist.all_gather_object(parts, {name: str(value) for name, value in terms.items()})
        _check_agreement(parts)
        dist.all_gather_object(parts, task(device))
    return parts


def _as_local_rank(task: Callable[[Any], Part], meeting: Meeting, rank: int, folder: str) -> Part:
    """Be one of the ranks that `on_all_ranks` started."""
    import torch
    import torch.distributed as dist

    _check_backend(meeting.backend, meeting.num_ranks)
    torch.set_num_threads(1)
    if "lo" in (name for _, name in socket.if_nameindex()):
        # Everything stays on this machine, whatever its host name resolves to.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        meeting.backend,
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=meeting.num_ranks,
        timeout=timedelta(seconds=meeting.timeout_s),
    )
    part = task(_device(meeting.backend, rank))
    dist.barrier()
    dist.destroy_process_group()
    return part


def _device(backend: str, local_rank: int) -> Any:
    """Return where tensors belong, and make it the current place if it is a GPU."""
    import torch

    if backend != "nccl":
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _check_size(meeting: Meeting, size: int) -> None:
    if size != meeting.num_ranks:
        raise UnsupportedError(f"{size} processes were started, the plan is for {meeting.num_ranks} ranks")


def _check_agreement(terms: Sequence[Mapping[str, str]]) -> None:
    """Refuse different terms, on all ranks alike."""
    for name in terms[0]:
        values = list(dict.fromkeys(each[name] for each in terms))
        if len(values) > 1:
            shown = "" if name in PROGRAMS else f": {', '.join(values)}"
            raise ProgramError(f"the ranks disagree about {name}{shown}; start all with the same plans and options")


@contextmanager
def _told_by(what: str) -> Iterator[None]:
    """Turn what torch raises when ranks do not come, or leave, into an error of ours: its first line after `what`."""
    try:
        yield
    except ColloptError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        raise ProgramError(f"{what}: {first_line(error)}") from error


def _check_backend(backend: str, local_ranks: int) -> None:
    """Say what there is if the backend cannot run here."""
    import torch
    import torch.distributed as dist

    available = [name for name in (*BACKENDS, "mpi", "ucc") if dist.is_available() and dist.is_backend_available(name)]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if backend not in available or (backend == "nccl" and gpus == 0):
        raise UnsupportedError(
            f"backend {backend} is not available: torch {torch.__version__} has {', '.join(available) or 'none'} "
            f"and sees {gpus} GPUs; try gloo"
        )
    if backend == "nccl" and gpus < local_ranks and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
        raise UnsupportedError(
            f"{local_ranks} local ranks need as many GPUs for nccl, there are {gpus}; use gloo, or with NCCL 2.30 or "
            "later set NCCL_MULTI_RANK_GPU_ENABLE=1"
        )
