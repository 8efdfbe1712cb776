"""`collopt probe`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_calls import Cli, refusal
from collopt.runtime import read_probe


def pretend(folder: Path, rates: dict[str, float]) -> None:
    """Write logs of runs of 40 GB/s, and of slower ones by parts on their first route."""
    probe = read_probe(folder)
    (folder / "logs").mkdir()
    for number, run in enumerate(probe.runs):
        rate = min(rates.get(part, 40) for part in probe.routes.parts(run.ends)[0]) * (1 + number % 3 / 100)
        row = f"{probe.size} 1024 float none -1 {probe.size / rate / 1e3:.4f} 0 0 0\n"
        head = f"# collopt probe {probe.key}\t{run.round}\t{run.ends[0]}\t{run.ends[1]}\n"
        (folder / "logs" / f"run{number}.txt").write_text(
            f"{head}# size count type redop root time algbw busbw #wrong\n{row * 5}"
        )


def test_rounds_are_written_and_read(cli: Cli, tmp_path: Path) -> None:
    """A slow NIC is named with its rate, for people and as JSON and CSV; no further round is needed."""
    folder = tmp_path / "probe"
    assert "64 runs in 2 rounds" in cli("probe", "dgx-h100", "--boxes", 8, "-o", folder).out
    pretend(folder, {"box3/nic2": 20})
    answer = cli("probe", folder, "-o", tmp_path / "next")
    assert answer.out.startswith("1 part slow: box3/nic2; no other 1 or fewer explain the runs")
    assert "no further round" in answer.err
    assert not (tmp_path / "next").exists()
    data = cli("probe", folder, "--json").data
    assert (data["unique"], data["explanations"]) == (True, [["box3/nic2"]])
    assert data["parts"][0]["share"] == pytest.approx(0.5, abs=0.02)
    assert len(cli("probe", folder, "--csv").out.splitlines()) == 1 + 64 + 1  # with the switch between the boxes


def test_the_next_round_is_written(cli: Cli, tmp_path: Path) -> None:
    """Where explanations are left, the next round has its own scripts, and its probe all rounds."""
    folder, following = tmp_path / "probe", tmp_path / "next"
    cli("probe", "fat-tree", "--set", "k=4", "--set", "bandwidth=50", "-o", folder)
    pretend(folder, {"host0": 20})
    answer = cli("probe", folder, "-o", following)
    assert "explanations are left" in answer.out
    assert len(read_probe(following).rounds) == 3
    assert {line.split("\t")[0] for line in (following / "runs.txt").read_text().splitlines()} == {"2"}


def test_refused_calls(cli: Cli, tmp_path: Path) -> None:
    """Options of new rounds do not go with a folder, nor logs with a network, nor few boxes with many faults."""
    folder = tmp_path / "probe"
    cli("probe", "dgx-h100", "--boxes", 4, "-o", folder)
    assert "--faults is about new rounds" in refusal(cli("probe", folder, "--faults", 2))
    assert "--boxes is about new rounds" in refusal(cli("probe", folder, "--boxes", 2))
    assert "is no folder of a probe" in refusal(cli("probe", "dgx-h100", folder / "logs"))
    assert "cannot be identified among 2 of a rail" in refusal(cli("probe", "dgx-h100", "--boxes", 2))
    assert "64 runs" not in refusal(cli("probe", folder))
    assert "is not empty" in refusal(cli("probe", "dgx-h100", "--boxes", 4, "-o", folder))
