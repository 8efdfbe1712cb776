"""Every file that collopt writes is accepted by the runtime that it was written for."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
from lint_programs import COLLECTIVES, TOPOLOGIES, calls, files
from runtime_forests import random_schedule

import collopt
from collopt.runtime import interpret_file, lower, read_xml
from collopt.runtime.msccl.document import read_document
from collopt.runtime.msccl.limits import RUNTIMES, dialect_of
from collopt.runtime.msccl.linter import layout_of, lint_file, program_of
from collopt.runtime.programs.findings import Findings, LintReport
from collopt.runtime.programs.interpret import run_interleaving
from collopt.topologies import ring, torus
from sample_files import sample

LARGE = 200_000
"""Characters; of files of 16 ranks, which are linted for their own runtime only: that is slow."""
SAMPLE = [*(("ring-4", collective) for collective in COLLECTIVES), ("torus-2x2x2", "all_to_all")]


REPORTS: dict[tuple[bytes, str], LintReport] = {}


def linted(path: Path, runtime: str) -> LintReport:
    """What becomes of a file, found out once: planners write many that differ at most in the name of the topology."""
    text = re.sub(r' name="[^"]*"', "", path.read_text(), count=1)
    key = sha256(text.encode()).digest(), runtime
    if key not in REPORTS:
        REPORTS[key] = lint_file(path, runtime)
    return REPORTS[key]


def check(folder: Path, topology: str, collective: str, runtimes: tuple[str, ...]) -> Counter[str]:
    """Lint all files for a call; one planner at least makes some for each runtime."""
    written: Counter[str] = Counter()
    for file in files(folder, TOPOLOGIES[topology], collective, runtimes):
        report = linted(file.path, file.runtime)
        assert report.runs, report
        assert all(finding.severity == "note" for finding in report.findings)
        written[file.runtime] += 1
        for other in RUNTIMES:
            if other != file.runtime and file.path.stat().st_size < LARGE:
                _check_elsewhere(file.path, collective, file.runtime, other)
    assert set(written) == set(runtimes)
    return written


def _check_elsewhere(path: Path, collective: str, runtime: str, other: str) -> None:
    """Where the runtimes differ, the file is refused."""
    report, text = linted(path, other), path.read_text()
    messages = " ".join(finding.message for finding in report.findings if finding.severity == "rejected")
    assert ("coll is" in messages) == (collective == "reduce_scatter" and "msccl" in (runtime, other))
    assert ("launches no step" in messages) == (other == "rccl" and 'type="rrc"' in text)
    if not messages and other != "rccl":
        # RCCL takes fewer thread blocks, and microsoft/msccl more steps.
        assert report.runs or runtime != "rccl" or report.verdict == "hangs"


@pytest.mark.parametrize(("topology", "collective"), SAMPLE)
def test_a_sample_of_files_is_accepted(tmp_path: Path, topology: str, collective: str) -> None:
    """All planners, all runtimes."""
    assert check(tmp_path, topology, collective, tuple(RUNTIMES)).total() >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "collective"), [call for call in calls(0) if call not in SAMPLE])
def test_all_files_are_accepted(tmp_path: Path, topology: str, collective: str) -> None:
    """All planners, all runtimes, twelve networks with two collectives each; `test_mscclpp_written.py` has others."""
    assert check(tmp_path, topology, collective, tuple(RUNTIMES)).total() >= 3


@pytest.mark.parametrize("collective", COLLECTIVES[:5])
def test_both_readers_agree(tmp_path: Path, collective: str) -> None:
    """The linter's, which takes anything, and the strict one."""
    path = tmp_path / "file.xml"
    text = collopt.runtime.to_xml_text(lower(random_schedule(collective, 4, 3, 1, root=2), collective))
    path.write_text(text)
    findings = Findings()
    document = read_document(text, dialect_of("msccl-executor-nccl").required, findings)
    assert document is not None
    layout = layout_of(document, findings)
    assert layout is not None
    assert program_of(document, layout, findings) == read_xml(path)
    assert lint_file(path, "msccl-executor-nccl").runs
    interpret_file(path)


def interleaved(topology: collopt.Topology, collective: str) -> None:
    """Run a plan in 1000 random interleavings, with room for one transfer or two."""
    options = {"root": 1} if collective in ("broadcast", "reduce") else {}
    program = lower(collopt.plan(topology, collective, **options).schedule, collective)
    for seed in range(1000):
        run_interleaving(program, seed=seed, fifo_depth=1 + seed % 2)


def test_a_thousand_interleavings_find_no_deadlock() -> None:
    """A sample; a deadlock or wrong data would raise."""
    interleaved(ring(3, bandwidth=25), "allreduce")


@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", [ring(4, bandwidth=25), torus(2, 3)], ids=lambda topology: topology.name)
def test_a_thousand_interleavings_of_small_programs_find_no_deadlock(
    topology: collopt.Topology, collective: str
) -> None:
    """Every collective."""
    interleaved(topology, collective)


@pytest.mark.slow
def test_the_files_of_rccl_run() -> None:
    """The allreduces and all-to-alls that RCCL came with: their vendor ran them."""
    files = sorted(sample("msccl-algorithms").glob("*.xml"))
    assert files
    for path in files:
        report = lint_file(path, "rccl")
        assert report.runs, report
