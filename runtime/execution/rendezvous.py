"""Rendezvous of ranks, started here or by a launcher such as torchrun, and a task on each."""

import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...errors import ColloptError, MissingDependencyError, ProgramError, UnsupportedError
from .agreement import first_line
from .arguments import import_torch
from .local_ranks import Listener, listening, run_ranks

BACKENDS = ("gloo", "nccl")
SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"  # NCCL's variable, from 2.30 on; here it is enough for older versions too
PROGRAMS = ("the plan", "the plans")  # Terms whose values, digests, would tell nobody anything

REQUIRED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torch.distributed needs to bring ranks together; torchrun sets all of them."""
LAST_PORT = 65535

Part = TypeVar("Part")


class Rendezvous(NamedTuple):
    """How the ranks find each other."""

    num_ranks: int
    backend: str  # One of `BACKENDS`; a process group that there is already keeps its own
    timeout_s: float  # Seconds for everything
    terms: Mapping[str, object]  # What ranks of a launcher have to agree on


def on_all_ranks(
    task: Callable[[Any], Part], rendezvous: Rendezvous, preload: str, on_update: Listener | None = None
) -> list[Part]:
    """Run ``task(device)`` on every rank, of which this process is one if a launcher or the caller has made it so."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("running a plan needs torch; install it with: pip install 'collopt[torch]'")
    if launched_rank() is not None:
        with listening(on_update):
            return _as_one_of_them(task, rendezvous)
    return run_ranks(
        partial(_as_local_rank, task, rendezvous),
        rendezvous.num_ranks,
        timeout_s=rendezvous.timeout_s,
        preload=("torch", "torch.distributed", preload),
        on_update=on_update,
    )


def _as_one_of_them(task: Callable[[Any], Part], rendezvous: Rendezvous) -> list[Part]:
    """Run the task as one rank of a launcher, and gather the parts of all."""
    _, dist = import_torch()
    if dist.is_initialized():
        _check_size(rendezvous, dist.get_world_size())
        return _gathered(task, rendezvous, int(os.environ.get("LOCAL_RANK", dist.get_rank())))
    launch = launch_of_environment()
    assert launch is not None  # Or `launched_rank` would have said that this process is no rank.
    _check_size(rendezvous, launch.size)
    _check_backend(rendezvous.backend, launch.local_size)
    separate_hosts(rendezvous.backend, launch.local_rank, launch.local_size)
    with _as_program_error(f"rank {launch.rank} of {launch.size} could not join the others at {launch.master}"):
        dist.init_process_group(rendezvous.backend, timeout=timedelta(seconds=rendezvous.timeout_s))
    try:
        return _gathered(task, rendezvous, launch.local_rank)
    finally:
        # After a failure the group may be past an orderly end, and the caller needs the failure.
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _gathered(task: Callable[[Any], Part], rendezvous: Rendezvous, local_rank: int) -> list[Part]:
    import torch.distributed as dist

    parts: list[Any] = [None] * rendezvous.num_ranks
    with _as_program_error(f"rank {dist.get_rank()} of {rendezvous.num_ranks} could not finish"):
        device = _device(dist.get_backend(), local_rank)
        # Gloo ends the process, without an exception, where sizes differ.
        dist.all_gather_object(parts, {name: str(value) for name, value in rendezvous.terms.items()})
        _check_agreement(parts)
        dist.all_gather_object(parts, task(device))
    return parts


def _as_local_rank(task: Callable[[Any], Part], rendezvous: Rendezvous, rank: int, folder: str) -> Part:
    """Run the task as a rank that `on_all_ranks` started."""
    import torch
    import torch.distributed as dist

    _check_backend(rendezvous.backend, rendezvous.num_ranks)
    separate_hosts(rendezvous.backend, rank, rendezvous.num_ranks)
    torch.set_num_threads(1)
    if "lo" in (name for _, name in socket.if_nameindex()):
        # Everything stays on this machine, whatever its host name resolves to.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        rendezvous.backend,
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=rendezvous.num_ranks,
        timeout=timedelta(seconds=rendezvous.timeout_s),
    )
    part = task(_device(rendezvous.backend, rank))
    dist.barrier()
    dist.destroy_process_group()
    return part


def _device(backend: str, local_rank: int) -> Any:
    """Return the device of the rank's tensors, and make it the current one if it is a GPU."""
    import torch

    if backend != "nccl":
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def separate_hosts(backend: str, local_rank: int, local_ranks: int) -> None:
    """Give each rank a host of its own where ranks share GPUs, as NCCL before 2.30 refuses equal GPUs of one host."""
    import torch

    cuda: Any = torch.cuda  # Whose module nccl has no types
    if backend == "nccl" and cuda.device_count() < local_ranks and cuda.nccl.version() < (2, 30):
        os.environ.setdefault("NCCL_HOSTID", f"{socket.gethostname()}-{local_rank}")


def _check_size(rendezvous: Rendezvous, size: int) -> None:
    if size != rendezvous.num_ranks:
        raise UnsupportedError(f"{size} processes were started, the plan is for {rendezvous.num_ranks} ranks")


