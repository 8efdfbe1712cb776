"""Files broken on purpose: lint says what the runtimes' own parsers said of the same texts.

The verdicts are those of the parsers themselves, compiled for a CPU and asked as every rank: microsoft/msccl b23e9cd,
Azure/msccl-executor-nccl c6f6b36 and ROCm/rccl 0cbce2a, of which the last also looks at step types before a launch.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from broken_files import WHOLE, broken_files

from collopt.runtime import lint_file

FILES = list(broken_files())
DIGEST = "acf627f4b37f2c3ad3ac7435a7b864d64151e2b84b171527ceec4c24d38c894c"
"""Of the texts that the parsers read; whoever changes the rules has to ask the parsers again."""
ACCEPTED = {
    "msccl": (
        "201fc807f201d7727f07f20faaf7e0000000000710ea180086994644c5e271420ff03820c0408301020c000ff7f81f00007c000df3fd8f"
        "f008fffffbffffe3fc1e383c023fff02803087f87c1fe011fffff1feff07f83c7078047ffe050c410ff0f8fffffbffffefffffbffffeff"
        "fff8fffffe18861fe1f07f8047ffffdfffff1fe0f1c1e011f0780431843fc3e0ff008fffffbffffe3fc1e3ffffe3e0f00863fe7f87c1fe"
        "011fffff7ffffc7f83c7ff8147fffff0c7fcff0f83fc0e07c0101f004083000001f807c0001f000383fe6ffffe4fe7f9ffffffffffe13b"
        "83fce1f0003ffffe0df"
    ),
    "msccl-executor-nccl": (
        "201fc807f201d7727f07f20fabf560000000000710ea180086994644c56211420ff03820dfc0837f020c000ff7f81f1fc07c7f0df3fd8f"
        "f008fffffbffffe3fc1e383c023fff02801087f81c1fe011fffff1feff07f83c7078047ffe050c010ff038fffffbffffefffffbffffeff"
        "fff8fffffe18061fe0707f8047ffffdfffff1fe0f1c1e011f0780430843fc0e0ff008fffffbffffe3fc1e3ffffe3e0f00861fe7f81c1fe"
        "011fffff7ffffc7f83c7ff8147fffff0c3fcff0383fc0e07c7f01f1fc083000001f807c7f01f1fc383fe6fffffbffffefffffbffffe2bf"
        "ffffefffffbff83e0ff"
    ),
    "rccl": (
        "201fc807f201d7727f07f20faa3560000000000710ea180086994644c56211420ff0f820dfc0837f020c000ff7f81f1fc07c7f0df3fd8f"
        "f008fffffbffffe3fc1e383c023fff02801087f81c1fe011fffff1feff07f83c7078047ffe050c010ff038fffffbffffefffffbffffeff"
        "fff8fffffe18061fe0707f8047ffffdfffff1fe0f1c1e011f0780430843fc0e0ff008fffffbffffe3fc1e3ffffe3e0f008610e7f81c1fe"
        "011fffff7ffffc7f83c7ff8147fffff0c21cff0383fc3e07c7f01f1fc083000001f807c7f01f1fc383fe6fffffbffffefffffbffffe2bf"
        "ffffefffffbffffe0ff"
    ),
}
"""In hexadecimal, bit by bit from the lowest: whether the parser accepts each file on every rank."""
CRASHING = {1585, 1599, 1640, 1642}
"""Files at which a parser ends the process; microsoft/msccl does also for lack of an algo element."""


def test_the_files_are_those_that_the_parsers_read() -> None:
    """And as many as there are verdicts."""
    assert sha256("\0".join(text for _, text in FILES).encode()).hexdigest() == DIGEST
    assert all(0 < int(bits, 16).bit_length() <= len(FILES) for bits in ACCEPTED.values())
    refused = [len(FILES) - int(bits, 16).bit_count() for bits in ACCEPTED.values()]
    assert min(refused) >= 700


def check(folder: Path, runtime: str, numbers: range) -> None:
    """Compare verdicts: what lint says beyond them has a name, such as that the file hangs."""
    bits, path = int(ACCEPTED[runtime], 16), folder / "file.xml"
    for number in numbers:
        how, text = FILES[number]
        path.write_text(text, newline="")
        report = lint_file(path, runtime)
        accepted = bool(bits >> number & 1)
        assert (report.verdict != "rejected") == accepted, (number, how, str(report))


@pytest.mark.parametrize("runtime", ACCEPTED)
def test_lint_gives_the_verdict_of_the_parser(tmp_path: Path, runtime: str) -> None:
    """Every eleventh file."""
    check(tmp_path, runtime, range(0, len(FILES), 11))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ACCEPTED)
def test_lint_gives_all_verdicts_of_the_parser(tmp_path: Path, runtime: str) -> None:
    """All files."""
    check(tmp_path, runtime, range(len(FILES)))


@pytest.mark.parametrize("runtime", ACCEPTED)
def test_the_whole_file_runs(tmp_path: Path, runtime: str) -> None:
    """So that it is the breaking that breaks the others."""
    path = tmp_path / "file.xml"
    path.write_text(WHOLE)
    assert lint_file(path, runtime).runs


@pytest.mark.parametrize("runtime", ACCEPTED)
def test_what_crashes_a_parser_is_rejected(tmp_path: Path, runtime: str) -> None:
    """The process of the rank ends there."""
    for number in CRASHING:
        path = tmp_path / "file.xml"
        path.write_text(FILES[number][1])
        assert lint_file(path, runtime).verdict == "rejected"
