"""Reading and writing files: whole or not at all.

Topology files are JSON; ``docs/reference/topology-json.md`` describes them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ..errors import FileFormatError, TopologyError, UnsupportedError
from ..support.json_files import check_header, read_json
from ..support.validation import as_path, shown
from .network.topology import Topology

if TYPE_CHECKING:
    from .importing.read import ImportOptions

__all__ = [
    "read_json",
    "read_topology",
    "topology_from_json",
    "topology_to_json",
    "write_all_whole",
    "write_topology",
    "write_whole",
]

TOPOLOGY_FORMAT = "collopt-topology"
TOPOLOGY_VERSION = 1


def read_topology(path: str | os.PathLike[str], **options: Unpack[ImportOptions]) -> Topology:
    """Read a topology from a file of ours, or from one that a tool wrote.

    Parameters
    ----------
    path : str or path
        JSON that `write_topology` wrote or that follows its schema, or a file of another format
        (``docs/reference/imported-files.md`` lists them).  The content decides, not the name.
    **options
        For files that describe one box: `boxes`, how many there are like it (1 if left out); `fabric`, what is between
        them, which no such file says; and whatever `read_box` and `compose` take.

    Returns
    -------
    Topology

    Raises
    ------
    FileFormatError
        If the file cannot be read, is of no known format or of a newer version, or describes a network that makes no
        sense; the message names the file and the field or line.
    TopologyError
        If an option is not usable, is missing, or asks for what the file says itself.
    """
    from .importing.read import import_network

    return import_network(path, options).topology


def write_topology(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write a topology as a JSON file that `read_topology` reads back as an equal topology.

    Parameters
    ----------
    topology : Topology
        What to write.
    path : str or path
        A file there before is replaced.

    Raises
    ------
    TopologyError
        If it is not a topology.
    OSError
        If the folder does not exist or cannot be written; nothing is left behind.
    """
    if not isinstance(topology, Topology):
        raise TopologyError(f"the topology is a {type(topology).__name__}; expected a Topology")
    fields = topology_to_json(topology)
    # One row per line: people compare and edit these files.
    rows = {
        key: "[\n    " + ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n  ]"
        if isinstance(value, list) and value
        else json.dumps(value, ensure_ascii=False)
        for key, value in fields.items()
    }
    body = ",\n".join(f"  {json.dumps(key)}: {text}" for key, text in rows.items())
    write_whole(path, f"{{\n{body}\n}}\n")


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """Describe a topology by plain lists, texts and integers, ready for `json.dumps`.

    >>> pair = Topology.from_links([("a", "b", "12.5"), ("b", "a", 25)], compute=["a", "b"], name="pair")
    >>> topology_to_json(pair)["links"]
    [['a', 'b', '25/2', 0], ['b', 'a', 25, 0]]
    """
    return {
        "format": TOPOLOGY_FORMAT,
        "version": TOPOLOGY_VERSION,
        "name": topology.name,
        "compute": list(topology.compute_nodes),
        "switches": [
            {
                "name": switch,
                "multicast": switch in topology.multicast,
                "aggregation": switch in topology.aggregation,
            }
            for switch in topology.switch_nodes
        ],
        "links": [[link.tail, link.head, _plain(link.bandwidth), _plain(link.latency)] for link in topology.links],
    }


def topology_from_json(data: object, where: str) -> Topology:
    """Check a decoded JSON document and build the topology that it describes.

    >>> pair = Topology.from_links([("a", "b", 25), ("b", "a", 25)], compute=["a", "b"])
    >>> topology_from_json(topology_to_json(pair), "example") == pair
    True
    """
    from pydantic import ValidationError

    from .network.schema import TopologyDocument, first_problem

    check_header(data, TOPOLOGY_FORMAT, TOPOLOGY_VERSION, where)
    try:
        document = TopologyDocument.model_validate(data)
        return Topology(
            tuple(document.compute),
            tuple(switch.name for switch in document.switches),
            tuple(document.links),
            frozenset(switch.name for switch in document.switches if switch.multicast),
            frozenset(switch.name for switch in document.switches if switch.aggregation),
            document.name,
        )
    except ValidationError as error:
        raise FileFormatError(f"{where}: {first_problem(error)}") from None
    except TopologyError as error:
        raise FileFormatError(f"{where}: {error}") from error


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


def _plain(number: Fraction) -> int | str:
    return number.numerator if number.denominator == 1 else str(number)