def _check_agreement(terms: Sequence[Mapping[str, str]]) -> None:
    """Refuse different terms, on all ranks alike."""
    for name in terms[0]:
        values = list(dict.fromkeys(rank_terms[name] for rank_terms in terms))
        if len(values) > 1:
            shown = "" if name in PROGRAMS else f": {', '.join(values)}"
            raise ProgramError(f"the ranks disagree about {name}{shown}; start all with the same plans and options")


@contextmanager
def _as_program_error(what: str) -> Iterator[None]:
    """Raise torch's errors about missing ranks as `ProgramError`: their first line after `what`."""
    try:
        yield
    except ColloptError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        raise ProgramError(f"{what}: {first_line(error)}") from error


def _check_backend(backend: str, local_ranks: int) -> None:
    """Refuse a backend that cannot run here."""
    import torch
    import torch.distributed as dist

    available = [name for name in (*BACKENDS, "mpi", "ucc") if dist.is_available() and dist.is_backend_available(name)]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if backend not in available or (backend == "nccl" and gpus == 0):
        raise UnsupportedError(
            f"backend {backend} is not available: torch {torch.__version__} has {', '.join(available) or 'none'} "
            f"and sees {gpus} GPUs; try gloo"
        )
    if backend == "nccl" and gpus < local_ranks and os.environ.get(SHARING) != "1":
        raise UnsupportedError(
            f"{local_ranks} local ranks need as many GPUs for nccl, there are {gpus}; use gloo, or let ranks share "
            f"GPUs, for tests, with {SHARING}=1"
        )


class Launch(NamedTuple):
    """What a launcher has told this process."""

    rank: int  # Which this process is,
    size: int  # of how many
    local_rank: int  # The same among the ranks on this machine, all of them where the launcher does not say
    local_size: int
    master: str  # Host and port at which the ranks meet


def launched_rank() -> int | None:
    """Return which rank this process is, or None if nobody has started it as one.

    It is one if torch.distributed is initialised, or by the environment variables that torchrun sets; otherwise
    `run_local` starts processes.  Raises `UnsupportedError` if some of the variables are missing or make no sense.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank: int = distributed.get_rank()
        return rank
    launch = launch_of_environment()
    return None if launch is None else launch.rank


def launch_of_environment() -> Launch | None:
    """Read the environment variables of torchrun; `WORLD_SIZE` alone is no launch, as batch systems set it too."""
    if "WORLD_SIZE" not in os.environ or not {"RANK", "MASTER_ADDR"} & os.environ.keys():
        return None
    if missing := [name for name in REQUIRED if not os.environ.get(name)]:
        raise UnsupportedError(
            f"the environment has WORLD_SIZE but no {missing[0]}; start the ranks with torchrun, or unset WORLD_SIZE "
            "to run all ranks on this machine"
        )
    size = _number("WORLD_SIZE", 1, sys.maxsize)
    rank = _number("RANK", 0, size - 1)
    port = _number("MASTER_PORT", 1, LAST_PORT)
    local_size = _number("LOCAL_WORLD_SIZE", 1, size) if "LOCAL_WORLD_SIZE" in os.environ else size
    local_rank = _number("LOCAL_RANK", 0, local_size - 1) if "LOCAL_RANK" in os.environ else rank
    return Launch(rank, size, local_rank, local_size, f"{os.environ['MASTER_ADDR']}:{port}")


def _number(name: str, lowest: int, highest: int) -> int:
    text = os.environ[name]
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    if not lowest <= value <= highest:
        upper = "on" if highest == sys.maxsize else f"to {highest}"
        raise UnsupportedError(
            f"the environment variable {name} is {text!r}; expected a whole number from {lowest} {upper}"
        )
    return value


class TorchFacts(NamedTuple):
    """What there is of torch."""

    version: str | None  # None where torch is not installed or cannot be imported
    accelerator: str = ""  # Such as ``CUDA 12.8`` or ``ROCm 6.4``, which this build is for
    backends: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # Names of the GPUs that torch sees
    problem: str = ""  # Why torch cannot be imported; empty if it can, or is not installed


def torch_facts() -> TorchFacts:
    """Import torch, if it is installed, and ask it."""
    if importlib.util.find_spec("torch") is None:
        return TorchFacts(None)
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # noqa: BLE001 - a broken build fails in any way
        return TorchFacts(None, problem=" ".join(str(error).split()) or type(error).__name__)
    kinds = {"CUDA": torch.version.cuda, "ROCm": getattr(torch.version, "hip", None)}
    accelerator = next((f"{name} {version}" for name, version in kinds.items() if version), "")
    names = ("gloo", "nccl", "mpi") if dist.is_available() else ()
    backends = tuple(name for name in names if dist.is_backend_available(name))
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = tuple(torch.cuda.get_device_name(number) for number in range(count))
    return TorchFacts(torch.__version__, accelerator, backends, devices)
