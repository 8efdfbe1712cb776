"""What every test gets: settings of the libraries that tests lean on, and a reason for each test that needs a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest
from hypothesis import settings

from forked_supervisors import ForkedSubprocess

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


@pytest.fixture(autouse=True, scope="session")
def forked_supervisors() -> Iterator[None]:
    """Fork supervisors of local ranks from one process that has imported torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collopt.runtime.distributed.processes.local_ranks.subprocess", ForkedSubprocess)
        yield


@pytest.fixture
def real_supervisors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start supervisors of local ranks as the product does."""
    monkeypatch.setattr("collopt.runtime.distributed.processes.local_ranks.subprocess", subprocess)
