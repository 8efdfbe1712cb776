"""The one place where files that users name are read, and versioned JSON files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pytest
from compute_trace import read_compute_trace

from collopt.errors import ColloptError, FileFormatError, UnsupportedError
from collopt.planners import load_plan
from collopt.runtime import lint_file, read_mscclpp, read_trace, read_xml
from collopt.runtime.nccl.windows import lint_family
from collopt.support import files as json_files
from collopt.support.files import read_bytes, read_json, read_text
from collopt.topologies import read_topology

READERS = {
    "read_bytes": lambda path: read_bytes(path, 100),
    "read_text": lambda path: read_text(path, 100),
    "read_topology": read_topology,
    "load_plan": load_plan,
    "read_compute_trace": read_compute_trace,
    "read_xml": read_xml,
    "read_mscclpp": read_mscclpp,
    "read_trace": read_trace,
    "lint_file": lambda path: lint_file(path, "msccl"),
    "lint_family": lambda path: lint_family([path], "msccl"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_without_writer_is_refused_at_once(tmp_path: Path, reader: str) -> None:
    """Every reader refuses a pipe that would block it for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[Exception] = []

    def read() -> None:
        try:
            READERS[reader](pipe)
        except Exception as error:  # noqa: BLE001 - looked at below
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(found[0], FileFormatError)
    assert "pipe is a pipe; expected a file" in str(found[0])


@pytest.mark.parametrize("reader", READERS)
def test_what_is_not_there_is_said_in_one_line_by_every_reader(tmp_path: Path, reader: str) -> None:
    """A missing file, a null byte, an empty path, and what is no path at all."""
    for path, message in (
        (tmp_path / "none", "none does not exist; check the path"),
        ("a\0b", "remove the null byte"),
        ("", "the path is empty"),
    ):
        with pytest.raises(FileFormatError, match=message) as caught:
            READERS[reader](path)
        assert "\n" not in str(caught.value)


def test_folders_sockets_and_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the kind of each."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path, message in ((tmp_path, "is a folder"), ("socket", "is a socket"), ("/dev/zero", "is a device")):
            with pytest.raises(FileFormatError, match=message):
                read_bytes(path, 100)
    with pytest.raises(UnsupportedError, match="expected the path of a file or folder"):
        read_bytes(3, 100)  # type: ignore[arg-type]


def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    """As many bytes are fine, one more is not."""
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(FileFormatError, match="is larger than 4 bytes; expected a smaller file"):
        read_bytes(tmp_path / "file", 4)


def test_what_the_shell_has_opened_is_read() -> None:
    """Standard input from a pipe, and the pipe of a process substitution, whose writers are there."""
    read = "from collopt.support.files import read_bytes; import sys; print(read_bytes(sys.argv[1], 100))"
    for command, expected in (
        (f"echo one | '{sys.executable}' -c '{read}' /dev/stdin", "b'one\\n'"),
        (f"'{sys.executable}' -c '{read}' <(echo two)", "b'two\\n'"),
        (f"echo three | '{sys.executable}' -c '{read}' /proc/self/fd/0", "b'three\\n'"),
    ):
        run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300, check=True)
        assert run.stdout.strip() == expected


HEADER = '{"format": "demo", "version": 2'


def read_demo(tmp_path: Path, content: str | bytes) -> dict[str, object]:
    """Write `content` to a file and read it as version 3 of the format demo."""
    path = tmp_path / "demo.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_json(path, "demo", 3)


def test_a_good_file_is_returned_as_decoded(tmp_path: Path) -> None:
    """Decimals keep their digits; integers stay integers."""
    data = read_demo(tmp_path, HEADER + ', "a": 0.10, "b": 3, "c": [null, true, "\\u00e9"]}')
    assert data == {"format": "demo", "version": 2, "a": Decimal("0.10"), "b": 3, "c": [None, True, "é"]}
    assert str(data["a"]) == "0.10"


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """A file with the mark of some editors is read like one without."""
    assert read_demo(tmp_path, b"\xef\xbb\xbf" + HEADER.encode() + b"}")["version"] == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", r"is not UTF-8 text \(byte 0\)"),
        (HEADER, r"not valid JSON at line 1, column 3\d .*is it cut short"),
        ("<system/>", "is an XML file; expected a JSON file of format 'demo'"),
        ("[]", r"holds \[\]; expected a JSON object of format 'demo'"),
        ("{}", "is without the field 'format'; expected format 'demo'"),
        ('{"format": "other", "version": 1}', "is of format 'other'; expected format 'demo'"),
        ('{"format": "demo"}', "field version of .* is None; expected a whole number from 1"),
        ('{"format": "demo", "version": 7}', r"is version 7; this release reads versions 1 to 3: upgrade collopt"),
        (HEADER + ', "a": 1, "a": 1}', "key 'a' occurs twice in one object; keep one"),
        (HEADER + ', "a": NaN}', "NaN is not a JSON number; expected a finite one"),
        (HEADER + ', "a": 1e99999999999999999999}', "a number whose exponent is too large"),
        (HEADER + ', "a": ' + "9" * 5000 + "}", "an integer has 5000 digits; expected at most 100"),
        ("[" * 200_000, "nested too deeply"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else None,
)
def test_damaged_files_are_refused_with_one_sentence(tmp_path: Path, content: str | bytes, message: str) -> None:
    """The file is named, and no other exception escapes."""
    with pytest.raises(FileFormatError, match=message) as caught:
        read_demo(tmp_path, content)
    assert "demo.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_a_file_nested_just_short_of_the_limit_is_refused_too(tmp_path: Path) -> None:
    """Neither decoding it nor showing it in a message may overflow the stack."""
    for depth in (50, 500, 900, 950, 970, 980, 990, 1000):
        with pytest.raises(ColloptError):
            read_demo(tmp_path, "[" * depth + "]" * depth)


def test_a_key_that_is_repeated_late_in_a_large_object_is_found_quickly(tmp_path: Path) -> None:
    """Finding it takes time in proportion to the file, or this test would not end."""
    keys = ",".join(f'"{number}":0' for number in range(200_000))
    with pytest.raises(FileFormatError, match="key '199999' occurs twice"):
        read_demo(tmp_path, "{" + keys + ',"199999":0}')


def test_a_file_over_the_size_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit it is still read."""
    content = HEADER + "}"
    monkeypatch.setattr(json_files, "MAX_BYTES", len(content))
    assert read_demo(tmp_path, content)["version"] == 2
    with pytest.raises(FileFormatError, match=f"is larger than {len(content)} bytes"):
        read_demo(tmp_path, content + " ")
