"""Faults of the cache of compiled kernels: each ends in a compiled kernel and one warning."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from numba.core import caching, config

from collopt.cli.terminal.progress import computing
from collopt.support import kernels
from collopt.support.kernels import cache_problems
from collopt.support.misses import on_first_miss, timed_compilation

MODULE = """from collopt.support.kernels import kernel

@kernel
def double(number):
    return 2 * number
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a module with a kernel, which was compiled and cached."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(cache_problems, "other tests", "")
    cache_problems.clear()
    (path := tmp_path / "doubling.py").write_text(MODULE)
    assert load(path).double(4) == 8
    assert not cache_problems
    return path


def load(path: Path) -> ModuleType:
    """Import the file, as another process would."""
    spec = importlib.util.spec_from_file_location("doubling", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def test_compiling_is_told_once_and_only_if_nothing_is_cached(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For another type of number too."""
    with computing("calls"):
        assert load(module).double(4) == 8
    assert capsys.readouterr().err == ""
    with computing("calls"):
        again = load(module)
        assert (again.double(0.5), again.double(1j)) == (1, 2j)
    assert capsys.readouterr().err.count("this run compiles numba kernels") == 1
    with computing("calls"):
        assert load(module).double(0.5) == 1
    assert capsys.readouterr().err == ""


def test_only_compilation_is_timed(module: Path) -> None:
    """Not kernels that come from the cache, nor what they compute."""
    with timed_compilation() as cached:
        assert load(module).double(4) == 8
    with timed_compilation() as compiled:
        assert load(module).double(0.5) == 1
    assert cached.seconds == 0 < compiled.seconds


def test_a_kernel_that_another_process_compiles_is_waited_for(module: Path, tmp_path: Path) -> None:
    """And then loaded from the cache."""
    (lock,) = tmp_path.rglob("*.lock")
    stored = {path: path.read_bytes() for path in tmp_path.rglob("*.nb?")}
    for path in stored:
        path.unlink()
    compiled: list[bool] = []
    with ThreadPoolExecutor(1) as thread, on_first_miss(lambda: compiled.append(True)):
        with lock.open("wb") as theirs:
            fcntl.flock(theirs, fcntl.LOCK_EX)
            answer = thread.submit(lambda: load(module).double(4))
            time.sleep(0.3)
            assert not answer.done()
            for path, content in stored.items():
                path.write_bytes(content)
        assert answer.result(timeout=30) == 8
    assert not compiled


def test_a_process_that_is_stopped_while_it_compiles_is_not_waited_for(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not longer than the limit."""
    monkeypatch.setattr(kernels, "MAX_WAIT_S", 0.1)
    (lock,) = tmp_path.rglob("*.lock")
    with lock.open("wb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert load(module).double(0.5) == 1


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("size", [0, 40])
def test_a_broken_file_is_compiled_again(
    module: Path, suffix: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty or truncated one, and the next process finds a good one."""
    (file,) = module.parent.glob(f"cache/*/*.{suffix}")
    file.write_bytes(file.read_bytes()[:size])
    with caplog.at_level(logging.WARNING, "collopt"):
        assert load(module).double(4) == 8
    assert len(caplog.records) == 1
    assert list(cache_problems) == ["broken"]
    cache_problems.clear()
    again = load(module)
    assert again.double(4) == 8
    assert sum(again.double.stats.cache_hits.values()) == 1
    assert not cache_problems


def test_a_damaged_file_is_compiled_again(module: Path) -> None:
    """Zeros in place of machine code, such as a power cut leaves, would end the process."""
    (file,) = module.parent.glob("cache/*/*.nbc")
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(255 - byte for byte in content[middle : middle + 64])
    file.write_bytes(content)
    assert load(module).double(4) == 8
    assert list(cache_problems) == ["broken"]


def test_a_full_disk_is_named(module: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With the folder and what to do."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", full)
    assert load(module).double(4.5) == 9
    (record,) = caplog.records
    assert str(module.parent / "cache") in record.getMessage()
    assert "No space left on device" in record.getMessage()
    assert "free some space, or set NUMBA_CACHE_DIR to another" in record.getMessage()


def test_a_folder_in_place_of_a_file_is_named(module: Path) -> None:
    """With another advice than for a full disk."""
    (file,) = module.parent.glob("cache/*/*.nbi")
    file.unlink()
    file.mkdir()
    assert load(module).double(4) == 8
    assert "Is a directory" in cache_problems["unwritable"]
    assert "delete that folder, or set NUMBA_CACHE_DIR to another" in cache_problems["unwritable"]


def test_a_cache_that_cannot_be_written_is_read(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was filled before, as in an image; nothing is said."""
    monkeypatch.setattr(caching.tempfile, "TemporaryFile", _refused)
    found = load(module)
    assert found.double(4) == 8
    assert sum(found.double.stats.cache_hits.values()) == 1
    assert not cache_problems


def test_no_folder_at_all_is_told(
    module: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A read-only package without a home: the kernel works, uncached."""
    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", _refused)
    monkeypatch.setattr("os.scandir", _refused)
    found = load(module)
    assert found.double(4) == 8
    assert found.double._cache.cache_path is None
    (record,) = caplog.records
    assert "set NUMBA_CACHE_DIR" in record.getMessage()


def _refused(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")
