"""Checks of output paths before a file is written, and messages when writing fails."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...support.writing import write_all_whole
from .parameters import UsageError


def check_targets(targets: Mapping[str, Path | None], sources: Iterable[Path | None] = ()) -> None:
    """Refuse output files that cannot or must not be written, before the work starts."""
    paths = [source for source in sources if source is not None]
    for option, path in targets.items():
        if path is None:
            continue
        if problem := _problem(path, paths):
            raise UsageError(f"{option} {path} {problem}")
        paths.append(path)


def check_figure(option: str, path: Path | None) -> None:
    """Refuse a figure whose format its name does not say."""
    if path is not None and path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise UsageError(f"{option} {path} does not end in .svg, .png or .pdf; name one of them")


@contextmanager
def name_errors_after(path: Path) -> Iterator[None]:
    """Make errors name `path` instead of the temporary file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", os.fspath(path)) from error


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write all files or none; errors name the one that cannot be written, as it was given."""
    try:
        write_all_whole(contents)
    except OSError as error:
        path = next((target for target in contents if os.path.realpath(target) == error.filename), error.filename)
        raise OSError(error.errno, f"cannot be written: {error.strerror}", os.fspath(path)) from error


def _problem(path: Path, paths: list[Path]) -> str:
    if os.fspath(path) == "-":
        return "does not stand for standard output; expected the name of a file, such as ./-.json"
    folder = path.parent
    if not folder.is_dir():
        reason = f"{folder} is a file" if folder.is_file() else f"there is no folder {folder}; create it first"
        return f"cannot be written: {reason}"
    if path.is_dir():
        return "is a folder; expected the name of a file"
    if path.exists() and not path.is_file():
        # Files are replaced, and a device or pipe must not be.
        return "is not a regular file; expected a regular file or a new name"
    if path.exists() and _is_standard_output(path):
        return "is the file that standard output is redirected to; expected another file"
    if any(path.resolve() == other.resolve() or _are_links(path, other) for other in paths):
        return "is also read or written by this command; expected another file"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"cannot be written: the folder {folder} is not writable"
    return ""


def _are_links(path: Path, other: Path) -> bool:
    """Whether two names are hard links of one file."""
    return path.exists() and other.exists() and path.samefile(other)


def _is_standard_output(path: Path) -> bool:
    """Whether `path` is standard output, such as /dev/stdout."""
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError, AttributeError):
        # Standard output is closed, or is none of a file system.
        return False
