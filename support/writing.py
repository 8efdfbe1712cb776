"""Writing files whole or not at all: each is staged beside its target and then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import UnsupportedError
from .validation import as_path, shown


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write text or bytes to a temporary name beside `path` and rename it, so that no reader ever sees half a file."""
    target = _target_of(path)
    with _told_of(target):
        temporary = _staged(target, content)
        try:
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_all_whole(contents: Mapping[str, str | bytes]) -> None:
    """Write several files, all of them or none; each as `write_whole` does.

    Files that are replaced are moved aside first and come back if anything goes wrong: for a moment a reader may find
    some of the files missing, but never old and new ones side by side.
    """
    targets = {_target_of(path): content for path, content in contents.items()}
    if len(targets) < len(contents):
        raise UnsupportedError(f"of {len(contents)} paths, some are the same file; expected different ones")
    with contextlib.ExitStack() as undo:
        new: dict[Path, Path] = {}
        for target, content in targets.items():
            with _told_of(target):
                new[target] = _staged(target, content)
            undo.callback(new[target].unlink, missing_ok=True)
        old: list[Path] = []
        for target in filter(Path.exists, targets):
            aside = new[target].with_suffix(".old")
            with _told_of(target):
                target.replace(aside)
            undo.callback(aside.replace, target)
            old.append(aside)
        for target, temporary in new.items():
            with _told_of(target):
                temporary.replace(target)
            undo.callback(target.unlink)
        undo.pop_all()
    for aside in old:
        aside.unlink(missing_ok=True)


def _target_of(path: str | os.PathLike[str]) -> Path:
    """Find the file to write, through a symbolic link, which stays."""
    if "\0" in str(as_path(path)):
        raise UnsupportedError(f"the path {shown(str(path))} holds a null byte; expected one that a file can have")
    target = Path(os.path.realpath(as_path(path)))
    if target.exists() and not target.is_file():
        # Renaming would put a file in the place of a device or a pipe.
        raise OSError(errno.EINVAL, "not a regular file", str(target))
    return target


@contextlib.contextmanager
def _told_of(target: Path) -> Iterator[None]:
    """Let what goes wrong name the file: the user knows nothing of a temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(target)) from error


def _staged(target: Path, content: str | bytes) -> Path:
    """Write what is to become `target` beside it, and return where."""
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
    """Those of the file that is replaced, or what open() would give a new one; mkstemp makes private files."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
