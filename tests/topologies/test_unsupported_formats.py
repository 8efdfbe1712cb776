"""Files that are taken for descriptions of networks."""

from __future__ import annotations

import pytest

from collopt.errors import FileFormatError
from collopt.topologies.importing.documents import Document
from collopt.topologies.importing.formats import PREFIX_CHARACTERS, find_format, unsupported_format


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("17 8 1 8 128 H100 8\n8\n16\n0 8 2880Gbps 0.000025ms 0\n", "a topology of SimAI"),
        ("Nodes 8\nTiers 2\n", "a topology of htsim"),
        ("collective,...\n  allreduce,0,65536,tree\n", "a tuner table of NCCL"),
        ("0 1\n1 0\n", "a table of numbers without a description"),
    ],
)
def test_files_of_other_kinds_are_named(text: str, what: str) -> None:
    """So that people know what they hold."""
    with pytest.raises(FileFormatError, match=f"it is {what}"):
        find_format(Document("file", text))


def test_a_file_that_speaks_of_a_box_of_collopt_is_not_taken_for_one() -> None:
    """Only patterns of other kinds of files are looked for."""
    assert unsupported_format(Document("file", "a collopt box")) is None


@pytest.mark.parametrize("piece", ["\n", "1\n", "1 ", " \n", '"collective"', "allreduce,", "1 1 1 1 1\n", "Nodes 1"])
def test_repeated_text_is_looked_at_once(piece: str) -> None:
    """A pattern that tried every beginning against every end would take minutes."""
    text = (piece * PREFIX_CHARACTERS)[:PREFIX_CHARACTERS] + "?"
    assert unsupported_format(Document("file", text + "?" + text)) is None or piece.strip()[:1] == "1"
