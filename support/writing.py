"""Atomic writing of files: each is written beside its target and then renamed."""

import contextlib
import errno
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import UnsupportedError
from .validation import as_path, shown


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file atomically, so that no reader sees a part of it."""
    target = _resolved(path)
    with finished_before_signals(), _naming(target):
        temporary = _stage(target, content)
        try:
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_all_whole(contents: Mapping[str, str | bytes] | Mapping[Path, str | bytes]) -> None:
    """Write all files or none, each as `write_whole` does; readers never find old and new ones side by side."""
    targets = {_resolved(path): content for path, content in contents.items()}
    if len(targets) < len(contents):
        raise UnsupportedError(f"of {len(contents)} paths, some are the same file; expected different ones")
    with finished_before_signals(), contextlib.ExitStack() as undo:
        new: dict[Path, Path] = {}
        for target, content in targets.items():
            with _naming(target):
                new[target] = _stage(target, content)
            undo.callback(new[target].unlink, missing_ok=True)
        old: list[Path] = []
        for target in filter(Path.exists, targets):
            aside = new[target].with_suffix(".old")
            with _naming(target):
                target.replace(aside)
            undo.callback(aside.replace, target)
            old.append(aside)
        for target, temporary in new.items():
            with _naming(target):
                temporary.replace(target)
            undo.callback(target.unlink)
        undo.pop_all()
    for aside in old:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def finished_before_signals() -> Iterator[None]:
    """Let signals that end the program wait for the end of a block, so that it leaves no temporary files."""
    waiting: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            # Python's own handler would raise in the midst of the block.  Others are left alone.
            if signal.getsignal(each) in (signal.SIG_DFL, signal.default_int_handler):
                before[each] = signal.signal(each, lambda which, _: waiting.append(which))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in waiting:
            signal.raise_signal(number)


def _resolved(path: str | os.PathLike[str]) -> Path:
    """Resolve symbolic links, which stay, and check the target."""
    if "\0" in str(as_path(path)):
        raise UnsupportedError(f"the path {shown(str(path))} holds a null byte; expected one that a file can have")
    target = Path(os.path.realpath(as_path(path)))
    if target.exists() and not target.is_file():
        # Renaming would put a file in the place of a device or a pipe.
        raise OSError(errno.EINVAL, "not a regular file", str(target))
    return target


@contextlib.contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Name the target, not the temporary file, in errors."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(target)) from error


def _stage(target: Path, content: str | bytes) -> Path:
    """Write the content to a temporary file beside `target`, and return its path."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_permissions(target))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _permissions(target: Path) -> int:
    """Return the mode of the replaced file, or the default of open(); mkstemp makes private files."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
