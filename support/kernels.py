"""Numba kernels, compiled on first use and cached in files that may be broken, full or read-only.

Numba ends a program for each of these: an empty file of its cache is an `EOFError`, a folder that cannot be written a
`RuntimeError` when the module is imported.  Here a kernel is compiled instead, and `cache_problems` says why, as does a
warning, once.  A cache that was filled before, such as in an image, is used where it cannot be written.
"""

import errno
import fcntl
import logging
import os
import pickle
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar

import numba
from numba.core import caching, serialize

from .misses import report_miss
from .writing import finished_before_signals

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

MAX_WAIT_S = 60.0  # for a kernel that another process compiles, which takes some seconds
POLL_S = 0.02

_log = logging.getLogger("collopt.support.kernels")

cache_problems: dict[str, str] = {}
"""What was wrong with the cache in this process, by kind of problem."""


def kernel(function: Kernel) -> Kernel:
    """Compile a function when it is called first, without the interpreter's lock, and cache it where possible."""
    njit: Any = numba.njit  # Its stubs lack an option: no entry points for C, which nobody calls
    compiled = njit(nogil=True, no_cfunc_wrapper=True)(function)
    compiled.get_call_template = _once_for_constants(compiled.get_call_template)
    try:
        # What `cache=True` does, with numba's own class.
        compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]
    except RuntimeError:
        _tell(
            "nowhere",
            "neither the package's folder nor that of the user's caches can be written, so each process compiles its "
            "kernels again, which takes up to a minute; set NUMBA_CACHE_DIR to a folder that can be written",
        )
    return compiled  # type: ignore[no-any-return]


def _once_for_constants(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels that call another one with constants share what is compiled for its other calls."""

    def resolve_types(arguments: Iterable[Any], named: Mapping[str, Any]) -> Any:
        unliteral: Any = numba.types.unliteral
        return resolve(
            tuple(unliteral(each) for each in arguments), {name: unliteral(each) for name, each in named.items()}
        )

    return resolve_types


def _tell(kind: str, problem: str) -> None:
    if kind not in cache_problems:
        cache_problems[kind] = problem
        _log.warning("%s", problem)


# Older versions of numba have these names with an underscore.
_FOLDERS = {each.__name__.lstrip("_"): each for each in caching.CompileResultCacheImpl._locator_classes}
_Given: Any = _FOLDERS["UserProvidedCacheLocator"]
_InTree: Any = _FOLDERS["InTreeCacheLocator"]


class _ReadableFolder:
    """Makes a locator of numba's content with a folder that is there, if it cannot be written."""

    def ensure_cache_path(self) -> None:
        """Raise OSError if the folder can be neither written nor read."""
        try:
            super().ensure_cache_path()  # type: ignore[misc]
        except OSError:
            os.scandir(self.get_cache_path()).close()  # type: ignore[attr-defined]


class _GivenFolder(_ReadableFolder, _Given):  # type: ignore[misc]
    """The folder of NUMBA_CACHE_DIR."""


class _FilledFolder(_ReadableFolder, _InTree):  # type: ignore[misc]
    """The package's own folder, which may have been filled by someone else."""


class _Files(caching.CompileResultCacheImpl):
    """Where a kernel's files are, and a checksum of what is in them: damaged machine code would end the process."""

    _locator_classes = [_GivenFolder, *caching.CompileResultCacheImpl._locator_classes, _FilledFolder]  # noqa: RUF012

    def reduce(self, data: Any) -> tuple[int, bytes]:
        """Return what is written to a file."""
        content = serialize.dumps(super().reduce(data))  # type: ignore[no-untyped-call]
        return zlib.crc32(content), content

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return a compiled kernel, or raise ValueError if its file is not as it was written."""
        checksum, content = payload
        if zlib.crc32(content) != checksum:
            raise ValueError("its checksum differs")
        return super().rebuild(target_context, pickle.loads(content))  # type: ignore[no-untyped-call]  # noqa: S301 - as numba does


class _Cache(caching.FunctionCache):
    """Numba's cache of a function, of which no fault ends the program.

    Between a miss and the kernel that is saved, a lock of the operating system makes other processes wait, so that of
    the ranks of a job that start together one compiles.
    """

    _impl_class = _Files
    _lock: BinaryIO | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a compiled kernel, or None; a broken file is written again."""
        self._release()
        found = self._loaded(sig, target_context)
        if found is None and self._acquire():
            found = self._loaded(sig, target_context)
        if found is None:
            report_miss()
        else:
            self._release()
        return found

    def _loaded(self, sig: Any, target_context: Any) -> Any:
        found = None
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - unpickling broken files raises anything
            _tell(
                "broken", f"a cache file of kernels in {self.cache_path} is broken ({_described(error)}); replacing it"
            )
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
        return found

    def _acquire(self) -> bool:
        """Lock the kernel, and return whether another process had it; one that is stopped is not waited for."""
        end = time.monotonic() + MAX_WAIT_S
        with suppress(OSError):
            self._impl.locator.ensure_cache_path()
            self._lock = open(f"{self.cache_path}/{self._impl.filename_base}.lock", "wb")  # noqa: PTH123, SIM115
            waited = False
            while time.monotonic() < end:
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    waited = True
                    time.sleep(POLL_S)
                else:
                    return waited
        return False

    def _release(self) -> None:
        """Unlock the kernel, in forked processes too; the end of the process does so as well."""
        if self._lock is not None:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel if that is possible."""
        try:
            with finished_before_signals():
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - as above
            self.disable()  # type: ignore[no-untyped-call]
            is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            _tell(
                "unwritable",
                f"kernels cannot be cached in {self.cache_path} ({_described(error)}), so each process compiles them "
                f"again; {'free some space' if is_full else 'delete that folder'}, or set NUMBA_CACHE_DIR to another",
            )
        finally:
            self._release()


def _described(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    return text.rstrip(": ")
