"""Capabilities of the installed torch: backends, devices and versions."""

import importlib.util
from typing import NamedTuple


class TorchFacts(NamedTuple):
    """What there is of torch."""

    version: str | None  # None where torch is not installed or cannot be imported
    accelerator: str = ""  # Such as ``CUDA 12.8`` or ``ROCm 6.4``, which this build is for; empty for one without
    backends: tuple[str, ...] = ()  # Of torch.distributed: gloo, nccl (which is RCCL on ROCm), mpi
    devices: tuple[str, ...] = ()  # Names of the GPUs that torch sees
    problem: str = ""  # Why torch cannot be imported; empty if it can, or is not installed


def torch_facts() -> TorchFacts:
    """Import torch, if it is installed, and ask it."""
    if importlib.util.find_spec("torch") is None:
        return TorchFacts(None)
    try:
        import torch
        import torch.distributed
    except Exception as error:  # noqa: BLE001 - a broken build fails in any way
        return TorchFacts(None, problem=" ".join(str(error).split()) or type(error).__name__)
    accelerator = ""
    if torch.version.cuda:
        accelerator = f"CUDA {torch.version.cuda}"
    elif hip := getattr(torch.version, "hip", None):
        accelerator = f"ROCm {hip}"
    backends: tuple[str, ...] = ()
    if torch.distributed.is_available():
        backends = tuple(name for name in ("gloo", "nccl", "mpi") if torch.distributed.is_backend_available(name))
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = tuple(torch.cuda.get_device_name(number) for number in range(count))
    return TorchFacts(torch.__version__, accelerator, backends, names)
