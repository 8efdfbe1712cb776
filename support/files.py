"""Files: read strictly, also as versioned JSON, written atomically, and told by their content."""

import contextlib
import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Container, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FileFormatError, UnsupportedError
from .validation import as_path, is_whole, shown

MAX_BYTES = 256 * 2**20  # larger files are refused unread: no network that can be planned needs them
MAX_DIGITS = 100  # digits of a JSON integer; valid files stay far below
SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
BLOCK_BYTES = 2**20  # bytes read at once
_OPEN_DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/[0-9]+|/proc/(self|[0-9]+)/fd/[0-9]+")
"""Descriptors that are open already: standard input, and the shell's ``<(command)``."""


def name_of(path: str | os.PathLike[str]) -> str:
    """Format a path for an error message, on one line."""
    name = str(as_path(path)) if path != "" else ""
    return name if name.isprintable() else repr(name)


def read_bytes(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read a file of at most `max_bytes`, or raise `FileFormatError`."""
    if path == "":
        raise FileFormatError("the path is empty; expected the name of a file")
    where, file, content = name_of(path), as_path(path), bytearray()
    try:
        # Before opening, which would block on a pipe and may affect a device.
        kind, size = stat.S_IFMT((data := file.stat()).st_mode), data.st_size
        if kind in SPECIAL and not _OPEN_DESCRIPTOR.fullmatch(os.path.normpath(file)):
            raise FileFormatError(f"{where} is {SPECIAL[kind]}; expected a file, or /dev/stdin")
        if kind != stat.S_IFREG or size <= max_bytes:
            # Block by block: the size of a pipe is unknown, and a buffer for the maximum may be far too large.
            with file.open("rb") as stream:
                while block := stream.read(min(max_bytes + 1 - len(content), BLOCK_BYTES)):
                    content += block
            size = len(content)
    except FileNotFoundError:
        raise FileFormatError(f"{where} does not exist; check the path") from None
    except IsADirectoryError:
        # pathlib turns an empty path, such as an unset shell variable, into ".".
        folder = "the path is empty, or ., which" if where == "." and not isinstance(path, str) else where
        raise FileFormatError(f"{folder} is a folder; expected a file") from None
    except OSError as error:
        raise FileFormatError(f"{where} cannot be read: {error.strerror or error}") from error
    except FileFormatError:
        raise
    except ValueError:
        # A null byte, the one character that no path may hold.
        raise FileFormatError(f"{where} is not a path; remove the null byte") from None
    if size > max_bytes:
        raise FileFormatError(f"{where} is larger than {max_bytes} bytes; expected a smaller file")
    return bytes(content)


def read_text(path: str | os.PathLike[str], max_bytes: int) -> str:
    """Read a file of UTF-8 text, with or without a byte order mark; otherwise as `read_bytes`."""
    content = read_bytes(path, max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name_of(path)} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_json(path: str | os.PathLike[str], expected_format: str, max_version: int) -> dict[str, Any]:
    """Read a versioned JSON file and check its header."""
    text = read_text(path, MAX_BYTES)
    if not text.strip():
        raise FileFormatError(f"{name_of(path)} is empty; expected a JSON file")
    return parse_json(text, name_of(path), expected_format, max_version)


def parse_json(text: str, where: str, expected_format: str, max_version: int) -> dict[str, Any]:
    """Decode the text of the JSON file `where` and check its header."""
    if text.lstrip().startswith("<"):
        raise FileFormatError(f"{where} is an XML file; expected a JSON file of format {expected_format!r}")
    data = decode_json(text, where, parse_float=Decimal, object_pairs_hook=_unique_keys)
    check_header(data, expected_format, max_version, where)
    assert isinstance(data, dict)
    return data


def decode_json(text: str, where: str, **hooks: Any) -> Any:
    """Decode the JSON text of the file `where`, whose numbers are finite and short; hooks as for `json.loads`."""
    try:
        return json.loads(text, **{"parse_int": _short_integer, "parse_constant": _refuse_constant, **hooks})
    except json.JSONDecodeError as error:
        raise FileFormatError(
            f"{where} is not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            "is it cut short, or another kind of file?"
        ) from None
    except RecursionError:
        raise FileFormatError(f"{where} is nested too deeply; expected a few levels") from None
    except ArithmeticError:
        raise FileFormatError(f"{where} has a number whose exponent is too large; expected ordinary numbers") from None
    except ValueError as error:
        raise FileFormatError(f"{where}: {error}") from None


def check_header(data: object, expected_format: str, max_version: int, where: str) -> None:
    """Raise `FileFormatError` unless a document has the expected format and a version from 1 to `max_version`."""
    if not isinstance(data, Mapping):
        actual = "null" if data is None else shown(data)
        raise FileFormatError(f"{where} holds {actual}; expected a JSON object of format {expected_format!r}")
    if data.get("format") != expected_format:
        actual = f"of format {shown(data['format'])}" if "format" in data else "without the field 'format'"
        raise FileFormatError(f"{where} is {actual}; expected format {expected_format!r}")
    version = data.get("version")
    if not is_whole(version) or version < 1:
        raise FileFormatError(f"field version of {where} is {shown(version)}; expected a whole number from 1")
    if version > max_version:
        readable = "version 1" if max_version == 1 else f"versions 1 to {max_version}"
        raise FileFormatError(f"{where} is version {shown(version)}; this release reads {readable}: upgrade collopt")


def _short_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits; expected at most {MAX_DIGITS}")
    return int(text)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number; expected a finite one")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise ValueError(f"key {shown(key)} occurs twice in one object; keep one")
        unique[key] = value
    return unique


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


PLAN_KIND = "a collopt plan"
TOPOLOGY_KIND = "a topology file"
MSCCL_KIND = "MSCCL XML"
MSCCLPP_KIND = "an MSCCL++ execution plan"
MEASURED_KIND = "a benchmark of nccl-tests or collopt"
NUMBERS_KIND = "a table of numbers"
SENDS_KIND = "a list of sends"
NCCL_KIND = "a topology dump of NCCL or RCCL"
NVIDIA_KIND = "the output of nvidia-smi topo -m"
NETWORK_KINDS = (TOPOLOGY_KIND, NCCL_KIND, NVIDIA_KIND)

PREFIX_BYTES = 2**16  # bytes at the beginning of a file that are searched


class FileKind(NamedTuple):
    """A type of file and the command for it."""

    name: str  # with its article
    advice: str  # what to do with the file, ``{}`` standing for its path

    def command(self, file: str | os.PathLike[str]) -> str:
        """Fill the path into the advice."""
        return self.advice.replace("{}", os.fspath(file))


COMMENT = r"(?><!--(?>[\s\S]*?-->)\s*)"  # atomic groups: otherwise n comments could be split in 2**n ways
XML = rf"\A\s*(?:<\?xml[^>]*>\s*)?(?>{COMMENT}*)"  # what may come before the first element
DESCRIBES = "collopt import {} shows what it describes, and collopt plan plans for it"
PICTURE = FileKind("a picture", "pictures are not read")
COMPRESSED = FileKind("a compressed file", "unpack it first")
BINARY_KINDS = (
    (b"\x89PNG", PICTURE),
    (b"%PDF", PICTURE),
    (b"\x93NUMPY", FileKind("an array of numpy", "pass it as --traffic of an all_to_allv, in a file named .npy")),
    (b"\x1f\x8b", COMPRESSED),
    (b"PK\x03\x04", COMPRESSED),
)
"""Magic bytes of binary files."""
CHAKRA = FileKind("a Chakra execution trace", "simulators such as ASTRA-sim read it, and collopt score {} scores it")
SOURCE = "collopt plan -o FILE writes a plan to verify"

KINDS = tuple(
    (pattern, FileKind(name, advice))
    for name, advice, pattern in (
        (
            PLAN_KIND,
            "collopt verify {} checks it, and collopt export {} exports it for runtimes",
            r'\A\s*\{[\s\S]*?"format"\s*:\s*"collopt-plan"',
        ),
        (TOPOLOGY_KIND, DESCRIBES, r'\A\s*\{\s*"format"\s*:\s*"collopt-topology"'),
        (
            MSCCLPP_KIND,
            f"collopt lint {{}} --runtime mscclpp checks it, {SOURCE}",
            r'\A\s*\{(?=[\s\S]*"collective"\s*:)(?=[\s\S]*"gpus"\s*:)',
        ),
        (MSCCL_KIND, f"collopt lint {{}} --runtime NAME checks it, {SOURCE}", XML + r"<algo\b"),
        (
            SENDS_KIND,
            "collopt score {} --topology NAME scores it",
            # Possessive: from each of n spaces the rest of the line would be searched again.
            r"\A\s*+(?:#.*\n\s*+)*(?=.*\bstep\b)(?=.*\bfrom\b)(?=.*\bto\b).*\bchunk\b",
        ),
        (NCCL_KIND, DESCRIBES, XML + r"<system\b"),
        (NVIDIA_KIND, DESCRIBES, r"\A\s*GPU0\s+(?:GPU1|CPU Affinity)\b"),
        ("a graph of NCCL", "set NCCL_GRAPH_FILE to it for NCCL to load it", XML + r"<graphs\b"),
        (
            "a tuner table of NCCL",
            "set NCCL_TUNER_CONFIG_FILE to it for NCCL's tuner plugin to load it",
            r"(?m)^[ \t]*(?:allreduce|allgather|broadcast|reduce\w*),\d+,\d+,[a-z]",
        ),
        (
            MEASURED_KIND,
            "collopt calibrate {} fits launch, alpha and efficiency to its times",
            (
                r"(?m)^#[ \t]*(?:collopt bench:|nThread\s|Collective test starting:|size\s+count\s+type\b)"
                r'|\A\s*\{(?=[\s\S]*"warmup_iters"\s*:)'
            ),
        ),
        (
            "a table of collopt bench",
            "collopt calibrate reads the output of bench without --csv",
            r"\Asize,count,type,redop,root,",
        ),
        ("a table of collopt find", "collopt show {} draws it", r"\Anodes,degree,name,"),
        (
            NUMBERS_KIND,
            "pass it as the traffic of an all_to_allv: --traffic {}",
            r"\A\s*\d[\d.eE+-]*\s*(?:,\s*\d[\d.eE+-]*\s*)+(?:\n|\Z)",
        ),
        ("a web page", "web pages are not read", r"(?i)\A\s*<(?:!doctype html|html)\b"),
        (*PICTURE, rf"(?i)\A\s*(?:<\?xml[^>]*>\s*)?(?>(?:{COMMENT}|<!doctype svg[^>]*>\s*)*)<svg\b"),
    )
)
"""Patterns of text files."""


def kind_of(path: str | os.PathLike[str]) -> FileKind | None:
    """Detect the type of a file; None if it is unknown or the file cannot be read."""
    path = Path(path)
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            beginning = file.read(PREFIX_BYTES)
    except (OSError, ValueError):
        return None
    if path.suffix == ".et":
        return CHAKRA
    text = beginning.decode("utf-8", "replace").removeprefix("\ufeff")
    kinds = [kind for mark, kind in BINARY_KINDS if beginning.startswith(mark)]
    return next(iter(kinds), None) or next((kind for pattern, kind in KINDS if re.search(pattern, text)), None)


def wrong_kind(path: str | os.PathLike[str], expected: str, accepted: Container[str]) -> str | None:
    """Describe a file of another type than `expected`; None if its type is unknown or among `accepted`."""
    kind = kind_of(path)
    if kind is None or kind.name in accepted:
        return None
    return f"{name_of(path)} is {kind.name}, not {expected}; {kind.command(path)}"
