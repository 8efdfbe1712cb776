"""Probes: rounds, identification in simulated clusters, explanations against brute force, scripts and logs."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest

import collopt
from collopt.errors import ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.runtime import Identification, Probe, read_probe
from forked_programs import ForkedProgram

TABLE = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"


def star(boxes: int) -> collopt.Topology:
    """Boxes of one NIC each on one switch."""
    links = [(a, b, 50) for box in range(boxes) for a, b in ((f"b{box}", "sw"), ("sw", f"b{box}"))]
    return collopt.Topology.from_links(links, compute=[f"b{box}" for box in range(boxes)], switches=["sw"])


def simulated(probe: Probe, faults: dict[str, float], noise: float, seed: int, rate: float = 40) -> list[float]:
    """Rates of runs, each over one of its routes, with normal noise of their logarithms."""
    rng = np.random.default_rng(seed)
    rates = []
    for run in probe.runs:
        routes = probe.routes.parts(run.ends)
        route = routes[int(rng.integers(len(routes)))]
        rates.append(rate * min(faults.get(part, 1) for part in route) * float(np.exp(noise * rng.standard_normal())))
    return rates


@pytest.mark.parametrize("boxes", range(3, 12))
def test_rounds_give_every_nic_enough_partners(boxes: int) -> None:
    """Pairs of a round are disjoint, and each NIC meets one more NIC than may be slow, by one more round if odd."""
    for faults in range(1, boxes - 1):
        rounds = collopt.probe(star(boxes), faults).rounds
        assert len(rounds) == faults + 1 + boxes % 2
        partners: dict[str, set[str]] = {}
        for pairs in rounds:
            ends = [end for pair in pairs for end in pair]
            assert len(ends) == len(set(ends)) == boxes - boxes % 2
            for one, other in pairs:
                assert other not in partners.setdefault(one, set())
                partners[one].add(other)
                partners.setdefault(other, set()).add(one)
        assert min(map(len, partners.values())) >= faults + 1


def tells_apart(pairs: list[tuple[int, int]], boxes: int, faults: int) -> bool:
    """Whether no two sets of slow boxes slow the same runs."""
    sets = [set(some) for count in range(faults + 1) for some in combinations(range(boxes), count)]
    outcomes = {tuple(bool({*pair} & some) for pair in pairs) for some in sets}
    return len(outcomes) == len(sets)


def test_the_claims_of_the_page_hold_for_few_boxes() -> None:
    """Too few rounds never tell all faults apart; as many rounds as faults do where two or more are few."""
    for boxes in range(4, 11):
        for faults in range(1, min(4, boxes - 2)):
            rounds = collopt.probe(star(boxes), faults).rounds
            pairs = [(int(one[1:]), int(other[1:])) for one, other in chain(*rounds)]
            per_round = boxes // 2
            assert tells_apart(pairs, boxes, faults)
            assert not tells_apart(pairs[: (faults - 1) * per_round], boxes, faults)
            assert not (boxes % 2 and tells_apart(pairs[: faults * per_round], boxes, faults))
            half = boxes // 2
            rings = [(one, half + (one + step) % half) for step in range(faults) for one in range(half)]
            if boxes % 2 == 0 and boxes >= 2 * faults + 2:
                assert tells_apart(rings, boxes, faults) == (faults >= 2)


@pytest.mark.parametrize(("boxes", "faults"), [(4, 1), (4, 2), (5, 2), (5, 3), (6, 2), (7, 2)])
def test_identifies_all_sets_of_faults(boxes: int, faults: int) -> None:
    """Without noise, every set of slow NICs is the one explanation, and its rates are measured."""
    probe = collopt.probe(star(boxes), faults)
    rng = np.random.default_rng(boxes)
    for count in range(faults + 1):
        for some in combinations(probe.topology.compute_nodes, count):
            slow = dict(zip(some, rng.uniform(0.3, 0.7, count).tolist(), strict=True))
            result = probe.identify(simulated(probe, slow, 1e-6, 0))
            assert result.unique
            assert set(result.explanations[0]) == set(slow)
            measured = {state.part: state.rate for state in result.parts if state.state == "slow"}
            assert measured == pytest.approx({part: 40 * share for part, share in slow.items()}, rel=1e-4)
            assert all(state.runs for state in result.parts if state.part != "sw")


@pytest.mark.parametrize("faults", [0, 1, 2, 3])
def test_identifies_faults_in_noise(faults: int) -> None:
    """With 5 % noise, NICs of at most 70 % of the rate are identified among 64, and nothing in a healthy cluster."""
    probe = collopt.probe(collopt.topology("rail", boxes=8, gpus_per_box=8), max(faults, 1))
    nics = sorted({end for run in probe.runs for end in run.ends})
    for seed in range(8):
        rng = np.random.default_rng([faults, seed])
        slow = dict(zip(rng.choice(nics, faults, replace=False).tolist(), rng.uniform(0.25, 0.7, faults), strict=True))
        result = probe.identify(simulated(probe, slow, 0.05, seed))
        assert result.unique
        assert set(result.explanations[0]) == set(slow)


def test_more_faults_than_assumed_are_said() -> None:
    """Four slow NICs are more than the one that was assumed."""
    probe = collopt.probe(collopt.topology("rail", boxes=8, gpus_per_box=4))
    slow = {f"box{box}/nic{nic}": 0.5 for box, nic in ((1, 0), (2, 1), (3, 2), (5, 2))}
    result = probe.identify(simulated(probe, slow, 0.01, 0))
    assert not result.unique
    assert set(result.explanations[0]) == set(slow)


def consistent(probe: Probe, rates: list[float], threshold: float) -> set[frozenset[str]]:
    """Smallest sets of slow parts, by trying all."""
    crossed = [[frozenset(route) for route in probe.routes.parts(run.ends)] for run in probe.runs]
    parts = sorted(frozenset().union(*(route for run in crossed for route in run)))
    sets: set[frozenset[str]] = set()
    for some in (frozenset(some) for count in range(probe.faults + 1) for some in combinations(parts, count)):
        agree = (
            any(route & some for route in run) if rate < threshold else any(not route & some for route in run)
            for run, rate in zip(crossed, rates, strict=True)
        )
        if not any(other <= some for other in sets) and all(agree):
            sets.add(some)
    return sets


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("faults", [1, 2])
def test_explanations_of_a_fat_tree_are_those_of_brute_force(faults: int, fixed: bool) -> None:
    """Links and switches with fixed routes, or with any of the shortest ones, explain runs as trying all sets does."""
    tree = collopt.topology("fat-tree", k=4)
    probe = collopt.probe(tree, faults)
    shortest = {pair: probe.routes.nodes(pair) for pair in combinations(tree.compute_nodes, 2)}
    judged = 0
    for seed in range(4 if fixed else 2):
        rng = np.random.default_rng([faults, seed])
        if fixed:
            routes = {pair: [ways[int(rng.integers(len(ways)))]] for pair, ways in shortest.items()}
            probe = collopt.probe(tree, faults, routes=routes)
        parts = sorted({part for run in probe.runs for route in probe.routes.parts(run.ends) for part in route})
        slow = dict(zip(rng.choice(parts, faults, replace=False).tolist(), rng.uniform(0.3, 0.7, faults), strict=True))
        rates = simulated(probe, slow, 0.01, seed, rate=20)
        result = probe.identify(rates)
        expected = consistent(probe, rates, 17)
        if result.threshold > 10:
            judged += 1
            listed = set(map(frozenset, result.explanations))
            assert listed == expected or (len(listed) == 16 and listed < expected)
            for _ in range(4 if fixed else 0):
                if result.next_round:
                    probe = probe.followed_by(result.next_round)
                    rates += simulated(probe, slow, 0.01, seed, rate=20)[len(rates) :]
                    left, result = result.explanations, probe.identify(rates)
                    assert not set(left) <= set(result.explanations)
    assert judged


def launched(folder: Path, script: str, boxes: int, rates: dict[str, float]) -> None:
    """Run a script with launchers that print what nccl-tests would, for hosts named after boxes."""
    tools = folder / "tools"
    tools.mkdir()
    slow = "".join(f"*{host}*) us={256 / rate:.4f};; " for host, rate in rates.items())
    fake = f"""#!/bin/bash
