"""What every test gets: settings of the libraries that tests lean on, and a reason for each test that needs a GPU."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from hypothesis import settings

# Numba compiles on first use, so a deadline per example would measure the compiler; CI must not fail by luck.
settings.register_profile("collopt", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("collopt")

# A shell starts what runs in the background with interrupts ignored, and so would be what tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test opens a window, and processes that tests start inherit this.
os.environ["MPLBACKEND"] = "Agg"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what is marked ``gpu`` where torch sees no device."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return  # without importing torch, which takes seconds
    import torch

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA or ROCm device"))
