"""Kernels: loops over arrays that Python runs where there is little to do, and numba compiles where there is much.

Both forms return the same: kernels stay within int64 or wrap around like numba does, and numbers that leave Python's
form lose the types of numpy.  A file of numba's cache that cannot be read or written costs time and one warning.
"""

import functools
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
Work = Callable[..., float]

LOAD_S = 1.0  # in all kernels of a process, after which it gains from numba's cache
LOAD_ONE_S = 0.05  # in one kernel, likewise
COMPILE_S = 4.0  # in one kernel, which takes about as long to compile with all that it calls
STEP_S = 1e-6  # that Python takes for a step, the unit of `Work`

FORMS = ("auto", "python", "compiled")

_log = logging.getLogger("collopt.support.kernels")

cache_problems: dict[str, str] = {}
"""What was wrong with the cache in this process, by kind of problem."""


@dataclass
class _Process:
    """What holds for all kernels of a process."""

    form: str
    python_s: float = 0.0  # in kernels that Python ran
    compile_s: float = 0.0


_disabled = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
_process = _Process(os.environ.get("COLLOPT_KERNELS", "auto"))
if _process.form not in FORMS:
    _log.warning("COLLOPT_KERNELS is %r, which is none of %s; taking auto", _process.form, ", ".join(FORMS))
    _process.form = "auto"


def kernel(function: Function) -> Function:
    """Make a function on arrays a kernel, whose work is as large as its arrays."""
    return _Kernel(function, _entries)  # type: ignore[return-value]


def runtime_kernel(function: Function) -> Function:
    """Make a function a kernel that is compiled from its first call on, since jobs wait for each of its calls."""
    return _Kernel(function, lambda *_: math.inf)  # type: ignore[return-value]


def kernel_with(work: Work) -> Callable[[Function], Function]:
    """Make a function a kernel, and tell how many steps its arguments take: simple statements, within a factor of 3."""

    def decorate(function: Function) -> Function:
        return _Kernel(function, work)  # type: ignore[return-value]

    return decorate


@contextmanager
def kernels_in(form: str) -> Iterator[None]:
    """Run all kernels in one of the `FORMS` within the context."""
    before, _process.form = _process.form, form
    try:
        yield
    finally:
        _process.form = before


def is_ready(function: Callable[..., Any]) -> bool:
    """Whether a kernel was compiled before, so that its first call takes no longer than loading it, or has to be."""
    assert isinstance(function, _Kernel)
    if _disabled or _process.form == "python":
        return False
    return _process.form == "compiled" or function.loaded is not None or function.is_cached


def cache_folder(function: Callable[..., Any]) -> Path | None:
    """Return the folder in which numba caches a kernel, or None if it cannot."""
    assert isinstance(function, _Kernel)
    path = None if _disabled else function.compiled.stats.cache_path
    return None if path is None else Path(path)


def _entries(*arguments: Any) -> int:
    """Count the entries of all arrays among the arguments, also those in tuples."""
    inner = sum(_entries(*argument) for argument in arguments if isinstance(argument, tuple))
    return inner + sum(argument.size for argument in arguments if isinstance(argument, np.ndarray))


class _Kernel:
    """The two forms of a kernel, each made when it is called first.

    Each call from outside decides for its whole call tree.  Python runs it until a process has spent `LOAD_S` in
    kernels; then those in numba's cache are loaded, and others are compiled once they have taken, or are expected to
    take, `COMPILE_S`.  ``NUMBA_DISABLE_JIT=1`` leaves all to Python, ``COLLOPT_KERNELS=compiled`` nothing.
    """

    def __init__(self, function: Callable[..., Any], work: Work) -> None:
        functools.update_wrapper(self, function)
        self.function, self._work = function, work
        self.loaded: Callable[..., Any] | None = None
        self._python_s = 0.0

    def __call__(self, *arguments: Any) -> Any:
        if self.loaded is not None and _process.form != "python":
            return self.loaded(*arguments)
        if self._is_worth_compiling(arguments):
            self.loaded = self.compiled
            return self.loaded(*arguments)
        begin = time.thread_time()
        try:
            # Hashes wrap around, as compiled ones do silently.
            with np.errstate(over="ignore"):
                return _without_numpy_types(self.python(*arguments))
        finally:
            spent = time.thread_time() - begin
            self._python_s += spent
            _process.python_s += spent

    def _is_worth_compiling(self, arguments: tuple[Any, ...]) -> bool:
        if _disabled or _process.form != "auto":
            return not _disabled and _process.form == "compiled"
        expected = self._work(*arguments) * STEP_S
        own = self._python_s + expected
        if own > COMPILE_S:
            return True
        return own > LOAD_ONE_S and _process.python_s + expected > LOAD_S and self.is_cached

    @property
    def python(self) -> Callable[..., Any]:
        """The function, which calls other kernels as functions."""
        return _namespace(self.function, "python")[self.function.__name__]  # type: ignore[no-any-return]

    @property
    def compiled(self) -> Any:
        """Numba's dispatcher, which calls those of other kernels."""
        return _namespace(self.function, "compiled")[self.function.__name__]

    @functools.cached_property
    def is_cached(self) -> bool:
        """Whether numba's cache holds it, as far as the names of its files tell without numba."""
        source = Path(self.function.__code__.co_filename)
        name = f"{source.stem}.{self.function.__qualname__}-*.nbi"
        if root := os.environ.get("NUMBA_CACHE_DIR"):
            folder, pattern = Path(root), f"{source.parent.name}_*/{name}"
        else:
            folder, pattern = source.parent / "__pycache__", name
        with suppress(OSError):
            changed = source.stat().st_mtime
            # Numba does not read a folder that it cannot write.
            return any(
                index.stat().st_mtime >= changed and os.access(index.parent, os.W_OK) for index in folder.glob(pattern)
            )
        return False


