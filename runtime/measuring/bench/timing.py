"""How long calls take on a device, what the device is, and what time it is."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

from .report import Device

__all__ = ["described", "mean_seconds", "now"]


def mean_seconds(call: Callable[[], object], times: int, device: Any) -> float:
    """Make a call several times, one after the other, and return the mean time of one."""
    if device.type == "cuda":
        return _on_gpu(call, times, device)
    begun = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begun) / times


def _on_gpu(call: Callable[[], object], times: int, device: Any) -> float:
    """Between two events in the stream, since calls return before their work is done."""
    import torch

    cuda: Any = torch.cuda
    begun, ended = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda.synchronize(device)
    begun.record()
    for _ in range(times):
        call()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3 / times


def described(rank: int, device: Any) -> Device:
    """Say what a rank runs on."""
    import torch

    if device.type != "cuda":
        return Device(rank, os.getpid(), socket.gethostname(), -1, "", device.type)
    found = torch.cuda.get_device_properties(device)
    # Older versions of torch do not tell the bus.
    place = [getattr(found, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
    bus = f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}"
    return Device(rank, os.getpid(), socket.gethostname(), device.index, bus, found.name)


def now() -> str:
    """Date and time of this place."""
    return time.strftime("%Y-%m-%d %H:%M:%S")
