"""Kernels: Python for little work, numba for much, the same results; and faults of numba's cache cost time only."""

from __future__ import annotations

import errno
import importlib.util
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numba.core import caching, config

from collopt.cli.terminal.progress import computing
from collopt.support import kernels
from collopt.support.kernels import cache_folder, cache_problems, is_ready, kernels_in

MODULE = """import numpy as np
from collopt.support.kernels import kernel, kernel_with, runtime_kernel

@kernel
def double(number):
    return 2 * number

@kernel
def double_all(numbers, target):
    for place in range(len(numbers)):
        target[place] = double(numbers[place])
    return target.sum(), target, numbers[0] > 1

@kernel_with(lambda number: 10**12)
def heavy(number):
    return double(number)

@runtime_kernel
def urgent(number):
    return double(number)

@kernel
def hashed(number):
    return number * np.uint64(0x9E3779B97F4A7C15)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a module with kernels, none of them compiled."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(cache_problems, "other tests", "")
    cache_problems.clear()
    (path := tmp_path / "doubling.py").write_text(MODULE)
    os.utime(path, (1, 1))
    return path


@pytest.fixture
def cached(module: Path) -> Iterator[Path]:
    """The same file, with a kernel in the cache; kernels are compiled."""
    with kernels_in("compiled"):
        assert load(module).double(4) == 8
        assert not cache_problems
        yield module


def load(path: Path) -> ModuleType:
    """Import the file, as another process would."""
    spec = importlib.util.spec_from_file_location("doubling", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["doubling"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_little_work_is_done_by_python_and_much_by_numba(module: Path) -> None:
    """A call decides for all kernels that it calls; those that jobs wait for are always compiled."""
    kernel = load(module)
    assert kernel.double(4) == 8
    assert kernel.double.loaded is None
    assert (kernel.heavy(4), kernel.urgent(4)) == (8, 8)
    assert None not in (kernel.heavy.loaded, kernel.urgent.loaded)
    assert kernel.double.loaded is None


def test_many_calls_are_compiled_once_they_have_taken_as_long(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or once they gain from what the cache holds."""
    kernel = load(module)
    kernel.double(4)
    monkeypatch.setattr(kernels, "COMPILE_S", 0.0)
    kernel.double(4)
    assert kernel.double.loaded is not None
    monkeypatch.undo()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(module.parent / "cache"))
    again = load(module)
    assert is_ready(again.double)
    assert not is_ready(again.heavy)
    monkeypatch.setattr(kernels, "LOAD_S", -1.0)
    monkeypatch.setattr(kernels, "LOAD_ONE_S", -1.0)
    again.double(4)
    again.hashed(np.uint64(4))
    assert again.double.loaded is not None
    assert again.hashed.loaded is None


def test_both_forms_return_the_same_types(module: Path) -> None:
    """Python's numbers, also in tuples, and arrays; products wrap around without a warning."""
    answers = []
    for form in ("python", "compiled"):
        with kernels_in(form):
            total, target, flag = (kernel := load(module)).double_all(np.arange(2, 5), np.zeros(3, dtype=np.int64))
            assert [type(part) for part in (total, target, flag)] == [int, np.ndarray, bool]
            answers.append((total, target.tolist(), flag, int(kernel.hashed(np.uint64(2**60 + 3)))))
    assert answers[0] == answers[1] == (18, [4, 6, 8], True, (2**60 + 3) * 0x9E3779B97F4A7C15 % 2**64)


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_small_plans_do_without_numba(tmp_path: Path, disabled: str) -> None:
    """And nothing loads it with NUMBA_DISABLE_JIT=1, not even kernels that jobs wait for."""
    program = (
        "import sys, collopt\n"
        "collopt.plan(collopt.topologies.dgx_a100(), 'allgather').verify()\n"
        f"if {disabled}: collopt.schedule_all_to_allv([[0, 1], [2, 0]], servers=2, gpus_per_server=1)\n"
        "sys.exit('numba' in sys.modules)\n"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": disabled, "NUMBA_CACHE_DIR": str(tmp_path)}
    environment.pop("COLLOPT_KERNELS", None)
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0
    assert not list(tmp_path.iterdir())


def test_compiling_is_told_once_and_only_if_nothing_is_cached(cached: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For another type of number too."""
    with computing("calls"):
        assert load(cached).double(4) == 8
    assert capsys.readouterr().err == ""
    with computing("calls"):
        again = load(cached)
        assert (again.double(0.5), again.double(1j)) == (1, 2j)
    assert capsys.readouterr().err.count("this run compiles numba kernels") == 1
    with computing("calls"):
        assert load(cached).double(0.5) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"\x80\x05garbage", None])
def test_a_broken_file_is_compiled_again(
    cached: Path, suffix: str, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty, garbled or truncated one is told once, and the next process finds a good one."""
    (file,) = cached.parent.glob(f"cache/*/*.{suffix}")
    file.write_bytes(file.read_bytes()[:40] if content is None else content)
    with caplog.at_level(logging.WARNING, "collopt"):
        assert load(cached).double(4) == 8
    assert len(caplog.records) == 1
    assert list(cache_problems) == ["broken"]
    cache_problems.clear()
    again = load(cached)
    assert again.double(4) == 8
    assert sum(again.double.compiled.stats.cache_hits.values()) == 1
    assert not cache_problems


def test_a_full_disk_is_named(cached: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With the folder and what to do."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", full)
    assert load(cached).double(4.5) == 9
    (record,) = caplog.records
    assert str(cached.parent / "cache") in record.getMessage()
    assert "No space left on device" in record.getMessage()
    assert "free some space, or set NUMBA_CACHE_DIR to another folder" in record.getMessage()


def test_no_folder_at_all_is_told(
    cached: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A read-only package without a home: the kernel works, uncached."""

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refused)
    kernel = load(cached)
    assert kernel.double(4) == 8
    assert cache_folder(kernel.double) is None
    (record,) = caplog.records
    assert "set NUMBA_CACHE_DIR" in record.getMessage()


def _double(path: Path) -> None:
    with kernels_in("compiled"):
        assert load(path).double_all(np.arange(3), np.zeros(3, dtype=np.int64))[0] == 6


# JAX 0.10, where other tests of the process have imported it, warns of every fork; the children here do not use it.
@pytest.mark.filterwarnings("ignore:os.fork\\(\\) was called. os.fork\\(\\) is incompatible:RuntimeWarning")
def test_processes_that_start_together_and_are_killed_leave_a_good_cache(module: Path) -> None:
    """Each of those that live returns the right numbers, and the next process loads what they wrote."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_double, args=(module,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    time.sleep(0.5)
    assert workers[0].pid is not None
    os.kill(workers[0].pid, signal.SIGKILL)
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers[1:]] == [0, 0, 0]
    with kernels_in("compiled"):
        assert (again := load(module)).double_all(np.arange(3), np.zeros(3, dtype=np.int64))[0] == 6
    assert sum(again.double_all.compiled.stats.cache_hits.values()) == 1
    assert not cache_problems