us=6.4000
case "$*" in {slow} esac
echo '{TABLE.strip()}'
for i in 1 2 3 4 5; do echo "256000 64000 float none -1 $us 0 0 0"; done
"""
    for name, text in (("mpirun", fake), ("srun", fake), ("scontrol", '#!/bin/bash\ntr " " "\\n" <<< "$3"\n')):
        (tools / name).write_text(text)
        (tools / name).chmod(stat.S_IRWXU)
    hosts = [f"host{box}" for box in range(boxes)]
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    settings = {"PATH": f"{tools}:{os.environ['PATH']}", "HOSTFILE": str(folder / "hosts")}
    settings["SLURM_JOB_NODELIST"] = " ".join(hosts)
    done = subprocess.run(
        ["bash", folder / script], env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", ["mpirun.sh", "slurm.sh"])
def test_scripts_make_the_runs(script: str, tmp_path: Path) -> None:
    """The scripts are valid bash, and the logs that they write identify a slow host."""
    folder = tmp_path / "probe"
    probe = collopt.probe(collopt.topology("rail", boxes=8, gpus_per_box=2), size=256000)
    probe.write(folder)
    subprocess.run(["bash", "-n", folder / script], check=True)
    launched(folder, script, 8, {"host3": 20})
    result = read_probe(folder).read(sorted((folder / "logs").iterdir()))
    assert not result.unique
    assert set(result.explanations[0]) == {"box3/nic0", "box3/nic1"}


def test_torch_makes_the_runs(tmp_path: Path) -> None:
    """Four processes exchange data by Gloo, and their logs are read."""
    pytest.importorskip("torch")
    probe = collopt.probe(star(4), size=4096)
    probe.write(tmp_path / "probe")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    shared = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": port, "BACKEND": "gloo", "OMP_NUM_THREADS": "1"}
    program = tmp_path / "probe" / "torch_probe.py"
    ranks = [ForkedProgram(program, environment=shared | {"RANK": str(rank)}) for rank in range(4)]
    assert [rank.answer().status for rank in ranks] == [0] * 4
    logs = sorted((tmp_path / "probe" / "logs").iterdir())
    assert len(logs) == len(probe.runs)
    with pytest.raises(UnsupportedError, match="no run is fast"):  # Gloo does not reach 50 GB/s
        probe.read(logs)


def log(probe: Probe, number: int, **changes: object) -> str:
    """Text of a log of nccl-tests, beneath the line of the scripts."""
    run = probe.runs[number]
    text = {"key": probe.key, "round": run.round, "size": probe.size, "us": probe.size / 4e4, "cycles": 5} | changes
    row = f"{text['size']} 64000 float none -1 {text['us']:.4f} 0 0 0\n"
    head = f"# collopt probe {text['key']}\t{text['round']}\t{run.ends[0]}\t{run.ends[1]}\n{TABLE}"
    return head + row * int(str(text["cycles"])) + str(changes.get("tail", ""))


@pytest.mark.parametrize(
    ("changes", "error", "names"),
    [
        ({"key": "0123456789ab"}, FileFormatError, "another probe"),
        ({"round": 7}, FileFormatError, "another probe"),
        ({"cycles": 4}, FileFormatError, "cut short"),
        ({"cycles": 0}, FileFormatError, "no measured times"),
        ({"tail": "256000 640"}, FileFormatError, "cut short"),
        ({"size": 1024}, FileFormatError, "1024 bytes"),
        ({"us": 1e4}, UnsupportedError, "no run is fast"),
    ],
)
def test_refused_logs(changes: dict[str, object], error: type[ColloptError], names: str, tmp_path: Path) -> None:
    """Logs of other rounds, cut short, of another size or without a fast run are refused by name."""
    probe = collopt.probe(star(4), size=256000)
    logs = [tmp_path / f"run{number}.txt" for number in range(len(probe.runs))]
    for number, path in enumerate(logs):
        path.write_text(log(probe, number, **(changes if number == 2 or "us" in changes else {})))
    with pytest.raises(error, match=names):
        probe.read(logs)


def test_refused_sets_of_logs(tmp_path: Path) -> None:
    """A missing log, one that is there twice, and a file that is none are refused."""
    probe = collopt.probe(star(4), size=256000)
    logs = [tmp_path / f"run{number}.txt" for number in range(len(probe.runs))]
    for number, path in enumerate(logs):
        path.write_text(log(probe, number))
    (tmp_path / "other.txt").write_text(TABLE)
    for paths, error, names in (
        (logs[1:], UnsupportedError, "1 run of 4"),
        ([*logs, logs[0]], UnsupportedError, "keep one"),
        ([tmp_path / "other.txt"], FileFormatError, "collopt probe"),
    ):
        with pytest.raises(error, match=names):
            probe.read(paths)


def test_rates_above_the_bandwidth_are_said_and_kept() -> None:
    """A run faster than the network is a note, and its rate is not clipped."""
    probe = collopt.probe(star(16))
    rates = simulated(probe, {"b3": 0.5}, 0.01, 0)
    rates[0] = 60
    result: Identification = probe.identify(rates)
    assert "60 of 50 GB/s" in result.notes[0]
    assert result.explanations == (("b3",),)


@pytest.mark.parametrize(
    ("boxes", "options", "error"),
    [
        (2, {}, UnsupportedError),
        (4, {"faults": 3}, UnsupportedError),
        (4, {"faults": 0}, UnsupportedError),
        (4, {"size": 1023}, UnsupportedError),
        (4, {"routes": {("b0", "b1"): [("b0", "b1")]}}, TopologyError),
        (4, {"routes": {}}, TopologyError),
    ],
)
def test_refused_probes(boxes: int, options: dict[str, object], error: type[ColloptError]) -> None:
    """Too few boxes, odd sizes and routes that are none are refused."""
    with pytest.raises(error):
        collopt.probe(star(boxes), **options)  # type: ignore[arg-type]


def test_probes_are_read_as_written(tmp_path: Path) -> None:
    """Rounds, routes and network come back; other contents and full folders are refused."""
    tree = collopt.topology("leaf-spine", leaves=3, spines=2, hosts_per_leaf=2)
    pairs = combinations(tree.compute_nodes, 2)
    shortest = collopt.probe(tree).routes
    probe = collopt.probe(tree, routes={pair: shortest.nodes(pair)[:1] for pair in pairs})
    probe.write(tmp_path / "probe")
    again = read_probe(tmp_path / "probe")
    assert (again.runs, again.key, again.stated) == (probe.runs, probe.key, probe.stated)
    with pytest.raises(UnsupportedError):
        probe.write(tmp_path / "probe")
    text = (tmp_path / "probe" / "probe.json").read_text()
    for other in (text.replace('"host1"', '"leaf0"', 1), text.replace('"rounds"', '"rows"'), text[:99]):
        (tmp_path / "probe" / "probe.json").write_text(other)
        with pytest.raises(FileFormatError):
            read_probe(tmp_path / "probe")
