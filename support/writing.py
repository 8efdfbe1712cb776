"""Atomic writing of files: each is written beside its target and then renamed."""

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
    """Write a file atomically, so that no reader sees a part of it."""
    write_all_whole({as_path(path): content})


def write_all_whole(contents: Mapping[str, str | bytes] | Mapping[Path, str | bytes]) -> None:
    """Write files as `write_whole` does, all of them complete before the first one takes its place."""
    targets = {_resolved(path): content for path, content in contents.items()}
    if len(targets) < len(contents):
        raise UnsupportedError(f"of {len(contents)} paths, some are the same file; expected different ones")
    with contextlib.ExitStack() as unused:
        files = []
        for target, content in targets.items():
            with _naming(target):
                handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
                unused.callback(Path(name).unlink, missing_ok=True)
                with os.fdopen(handle, "wb") as stream:
                    stream.write(content.encode() if isinstance(content, str) else content)
                    stream.flush()
                    os.fsync(stream.fileno())
                Path(name).chmod(_permissions(target))
            files.append((name, target))
        for name, target in files:
            with _naming(target):
                Path(name).replace(target)


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


def _permissions(target: Path) -> int:
    """Return the mode of the replaced file, or the default of open(); mkstemp makes private files."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
