"""Square tables as people paste them."""

from __future__ import annotations

import re

import pytest

from collopt.errors import FileFormatError
from collopt.topologies.importing.documents import Document
from collopt.topologies.importing.text_matrix import (
    MAX_LABELS,
    CellKind,
    TextMatrix,
    find_headers,
    line_below,
    plain_lines,
    read_rows,
)

LABEL = re.compile(r"N\d+")
CELL = CellKind(re.compile(r"[0-9]+(?!\S)"), "a number")


def read(text: str) -> TextMatrix:
    """Read the first table of a text."""
    document = Document("table.txt", text)
    lines = plain_lines(document)
    return read_rows(document, lines, next(find_headers(lines, LABEL)), CELL)


def test_a_plain_table_is_read_with_its_lines() -> None:
    """Blank lines between rows do no harm."""
    matrix = read("Title\n   N0 N1\nN0 0 1\n\nN1 2 3\nLegend: more\n")
    assert matrix.labels == ("N0", "N1")
    assert matrix.cells == (("0", "1"), ("2", "3"))
    assert matrix.lines == (3, 5)


@pytest.mark.parametrize(
    "text",
    [
        "\tN0\tN1\nN0\t 0 \t1\nN1\t1\t 0 ",
        "\x1b[4m\tN0\tN1\x1b[0m\nN0\t0\t1\nN1\t1\t0",
        "12:01 host: N0 N1\n12:02 host: N0 0 1\n12:03 host: N1 1 0",
        "> N0 N1\n> N0 0 1\n> N1 1 0",
        "N0 N1\nN1 1 0\nN0 0 1",
        "N0 N1\nN0 0 1\nN1 1 0\nN0 N1\nN0 7 7\nN1 7 7",
    ],
    ids=["tabs", "colors", "log", "quoted", "other-order", "another-behind"],
)
def test_what_pasting_does_to_a_table_does_not_matter(text: str) -> None:
    """Tabs, colors, what stands before the rows, and a second table behind the first."""
    assert read(text).cells == (("0", "1"), ("1", "0"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N0 N0\nN0 0 1", "line 1: two columns are called 'N0'"),
        ("N0 N1\nN0 0 1\n", "line 1: the table has a column 'N1', but no row of that name below; is it cut short"),
        ("N0 N1\nN0 0 1\nN0 N1\nN0 0 1\nN1 1 0", "line 1: the table has a column 'N1', but no row of that name"),
        ("N0 N1\nN0 0\nN1 0 1", "line 2: row N0 has 1 cells; expected 2, one for each column: is the table cut or"),
        ("N0 N1\nN0 0 1\nN0 0 1\nN1 1 0", "line 3: row N0 appears twice, first on line 2; keep one"),
        ("N0 N1\nN0 0 1\nN1 1 0\nN1 1 0", "line 4: row N1 appears twice"),
        ("N0 N1\nN0 0 -1\nN1 1 0", "line 2: cell N0-N1 is '-1'; expected a number"),
        ("N0 N1\nN0 0 1\nN1 1 0\nN2 1 0", "line 4: there is a row 'N2', but no column of that name"),
        (" ".join(f"N{label}" for label in range(MAX_LABELS + 1)), f"has {MAX_LABELS + 1} columns; expected at most"),
    ],
)
def test_a_table_that_is_cut_or_damaged_is_refused_with_its_line(text: str, message: str) -> None:
    """Nothing is filled in."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read(text)


def test_more_cells_than_columns_are_found() -> None:
    """Left to the caller, as some tables go on behind the matrix."""
    matrix = read("N0 N1\nN0 0 1\nN1 1 0 5")
    with pytest.raises(FileFormatError, match=r"line 3: row N1 goes on with '5' after its 2 cells"):
        matrix.check_ends(Document("table.txt", ""))


def test_both_ends_of_a_pair_have_to_agree() -> None:
    """The message names both cells and both lines."""
    message = r"line 3: cell N1-N0 is '2', but cell N0-N1 on line 2 is '1'; expected the same from both ends"
    with pytest.raises(FileFormatError, match=message):
        read("N0 N1\nN0 0 1\nN1 2 0").check_symmetry(Document("table.txt", ""))


def test_a_line_of_megabytes_is_refused_at_once() -> None:
    """And shown in a message of ordinary length."""
    for line in ("N0 0 " + "x" * 4_000_000, "N0 0 " + "1 " * 2_000_000, "N0 0" + " " * 4_000_000):
        with pytest.raises(FileFormatError, match=r"line 2: it has 400000\d characters; expected at most 65536 in a"):
            read(f"N0 N1\n{line}\n")
    with pytest.raises(FileFormatError, match="line 2: cell N0-N1 is 'xxx") as caught:
        read(f"N0 N1\nN0 0 {'x' * 60_000}\n")
    assert len(str(caught.value)) < 300


def test_millions_of_lines_are_gone_through_once() -> None:
    """Blank ones, and headers without a table."""
    lines = ["N0 N1"] * 200_000 + [""] * 200_000 + ["N0 0 1"]
    headers = [header for header in find_headers(lines, LABEL) if line_below(lines, header.line).startswith("N0 0")]
    assert [header.line for header in headers] == [200_000]
    assert line_below(lines, len(lines)) == ""
