"""What every test gets: settings of libraries, an order that suits two processes, a reason where a GPU is missing."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import settings

from forked_supervisors import ForkedSubprocess

# Numba compiles on first use, so a deadline per example would measure the compiler; CI must not fail by luck.
settings.register_profile("collopt", deadline=None, derandomize="CI" in os.environ, print_blob=True)
# `make test` draws a third of the examples (--hypothesis-profile=quick), others each time; CI draws all, the same ones.
settings.register_profile("quick", settings.get_profile("collopt"), max_examples=33)
settings.load_profile("collopt")

# A process of tests keeps many objects, and looking for circles among all of them takes a tenth of the time.
gc.set_threshold(100_000, 50, 1000)

# A shell starts what runs in the background with interrupts ignored, and nohup with hangups ignored; so would be what
# tests start and interrupt.
if threading.current_thread() is threading.main_thread():
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)

# No test opens a window, and processes that tests start inherit this.
os.environ["MPLBACKEND"] = "Agg"


FIRST = ("test_doctests.py", "topologies", "tests")
"""Files and folders that go first where two processes share the tests, which take the next file when they are free.

The doctests compile most kernels; topologies, which need none, keep the other process from compiling them too.
Short files come last, so that both end at the same time.
"""


def turn(item: pytest.Item) -> tuple[int, tuple[str, ...]]:
    """Where a test comes."""
    names = (item.path.name, item.path.parent.name)
    return next((number for number, name in enumerate(FIRST) if name in names), len(FIRST)), item.path.parts


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let the second of two processes import the tests from behind, as the first writes bytecode that it can read."""
    report = yield
    if isinstance(collector, pytest.Directory) and os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        report.result.reverse()
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that are named in `FIRST`; skip, with the reason, what needs a GPU where there is none."""
    items.sort(key=turn)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return  # without importing torch, which takes seconds
    import torch

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA or ROCm device"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Call the command line in this process: its status and what it printed."""
    from cli_calls import call

    return partial(call, capsys)


@pytest.fixture(autouse=True, scope="session")
def forked_supervisors() -> Iterator[None]:
    """Fork supervisors of local ranks from one process that has imported torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collopt.runtime.execution.local_ranks.subprocess", ForkedSubprocess)
        yield


@pytest.fixture
def real_supervisors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start supervisors of local ranks as the product does."""
    monkeypatch.setattr("collopt.runtime.execution.local_ranks.subprocess", subprocess)
