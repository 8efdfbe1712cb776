"""Damaged files: each is refused, or shown to hang or to leave wrong data, or does demonstrably the same as before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from lint_mutants import Mutant, mutants, same_meaning
from runtime_forests import random_schedule

from collopt.runtime import Program, lower, to_xml_text
from collopt.runtime.msccl.document import read_document
from collopt.runtime.msccl.limits import dialect_of
from collopt.runtime.msccl.linter import layout_of, lint_file, program_of
from collopt.runtime.programs.findings import Findings, LintReport
from collopt.runtime.programs.transformations import without_receive_reduce


def written(runtime: str, collective: str, seed: int = 0) -> str:
    """A small file of ours."""
    program = lower(random_schedule(collective, 3, 2, seed, root=1), collective)
    if runtime == "rccl":
        program = without_receive_reduce(program)
    return to_xml_text(program, runtime=runtime)


def linted(folder: Path, text: str, runtime: str) -> LintReport:
    """What becomes of a text."""
    path = folder / "file.xml"
    path.write_text(text)
    return lint_file(path, runtime)


def program_in(text: str, runtime: str) -> Program:
    """What an accepted text does, as the linter understands it."""
    findings = Findings()
    document = read_document(text, dialect_of(runtime).required, findings)
    assert document is not None
    layout = layout_of(document, findings)
    assert layout is not None
    return program_of(document, layout, findings)


def judged(folder: Path, mutant: Mutant, original: Program, runtime: str, whole: LintReport) -> str:
    """The verdict on a mutant; one that is accepted must be for the same calls and mean the same."""
    report = linted(folder, mutant.text, runtime)
    if report.runs:
        assert report.windows == whole.windows, mutant.how
        in_place = all(window.in_place for window in whole.windows)
        assert same_meaning(original, program_in(mutant.text, runtime), in_place), mutant.how
        return "the same"
    return report.verdict


@pytest.mark.parametrize(
    ("runtime", "collective"),
    [
        pytest.param("msccl-executor-nccl", "allgather", marks=pytest.mark.slow),
        ("msccl-executor-nccl", "reduce_scatter"),
        pytest.param("msccl-executor-nccl", "allreduce", marks=pytest.mark.slow),
        pytest.param("msccl", "allreduce", marks=pytest.mark.slow),
        pytest.param("msccl", "broadcast", marks=pytest.mark.slow),
        pytest.param("rccl", "reduce_scatter", marks=pytest.mark.slow),
        pytest.param("rccl", "reduce", marks=pytest.mark.slow),
    ],
)
def test_mutants_are_refused_or_shown_wrong_or_mean_the_same(tmp_path: Path, runtime: str, collective: str) -> None:
    """Hundreds of single changes; few of them change nothing, and of those it is proved by trace equivalence."""
    text = written(runtime, collective)
    whole, original = linted(tmp_path, text, runtime), program_in(text, runtime)
    assert whole.runs
    verdicts = Counter(judged(tmp_path, mutant, original, runtime, whole) for mutant in mutants(text))
    print(runtime, collective, verdicts)
    caught = verdicts.total() - verdicts["the same"]
    assert caught >= 300
    assert {"rejected", "hangs", "wrong data"} <= set(verdicts)
