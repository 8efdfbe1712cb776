"""Registered collectives as programs: laid out by their traffic, interpreted, run, and kept out of runtimes' files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import collopt
from collopt.errors import ProgramError, UnsupportedError
from collopt.planners import Plan
from collopt.runtime import RunReport, lower, run_local, run_program
from collopt.runtime.programs.layout import Layout
from collopt.schedules import COLLECTIVES, FlowSchedule
from collopt.topologies import Topology, dgx1_v100, ring, torus
from doc_pages import ROOT, fenced_blocks
from own_collectives import GATHER, HALO, SCATTER, SHIFT, registered

PAGE = ROOT / "docs" / "how-to" / "add-a-collective.md"


@pytest.fixture
def own_collectives() -> Iterator[None]:
    """The tests that use it know them."""
    with registered(SCATTER, GATHER, SHIFT, HALO):
        yield


def planned(topology: Topology, collective: Any, **options: Any) -> Plan:
    """Plan by a name that type checkers do not know."""
    return collopt.plan(topology, collective, **options)


@pytest.mark.usefixtures("own_collectives")
@pytest.mark.parametrize("network", [ring(4), dgx1_v100(), torus(3, 3)], ids=lambda network: network.name)
@pytest.mark.parametrize(("collective", "options"), [("scatter", {"root": 1}), ("gather", {"root": 2}), ("halo", {})])
def test_programs_do_what_the_traffic_says(network: Topology, collective: str, options: dict[str, int]) -> None:
    """Chunks by rank are those of the matrix, and the interpreter finds every one where it belongs."""
    made = planned(network, collective, **options)
    program = lower(made.schedule, COLLECTIVES[collective])
    run_program(program, interleavings=3)
    assert isinstance(made.schedule, FlowSchedule)
    chunks = made.schedule.chunks_per_unit * made.schedule.traffic
    assert [rank.input_chunks for rank in program.ranks] == chunks.sum(axis=1).tolist()
    assert [rank.output_chunks for rank in program.ranks] == chunks.sum(axis=0).tolist()
    assert program.layout.root == options.get("root")
    assert made.simulate("1M") > 0


@pytest.mark.usefixtures("own_collectives")
def test_a_layout_is_that_of_some_root() -> None:
    """In whatever number of chunks; others are refused."""
    layout = Layout.of(SCATTER, 3, 12, (0, 0, 0, 4, 4, 4, 0, 0, 0))
    assert (layout.root, layout.in_pairs, layout.pair_parts) == (1, True, ((0, 1), (3, 1), (0, 1)))
    assert layout.input_range(1) == (0, 12)
    assert layout.output_chunks(1) == [4, 5, 6, 7]
    for collective, shards in (("scatter", (0, 4, 0, 0, 4, 0, 0, 4, 0)), ("gather", layout.shards), ("halo", ())):
        chunks = sum(shards) or 9
        with pytest.raises(ProgramError, match=f"the traffic is not that of the collective '{collective}'"):
            Layout.of(collective, 3, chunks, shards)  # type: ignore[arg-type]


@pytest.mark.usefixtures("own_collectives")
def test_a_schedule_is_lowered_for_its_own_collective() -> None:
    """Another one's is refused, whether its traffic differs or it is not one of pairs."""
    schedule = planned(ring(4), "scatter", root=1).schedule
    with pytest.raises(ProgramError, match="the traffic is not that of the collective 'gather', whichever rank"):
        lower(schedule, GATHER)
    with pytest.raises(UnsupportedError, match="all_to_all or all_to_allv or scatter or gather or shift or halo, and"):
        lower(schedule, "broadcast")
    assert lower(schedule, "all_to_allv").layout.root is None


@pytest.mark.usefixtures("own_collectives")
@pytest.mark.parametrize("form", ["msccl-xml", "mscclpp-json"])
def test_files_of_runtimes_have_no_collective_of_ones_own(form: str, tmp_path: Path) -> None:
    """Their parts are all of one size."""
    with pytest.raises(UnsupportedError, match=r"^the program is for scatter; .* allgather, .*, all_to_all$"):
        planned(ring(4), "scatter", root=0).export(form, tmp_path / "plan")
    assert not list(tmp_path.iterdir())


def test_registering_first_does_not_change_what_runtimes_and_measurements_know() -> None:
    """Tables that modules build when they are imported hold the collectives of collopt only."""
    code = (
        "from own_collectives import *; from collopt.schedules import register_collective; register_collective(SHIFT)\n"
        "from collopt.runtime.msccl import limits\n"
        "from collopt.runtime.msccl.export import ANY_RUNTIME\n"
        "from collopt.runtime.mscclpp.executor import WRITTEN\n"
        "from collopt.runtime.measuring.measured_times import MEASURED\n"
        "tables = limits.JOINED, limits.SPELLINGS.values(), WRITTEN, ANY_RUNTIME.collectives, MEASURED.values()\n"
        "print(*(len({str(each) for each in table}) for table in tables), any(SHIFT in table for table in tables))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "6", "6", "6", "11", "False"]


@pytest.fixture
def module_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The first block of the page as the module that it says it is."""
    tmp_path.joinpath("scattering.py").write_text(
        fenced_blocks(PAGE.read_text(encoding="utf-8"))[0].text, encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = list(COLLECTIVES)
    try:
        yield import_module("scattering")
    finally:
        sys.modules.pop("scattering", None)
        for name in COLLECTIVES.keys() - before:
            del COLLECTIVES[name]


def test_the_module_of_the_page_runs_on_processes_of_this_machine(module_of_the_page: Any) -> None:
    """They import it, and every rank gets what torch's own all-to-all brings it."""
    for collective in (module_of_the_page.SCATTER, module_of_the_page.GATHER):
        report = run_local(planned(ring(4), collective, root=1), elements=1000, repeats=1, dtype="int16")
        assert report.all_correct
        assert report.collective is collective
        assert f"{collective} of 1000 int16 from each to each, on average: correct on all ranks" in str(report)
        assert report.total_bytes == 4 * 1000 * 2


def test_the_page_runs_what_it_shows_as_not_run(module_of_the_page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The block without a module of its own, and with one."""
    (block,) = [each for each in fenced_blocks(PAGE.read_text(encoding="utf-8")) if each.not_run]
    assert module_of_the_page.SCATTER.name == "scatter"
    exec(compile(block.text, str(PAGE), "exec"), {"__name__": "__main__"})
    assert "correct on all ranks" in capsys.readouterr().out


def test_reports_count_as_those_of_traffic_that_differs() -> None:
    """`busbw` is that of the busiest rank."""
    report = RunReport("gloo", 4, 100, "int8", 1, (True,) * 4, 1e-6, SCATTER, "sum", 1600, 2)
    assert (report.total_bytes, report.algbw, report.busbw) == (400, 0.4, pytest.approx(1.2))