_namespaces: dict[tuple[int, str], tuple[dict[str, Any], dict[str, Any]]] = {}
"""By module and form: its names, and the same with kernels in that form."""


def _namespace(function: Callable[..., Any], form: str) -> dict[str, Any]:
    """Return the names of a function's module, kernels in one form, for that form of the module's own kernels."""
    names: dict[str, Any] = function.__globals__
    if (id(names), form) not in _namespaces:
        linked = dict(names)
        own = {name: value for name, value in names.items() if isinstance(value, _Kernel)}
        for name, value in own.items():
            if value.function.__globals__ is names:
                linked[name] = (_compiled if form == "compiled" else _copy)(value.function, linked)
            else:
                linked[name] = getattr(value, form)
        _namespaces[id(names), form] = names, linked
    return _namespaces[id(names), form][1]


def _copy(function: Callable[..., Any], names: dict[str, Any]) -> FunctionType:
    """Copy a function, with other globals."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    return copy


def _without_numpy_types(result: Any) -> Any:
    """Return numbers as Python's, as numba does."""
    if isinstance(result, tuple):
        parts = map(_without_numpy_types, result)
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result.item() if isinstance(result, np.generic) and not isinstance(result, np.void) else result


def _compiled(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """Let numba compile a function when it is called first, without the interpreter's lock, and cache it if it can."""
    # No entry points for C, which nobody calls.
    njit = functools.partial(_numba().njit, nogil=True, no_cfunc_wrapper=True)
    copy = _copy(function, names)
    try:
        dispatcher = njit(cache=True)(copy)
    except RuntimeError:
        _warn(
            "nowhere",
            "no folder for numba's cache can be written, so each process compiles its kernels again, which takes up to "
            "a minute; set NUMBA_CACHE_DIR to one that can",
        )
        dispatcher = njit()(copy)
    else:
        dispatcher._cache = _ForgivingCache(dispatcher._cache)
    resolve = dispatcher.get_call_template
    unliteral = _numba().types.unliteral
    # Kernels that call this one with constants share what is compiled for its other calls.
    dispatcher.get_call_template = lambda arguments, named: resolve(
        tuple(map(unliteral, arguments)), {name: unliteral(value) for name, value in named.items()}
    )
    return dispatcher


@functools.cache
def _numba() -> Any:
    """Import numba, and notice from then on what it compiles."""
    import numba
    from numba.core import event

    class Listener(event.Listener):
        """Adds up the time of compiling; kernels are compiled while those that call them are."""

        depth, begin = 0, 0.0

        def on_start(self, _: object) -> None:
            if not self.depth:
                self.begin = time.perf_counter()
                while _on_compiling:
                    _on_compiling.pop()()
            self.depth += 1

        def on_end(self, _: object) -> None:
            self.depth -= 1
            if not self.depth:
                _process.compile_s += time.perf_counter() - self.begin

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
    return numba


class _ForgivingCache:
    """Numba's cache of a kernel, of which no fault ends the program: the kernel is compiled instead."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Load a compiled kernel, or None."""
        try:
            return self._cache.load_overload(signature, context)
        except Exception as error:  # noqa: BLE001 - unpickling broken files raises anything
            _warn("broken", f"a kernel in {self.cache_path} is broken ({_described(error)}); compiling it again")
            with suppress(OSError):
                self._cache.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Save a compiled kernel if that is possible."""
        try:
            self._cache.save_overload(signature, data)
        except Exception as error:  # noqa: BLE001 - as above
            _warn(
                "unwritable",
                f"kernels cannot be cached in {self.cache_path} ({_described(error)}), so each process compiles them "
                "again; free some space, or set NUMBA_CACHE_DIR to another folder",
            )


def _warn(kind: str, problem: str) -> None:
    if kind not in cache_problems:
        cache_problems[kind] = problem
        _log.warning("%s", problem)


def _described(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    return text.rstrip(": ")


_on_compiling: list[Callable[[], object]] = []


@contextmanager
def on_compiling(listener: Callable[[], object]) -> Iterator[None]:
    """Call a function before the first kernel that is compiled within the context."""
    _on_compiling.append(listener)
    try:
        yield
    finally:
        if listener in _on_compiling:
            _on_compiling.remove(listener)


@dataclass
class CompileTime:
    """Wall time of compiling kernels; 0 until the context of `timed_compilation` ends."""

    seconds: float = 0.0


@contextmanager
def timed_compilation() -> Iterator[CompileTime]:
    """Time the kernels that are compiled within the context, in this thread or others."""
    compilation, before = CompileTime(), _process.compile_s
    yield compilation
    compilation.seconds = _process.compile_s - before
