"""The examples that draw the evaluation of direct-connect networks: what they print, and that they leave figures."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")


EXAMPLES = Path(__file__).parents[2] / "examples" / "direct_connect"

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the main function of an example, with its files in an empty folder, and return what it prints."""

    def run_example(name: str, *arguments: str) -> str:
        main = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]
        main([*arguments, "--output", str(tmp_path)])
        return capsys.readouterr().out

    return run_example


def test_runtimes_by_size(run: Run, tmp_path: Path) -> None:
    """At 16 nodes the table has the formulas of the baselines, the best topology and the bounds."""
    printed = run("runtimes_by_size", "--up-to", "16")
    times = {line[:20].strip(): line[20:].split() for line in printed.splitlines()[1:]}
    transfer = 2**20 / 12500
    assert times["shifted rings"][0] == f"{2 * (15 * 10 + 15 / 16 * transfer):.1f}"
    assert times["best found"][0] == f"{2 * (3 * 10 + 15 / 16 * transfer):.1f}"
    assert times["bound"][0] == f"{2 * (2 * 10 + 15 / 16 * transfer):.1f}"
    assert times["bound"][2] == f"{transfer * (4 + 2 * 11) / 16:.1f}"
    assert {path.name for path in tmp_path.iterdir()} == {"runtimes_by_size.csv", "runtimes_by_size.svg"}


def test_best_by_size(run: Run, tmp_path: Path) -> None:
    """The best topologies of 5 to 12 nodes are those of Table 5."""
    printed = run("best_by_size", "--up-to", "12").splitlines()
    assert printed[0] == "allreduce of 1MiB, 5 to 12 nodes"
    counts = {
        line[:23].strip(): int(line[23:]) for line in printed[1 : printed.index("allreduce of 100MiB, 5 to 12 nodes")]
    }
    assert sum(counts.values()) == 8
    assert counts["complete (bipartite)"] == 2
    assert len(list(tmp_path.iterdir())) == 4


def test_constructions_are_told_by_name() -> None:
    """Names tell line graphs, powers, products and families apart."""
    construction = runpy.run_path(str(EXAMPLES / "best_by_size.py"))["construction"]
    assert construction("L^2(C(60, {5, 6}))") == "expanded by L"
    assert construction("UniRing(1, 4)^□2 □ UniRing(1, 8)^□2") == "expanded by PC"
    assert construction("Π(4, 324)") == "generalized Kautz"
    assert construction("DistReg(4, 26)") == "distance-regular"
    assert construction("Something(3)") == "other"


def test_kautz_bandwidth(run: Run, tmp_path: Path) -> None:
    """The bandwidth factor is at most twice the optimum, 20/11 of it for N = 12 and degree 4."""
    printed = run("kautz_bandwidth", "--up-to", "40").splitlines()
    assert printed[0] == "degree  2: T_B at most 2.0000 T_B* (at N = 4), T_L at most T_L* + 1"
    assert printed[1].startswith(f"degree  4: T_B at most {20 / 11:.4f} T_B* (at N = 12)")
    assert len(printed) == 4
    assert (tmp_path / "kautz_bandwidth.svg").exists()


@pytest.mark.slow
def test_training_iteration(run: Run, tmp_path: Path) -> None:
    """A found topology beats torus and rings, and each network has a timeline."""
    printed = run("training_iteration").splitlines()[1:]
    parts = {
        line[:40].strip(): [float(part) for part in line[40:].replace("=", "+").rpartition(",")[0].split("+")]
        for line in printed
    }
    for whole, *summands in parts.values():
        assert whole == pytest.approx(sum(summands), abs=0.21)
        assert summands[0] == 55.4
    assert parts["MetaCirc(16, 4, 3; {26, 33, 36, 37})"][0] < parts["2D torus"][0] < parts["shifted rings"][0]
    assert len(list(tmp_path.iterdir())) == len(parts)
