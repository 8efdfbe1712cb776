"""Reading versioned JSON files, whatever their format."""

from __future__ import annotations

import errno
from decimal import Decimal
from pathlib import Path

import pytest

from collopt.errors import ColloptError, FileFormatError
from collopt.support import json_files
from collopt.support.json_files import read_json

HEADER = '{"format": "demo", "version": 2'


def read(tmp_path: Path, content: str | bytes) -> dict[str, object]:
    """Write `content` to a file and read it as version 3 of the format demo."""
    path = tmp_path / "demo.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_json(path, "demo", 3)


def test_a_good_file_is_returned_as_decoded(tmp_path: Path) -> None:
    """Decimals keep their digits; integers stay integers."""
    data = read(tmp_path, HEADER + ', "a": 0.10, "b": 3, "c": [null, true, "\\u00e9"]}')
    assert data == {"format": "demo", "version": 2, "a": Decimal("0.10"), "b": 3, "c": [None, True, "é"]}
    assert str(data["a"]) == "0.10"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_up_to_the_newest_is_read(tmp_path: Path, version: int) -> None:
    """Old files stay readable."""
    assert read(tmp_path, f'{{"format": "demo", "version": {version}}}')["version"] == version


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Some editors write one."""
    assert read(tmp_path, b"\xef\xbb\xbf" + HEADER.encode() + b"}")["version"] == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"\xff\xfe\x00", r"is not UTF-8 text \(byte 0\)"),
        (HEADER.encode() + b', "x": "\xe9"}', r"is not UTF-8 text \(byte \d\d\)"),
        (b"\x89PNG\r\n", "is not UTF-8 text"),
        (b"PK\x03\x04", r"not valid JSON at line 1, column 1"),
        (HEADER, r"not valid JSON at line 1, column 3\d .*is it cut short"),
        (HEADER + ',\n "a": [1,', r"not valid JSON at line 2, column 10"),
        (HEADER + "} trailing", "not valid JSON at line 1"),
        (HEADER + ',"a": 1,}', "not valid JSON"),
        (HEADER + ", 'a': 1}", "not valid JSON"),
        ("<system/>", "is an XML file; expected a JSON file of format 'demo'"),
        ("[]", r"holds \[\]; expected a JSON object of format 'demo'"),
        ("null", "holds null"),
        ('"text"', "holds 'text'"),
        ("{}", "has no field 'format'; expected format 'demo'"),
        ('{"format": "other", "version": 1}', "is of format 'other'; expected 'demo'"),
        ('{"format": ["demo"], "version": 1}', r"is of format \['demo'\]"),
        ('{"format": "demo"}', "field version of .* is None; expected a whole number from 1"),
        ('{"format": "demo", "version": 0}', "field version of .* is 0"),
        ('{"format": "demo", "version": "1"}', "field version of .* is '1'"),
        ('{"format": "demo", "version": 1.0}', r"field version of .* is Decimal\('1.0'\)"),
        ('{"format": "demo", "version": true}', "field version of .* is True"),
        ('{"format": "demo", "version": 7}', r"is version 7; this release reads versions 1 to 3: upgrade collopt"),
        (HEADER + ', "a": 1, "a": 1}', "key 'a' occurs twice in one object; keep one"),
        (HEADER + ', "x": {"version": 1, "version": 2}}', "key 'version' occurs twice"),
        (HEADER + ', "a": NaN}', "NaN is not a JSON number; expected a finite one"),
        (HEADER + ', "a": -Infinity}', "-Infinity is not a JSON number"),
        (HEADER + ', "a": 1e99999999999999999999}', "a number whose exponent is too large"),
        (HEADER + ', "a": ' + "9" * 5000 + "}", "an integer has 5000 digits; expected at most 100"),
        ("[" * 200_000, "nested too deeply"),
        (HEADER + ', "a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else None,
)
def test_damaged_files_are_refused_with_one_sentence(tmp_path: Path, content: str | bytes, message: str) -> None:
    """The file is named, and no other exception escapes."""
    with pytest.raises(FileFormatError, match=message) as caught:
        read(tmp_path, content)
    assert "demo.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_a_file_nested_just_short_of_the_limit_is_refused_too(tmp_path: Path) -> None:
    """Neither decoding it nor showing it in a message may overflow the stack."""
    for depth in (50, 500, 900, 950, 970, 980, 990, 1000):
        with pytest.raises(ColloptError):
            read(tmp_path, "[" * depth + "]" * depth)


def test_a_key_that_is_repeated_late_in_a_large_object_is_found_quickly(tmp_path: Path) -> None:
    """Finding it takes time in proportion to the file, or this test would not end."""
    keys = ",".join(f'"{number}":0' for number in range(200_000))
    with pytest.raises(FileFormatError, match="key '199999' occurs twice"):
        read(tmp_path, "{" + keys + ',"199999":0}')


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    """With what is there instead of a file."""
    with pytest.raises(FileFormatError, match=r"nothing.json does not exist; check the path"):
        read_json(tmp_path / "nothing.json", "demo", 1)
    with pytest.raises(FileFormatError, match="is a folder; expected a file"):
        read_json(tmp_path, "demo", 1)
    with pytest.raises(FileFormatError, match="remove the null byte"):
        read_json("a\0b", "demo", 1)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(FileFormatError, match="cannot be read: Not a directory"):
        read_json(tmp_path / "file" / "below", "demo", 1)
    with pytest.raises(FileFormatError, match="cannot be read: File name too long"):
        read_json("x" * 5000, "demo", 1)


def test_a_file_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason is passed on."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "secret.json").write_text("{}")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileFormatError, match=r"secret\.json cannot be read: Permission denied"):
        read_json(tmp_path / "secret.json", "demo", 3)


def test_a_path_of_several_lines_stays_on_one_line_of_the_message(tmp_path: Path) -> None:
    """The command line prints one sentence."""
    with pytest.raises(FileFormatError) as caught:
        read_json(tmp_path / "a\nb", "demo", 1)
    assert "\n" not in str(caught.value)


def test_a_file_over_the_size_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit it is still read."""
    content = HEADER + "}"
    monkeypatch.setattr(json_files, "MAX_BYTES", len(content))
    assert read(tmp_path, content)["version"] == 2
    with pytest.raises(FileFormatError, match=f"is larger than {len(content)} bytes"):
        read(tmp_path, content + " ")
