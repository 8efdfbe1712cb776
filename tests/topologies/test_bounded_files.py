"""The one place where files that users name are read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from compute_trace import read_compute_trace

from collopt.errors import FileFormatError, UnsupportedError
from collopt.planners import load_plan
from collopt.runtime import lint_file, read_mscclpp, read_trace, read_xml
from collopt.runtime.nccl.windows import lint_family
from collopt.support.reading import read_bytes, read_text
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
    """Opening it would wait for ever."""
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


@pytest.mark.parametrize("reader", ["read_bytes", "read_text", "read_topology", "load_plan", "read_xml"])
def test_an_empty_path_of_pathlib_is_called_empty_too(reader: str) -> None:
    """It is the current folder then, as nobody can tell from one that was meant."""
    with pytest.raises(FileFormatError, match=r"^the path is empty, or \., which is a folder; expected a file$"):
        READERS[reader](Path())
    with pytest.raises(FileFormatError, match=r"^\. is a folder; expected a file$"):
        READERS[reader](".")


def test_folders_sockets_and_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its name."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path, message in ((tmp_path, "is a folder"), ("socket", "is a socket"), ("/dev/zero", "is a device")):
            with pytest.raises(FileFormatError, match=message):
                read_bytes(path, 100)
    with pytest.raises(UnsupportedError, match="expected text or a path"):
        read_bytes(3, 100)  # type: ignore[arg-type]


def test_a_link_to_a_pipe_is_a_pipe(tmp_path: Path) -> None:
    """And one to a file is a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "one").symlink_to("pipe")
    (tmp_path / "other").symlink_to("file")
    with pytest.raises(FileFormatError, match="one is a pipe"):
        read_bytes(tmp_path / "one", 100)
    assert read_bytes(tmp_path / "other", 100) == b"text"


def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    """As many bytes are fine, one more is not."""
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(FileFormatError, match="is larger than 4 bytes; expected a smaller file"):
        read_bytes(tmp_path / "file", 4)


def test_a_file_that_says_it_is_too_large_is_not_read_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor opened."""
    (tmp_path / "file").write_bytes(b"12345")
    monkeypatch.setattr(Path, "open", None)
    with pytest.raises(FileFormatError, match="is larger than 4 bytes; expected a smaller file"):
        read_bytes(tmp_path / "file", 4)


def test_what_the_shell_has_opened_is_read() -> None:
    """Standard input from a pipe, and the pipe of a process substitution, whose writers are there."""
    read = "from collopt.support.reading import read_bytes; import sys; print(read_bytes(sys.argv[1], 100))"
    for command, expected in (
        (f"echo one | '{sys.executable}' -c '{read}' /dev/stdin", "b'one\\n'"),
        (f"'{sys.executable}' -c '{read}' <(echo two)", "b'two\\n'"),
        (f"echo three | '{sys.executable}' -c '{read}' /proc/self/fd/0", "b'three\\n'"),
    ):
        run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300, check=True)
        assert run.stdout.strip() == expected


def test_text_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Some editors write one; line ends stay as they are."""
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfone\r\n\xc3\xa9")
    assert read_text(tmp_path / "file", 100) == "one\r\né"
    (tmp_path / "file").write_bytes(b"one\xff")
    with pytest.raises(FileFormatError, match=r"file is not UTF-8 text \(byte 3\)"):
        read_text(tmp_path / "file", 100)
