"""`benchmarks.peers`: how schedules of others are read and replayed, with programs that stand in for theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from peers import __main__ as peers
from peers import forestcoll, tacos, verifier

from collopt.topologies import Topology

# 0 -> 1 takes 1 µs for one of three shards of 25 kB, 1 -> 2 as long, and 0 -> 2 four times as long.
TRIANGLE = Topology.from_links(
    [(0, 1, 25), (1, 0, 25), (1, 2, 25), (2, 1, 25), (0, 2, "25/4"), (2, 0, "25/4")], compute=range(3), name="triangle"
)
BYTES = 75_000
# Chunk 0 goes on from rank 1 half a µs before it has come.
SENDS = [(0, 0, 1, 0, 1), (0, 1, 2, 0.5, 1.5), (1, 1, 0, 0, 1), (1, 1, 2, 1.5, 2.5), (2, 2, 1, 0, 1), (2, 1, 0, 1, 2)]


def program(folder: Path, lines: list[str], name: str = "program") -> Path:
    """An executable that prints lines."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nprint({chr(10).join(lines)!r})\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs here draw no random numbers."""
    monkeypatch.setattr(tacos, "TRIES", 2)


def test_sends_wait_for_their_data_in_the_replay(tmp_path: Path) -> None:
    """The reported 2.5 µs are 3: chunk 0 leaves rank 1 after 1 µs, and chunk 1 follows it."""
    lines = [f"send {' '.join(map(str, send))}" for send in SENDS]
    found = tacos.rows(program(tmp_path, [*lines, "time 2.5"]), TRIANGLE, BYTES)
    assert len(found) == len(tacos.CHUNKS)
    assert found[0].reported == 2.5
    assert found[0].simulated == pytest.approx(3)
    assert found[0].remark == (
        "1 chunk per shard; in 2 of 2 runs longer than reported, by up to 20%; up to 1 of 6 sends before their data"
    )
    assert found[0].bound <= 3


def test_a_schedule_that_lacks_a_send_is_refused(tmp_path: Path) -> None:
    """It would be timed as if it were an allgather."""
    lines = [f"send {' '.join(map(str, send))}" for send in SENDS[:-1]]
    with pytest.raises(ValueError, match="leaves wrong data"):
        tacos.rows(program(tmp_path, [*lines, "time 2.5"]), TRIANGLE, BYTES)


def test_trees_of_others_are_verified_as_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of links by root and number, with the time of 1/x = 2/25 reported for three shards."""
    (tmp_path / f"{forestcoll.MODULE}.py").write_text(
        "def optimal_pipeline_spanning_trees(graph, compute_nodes):\n"
        "    def way(*nodes):\n        return [tuple(nodes[at:at + 2]) for at in range(len(nodes) - 1)]\n"
        "    a, b, c = compute_nodes\n"
        "    trees = {(a, 0): [way(a, b), way(b, c)], (b, 0): [way(b, a), way(b, c)], (c, 0): [way(c, b), way(b, a)]}\n"
        "    return (2 / 25, 1), (trees, dict.fromkeys(trees, 1))\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    (row,) = forestcoll.rows(tmp_path, TRIANGLE, BYTES)
    assert row.reported == pytest.approx(2)
    assert row.gap is not None
    assert row.gap > 0
    assert row.simulated == pytest.approx(2, rel=0.1)


def test_verdicts_are_those_of_the_program(tmp_path: Path) -> None:
    """Accepted only if it says so."""
    program(tmp_path, [verifier.ACCEPTED], verifier.PROGRAM)
    found = verifier.verdicts(tmp_path, peers.uneven_mesh(), ("auto", "ring"))
    assert found["auto"] == found["auto, damaged"] == "accepted"
    assert found["ring"].startswith("no file: no ring through 9 ranks")
    program(tmp_path, ["one buffer differs"], verifier.PROGRAM)
    assert verifier.verdicts(tmp_path, peers.uneven_mesh(), ("auto",))["auto"] == "refused: one buffer differs"
