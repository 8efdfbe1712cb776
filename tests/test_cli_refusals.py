"""The door of the command line: bad input ends in status 2 and one line that names the argument; nothing is written.

Each row of a table is a call and, behind ``->``, the words that its error has to have: an argument and its value, or a
name that was meant.  `files` says which files lie in the current folder.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collopt
from cli_calls import Cli, refusal
from collopt.cli.app import COMMANDS
from collopt.topologies import ring

USAGE = """
bound                                                    -> 'TOPOLOGY' collopt bound --help
bound mi250                                              -> 'COLLECTIVE' collopt bound --help
bound mi250 allgather again                              -> again collopt bound --help
bound mi250 allgather --boxs 2                           -> --boxs collopt bound --help
bound mi250 allgather --boxes                            -> --boxes
bond                                                     -> 'bond' did you mean 'bound' collopt --help
--color                                                  -> --color collopt --help
--show-completion csh                                    -> 'csh' bash zsh fish
bench plan.json -q 1                                     -> -q collopt bench --help
export plan.json -o x                                    -> '--format'
bound ring --nodes 4 --nodes 5 allgather                 -> --nodes twice
bound ring --nodes=4 allgather --nodes=4                 -> --nodes twice
plan ring --nodes 4 allgather -o a --output b            -> --output twice
bench pair.json -n 2 -n 3                                -> --iters twice
bound ring --nodes 4 allgather --size 64K 1M             -> --size 64K --size 1M
bound ring --nodes 4 allgather --size 64K,1M             -> --size 64K --size 1M
topologies --json --csv                                  -> --json --csv
find 16 --json --csv                                     -> --json --csv
compare ring --nodes 4 allgather --json --csv            -> --json --csv
calibrate times.txt --json --csv                         -> --json --csv
"""

NUMBERS = """
plan mi250 allgather --chunks 2.5                        -> --chunks '2.5'
plan mi250 allgather --trees-per-root 1_0                -> --trees-per-root '1_0'
plan net.json allgather --trees-per-root 0               -> trees_per_root 0
plan mi250 allgather --max-bytes 9999999999999999999     -> --max-bytes '9999999999999999999'
bound net.json allgather --seed -1                       -> --seed '-1' 2147483647
bound net.json allgather --threads 0                     -> --threads '0' 1024
run plan.json --timeout 1e9                              -> --timeout '1e9' 1000000
run plan.json --timeout ٣                                -> --timeout '٣'
run plan.json --repeats -1                               -> --repeats '-1'
run plan.json --elements 99999999999999999999            -> --elements '99999999999999999999'
bench pair.json -b much                                  -> --minbytes 'much'
bench pair.json -c x                                     -> --check 'x'
explore ring --nodes 4 --port 65536 --no-browser         -> --port '65536' 65535
lint a.xml --runtime msccl --max-thread-blocks 0         -> --max-thread-blocks '0'
survive net.json allgather --jobs 0                      -> --jobs '0'
find 1 --degree 4                                        -> nodes 1 8192
find 16 --degree 0                                       -> degree 0
find 16 --bandwidth 1e400                                -> --bandwidth '1e400' 1e+12
find 16 --host 1e400                                     -> --host '1e400' 1e+12
sensitivity ring --nodes 4 allgather --step 0            -> --step '0'
compare ring --nodes 4 allgather --size 1X               -> size '1X'
compare-networks "ring --nodes 4" --call allgather       -> --call COLLECTIVE:SIZE
expect ring --nodes 4 allgather --size 0                 -> size '0'
"""

NETWORKS = """
bound mi25 allgather                                     -> 'mi25' did you mean mi250 or mi325x dgx-a100
bound zzz allgather                                      -> 'zzz' dgx-a100 complete path of a file
expect mi25                                              -> 'mi25' did you mean mi250 or mi325x dgx-a100
bound nowhere/net allgather                              -> nowhere/net exist
bound folder allgather                                   -> folder file
bound "" allgather                                       -> path empty
explore ring --no-browser                                -> ring --nodes
bound torus --set bandwidth=2 allgather                  -> torus --shape 4x4
bound fat-tree allgather                                 -> fat-tree --set k=
bound dragonfly --set hosts_per_router=2 allgather       -> --set routers_per_group= --set global_links_per_router=
bound mi250 --nodes 2 allgather                          -> mi250 --nodes --boxes
bound mi250 --set bxes=2 allgather                       -> mi250 'bxes' did you mean boxes
bound torus --shape 4x allgather                         -> --shape torus '4x' 4x4
bound mi250 --boxes two allgather                        -> --boxes mi250 'two'
bound ring --nodes 0 allgather                           -> --nodes 0
bound mi250 --set boxes allgather                        -> --set 'boxes' NAME=VALUE
bound mi250 --boxes 2 --set boxes=2 allgather            -> 'boxes' twice
bound mi250 --ranks 7-0 allgather                        -> --ranks 7-0 0-7
bound mi250 --ranks 0-999999999 allgather                -> rank 16 0..15
bound mi250 --ranks 0,gpu99 allgather                    -> rank 'gpu99'
bound mi250 --ranks 0,1,0 allgather                      -> twice
bound net.json allgather --ranks 0-2 --boxes 2           -> --boxes net.json
bound net.json allgather --shape 4x4                     -> --shape net.json
bound dgx-a100 --boxes 2 allgather --without nic3        -> --without 'nic3' box0/nic3 box1/nic3
bound dgx-a100 allgather --without gpu0--gpu1            -> --without gpu0--gpu1
import mi250                                             -> mi250 ./mi250
import mi25                                              -> 'mi25' did you mean mi250
import lab net.json --fabric rail                        -> net.json box
import lab lab                                           -> --fabric full rail leaf_spine
import lab lab --fabric rail --boxes 2                   -> --boxes
import lab --boxes 2                                     -> --fabric full rail leaf_spine
import lab --fabric rail                                 -> --fabric one box
import lab --boxes 2 --fabric full --set oversubscription=2 -> 'full' oversubscription
import lab --set gpu=h100                                -> gpu TACCL
import lab --boxes two                                   -> --boxes 'two'
import lab --fabric rail --boxes 2 --set oversubscription=0 -> oversubscription '0'
import lab --boxes 2 --fabric full --set nic_bandwidth=400gbps -> NIC '400gbps' 400Gb/s
import lab -o lab                                        -> --output lab
topologies rung                                          -> 'rung' did you mean ring
topologies net.json                                      -> net.json collopt import net.json
topologies folder/                                       -> folder catalogue
verify plan.json --boxes 2                               -> --boxes --topology
verify plan.json --topology ring --nodes 5               -> ring-4 plan again
score a.xml                                              -> --topology a.xml
certify a.xml                                            -> --topology a.xml
score a.xml --topology ring --nodes 5                    -> a.xml 4 ring-5 5
bench pair.json --nodes 4                                -> --nodes --topology
"""

PLANS = """
plan ring --nodes 4 broadcast                            -> broadcast root
survive net.json broadcast                               -> root
plan net.json allgather --traffic traffic.csv            -> traffic
plan net.json all_to_allv                                -> all_to_allv traffic
plan net.json allgather --chunks 2                        -> 'chunks' bfb
plan net.json allgather --planner bfb --trees-per-root 2 -> 'bfb' 'trees_per_root'
plan net.json broadcast --root 0 --planner bfb           -> 'bfb' broadcast
plan dgx-a100 allgather --planner bfb                    -> dgx-a100 switches
bound net.json allgather --costs fused                   -> --costs --size
bound net.json allgather --size 1M --costs fast          -> 'fast' links generic fused
score a.xml --topology net.json --costs all              -> 'all'
plan net.json allgather -o missing/plan.json             -> --output missing/plan.json
plan net.json allgather -o plan.xml                      -> --output plan.xml --xml plan.xml
plan net.json allgather -o net.json                      -> --output net.json
plan net.json allgather -o same --xml ./folder/../same   -> --xml same
plan net.json allgather -o plan.json --xml link.json     -> --xml link.json
plan net.json allgather -o /dev/null                     -> --output /dev/null
plan net.json allgather -o -                             -> --output ./-.json
plan net.json allgather --runtime rccl                   -> --runtime --xml FILE
plan net.json allgather --channels 1000 --xml x          -> channels 1000
plan net.json allgather --in-place                       -> --in-place --xml FILE
plan mi250 all_to_all --in-place --mscclpp x             -> --in-place all_to_all
plan net.json allgather --register x                     -> --register --mscclpp FILE
plan net.json allgather --xml x --runtime nccl           -> runtime 'nccl' msccl
plan dgx1-v100 allgather --mscclpp x --max-bytes 1000000000000 -> max_bytes 1000000000000
family net.json allgather --planners auto,,ring -o x     -> --planners 'auto,,ring'
family net.json allgather --sizes 1K -o x                -> --sizes '1K' 1K-1G
family net.json allgather --sizes 1M-1K -o x             -> '1M' '1K' smallest
family net.json allgather --register x -o y              -> --register mscclpp
family net.json allgather -o ""                          -> folder ''
family net.json allgather -o folder                      -> folder not empty
family net.json allgather -o loop                        -> loop not a folder
family dgx-a100 allreduce --planners forestcoll,bfb -o x -> bfb
survive net.json allgather --failures disk               -> 'disk'
survive net.json allgather --derate 2                    -> 2 less than 1
survive dgx-a100 --boxes 2 allgather --pairs "nic0 + nic1" -> 'nic0'
survive net.json allgather,                              -> collective ''
survive net.json allgather -o plan.json                  -> plan.json
groups net.json                                          -> --mesh --axis
groups net.json --mesh 2x8 --axis 1:allgather            -> --mesh 2x8 16 4
groups net.json --mesh 2xx --axis 1:allgather            -> --mesh '2xx'
groups net.json --mesh 2x2 --axis allgather              -> --axis 'allgather'
groups net.json --mesh 2x2 --axis 2:allgather            -> [2] 0..1
groups net.json --mesh 4x1 --axis 1:allgather            -> 1 rank
groups net.json --mesh 2x2 --axis 1:allgather --axis 1:allgather -> --axis 1 twice
groups net.json missing.json                             -> missing.json exist
find 16 --call all_to_all:1M --size 1K                   -> --size --call
find 16 --call all_to_all:1M --collective allgather      -> --collective --call
find 16 --call all_to_all:1M --no-all-to-all             -> --no-all-to-all all_to_all
find 16 --call broadcast:1M                              -> 'broadcast' allgather
find 16 --call allreduce                                 -> COLLECTIVE:SIZE[:COUNT]
find 16 --candidate 1                                    -> --candidate --save --plan --xml
find 16 --save missing/file.json                         -> --save missing/file.json
find 16 --save x --candidate 9                           -> --candidate 9
find 16 --save loop --plan x                             -> --save loop regular
find 16 --save x --plan loop                             -> --plan loop regular
"""

FILES = """
verify missing.json                                      -> missing.json exist
verify ""                                                -> path empty
verify empty                                             -> empty JSON
verify cut                                               -> cut line 1
verify tree                                              -> tree XML 'collopt-plan'
verify newer                                             -> newer version 11 upgrade
verify fields                                            -> fields made_by
run plan.json --backend mpi                              -> backend 'mpi' gloo nccl
run plan.json --op max                                   -> op reduce
run plan.json --dtype float31                            -> dtype 'float31'
run pair.json --op xor                                   -> op 'xor' sum
bench                                                    -> nothing --topology --collective
bench pair.json pair.json                                -> pair.json twice
bench pair.json plan.json                                -> pair.json plan.json
bench plan.json -o max                                   -> reduce plan.json
bench pair.json -f 2 -i 4                                -> --stepfactor --stepbytes
bench pair.json -b 64M                                   -> 67108864 33554432
bench pair.json -d int16                                 -> datatype 'int16' int8
bench pair.json --collective allgather                   -> --collective --topology
bench --topology ring                                    -> --topology --collective
probe dgx-h100 --boxes 2                                 -> slow NIC boxes
probe dgx-h100 --boxes 4 --size 3                        -> size 4
probe plan.json log.txt                                  -> log.txt plan.json
diagnose nowhere.txt                                     -> nowhere.txt exist
diagnose times.txt --boxes 2                             -> --boxes --topology
diagnose net.json                                        -> net.json
diagnose times.txt --json --csv                          -> --json --csv
calibrate                                                -> nothing --topology
calibrate nowhere.txt                                    -> nowhere.txt exist
calibrate times.txt -o x                                 -> --output --topology
calibrate --topology mi250 -o x                          -> --output times
calibrate --topology mi250 --class times.txt             -> --class NAMES=
calibrate --topology mi250 --class gpu-cup=times.txt     -> 'gpu-cup'
calibrate --topology mi250 times.txt                     -> times.txt 2 16
calibrate --topology mi250 times.txt -o times.txt        -> --output times.txt
calibrate --topology mi250 times.txt --figure x.gif      -> --figure x.gif .svg
calibrate times.txt --collective coffee                  -> --collective 'coffee'
calibrate times.txt --collective allgather               -> --collective allgather sendrecv
calibrate times.txt --by me                              -> times.txt 'me'
export plan.json -o x --format xml                       -> 'xml' chakra-et msccl-xml
export plan.json -o x --format chakra-et                 -> chakra-et 'size'
export plan.json -o x --format msccl-xml --set color=1   -> msccl-xml 'color'
export plan.json -o x --format msccl-xml --set color     -> --set 'color' NAME=VALUE
export plan.json -o x --format msccl-xml --set a=1 --set a=1 -> --set a twice
export plan.json -o x --format nccl-tuner-csv --set max_bytes=999999999999999999999999999999 -> max_bytes large
export plan.json -o x --format nccl-tuner-csv --set boxes=8 -> boxes 8 1 to 4
lint a.xml                                               -> --runtime msccl
lint no.xml                                              -> no.xml exist
topology-file                                            -> FILE --host
topology-file a.xml -o b.xml                             -> --host --box
topology-file --box ring                                 -> ring dgx-h100
topology-file --box dgx-h100 --host a.xml                -> --box --host
topology-file --box dgx-h100 --json                      -> --json FILE
topology-file --box dgx-h100 --gpu g                     -> 'g' h100
lint a.xml --runtime nccl                                -> runtime 'nccl' msccl
lint a.xml --runtime rccl --version new                  -> version 'new' ROCm
lint a.json --runtime mscclpp --version 0.1              -> version '0.1' 0.8.0
score none.xml --topology net.json                       -> none.xml exist
certify none.xml --topology net.json                     -> none.xml exist
certify a.xml --topology net.json -o a.xml               -> --output a.xml
score a.xml --topology net.json --bytes 1M               -> num_bytes 1048576
report folder                                            -> folder
report plan.json -o nowhere/page.html                    -> --output nowhere
report plan.json -o plan.json                            -> --output plan.json
report plan.json pair.json                               -> report for each
show torus --shape 3x3 --figure trees                    -> --figure trees COLLECTIVE
show torus allgather --shape 3x3 --figure topology       -> --figure topology 'allgather'
show torus --shape 3x3 --figure pie                      -> --figure 'pie' topology
show torus --shape 3x3 --figure pareto                   -> --figure pareto table
show torus --shape 3x3 --root 2                          -> --root
show torus --shape 3x3 --size 1M                         -> --size steps curves topology
show torus allgather --shape 3x3 --tree 2                -> --tree trees cut
show torus allgather --shape 3x3 --figure trees --planner ring --planner bfb -> --planner 2 curves
show torus allgather --shape 3x3 --figure trees --planner bfb -> steps trees
show torus allgather --shape 3x3 --figure curves --model guess -> 'guess' 'estimate'
show torus --shape 3x3 -o torus.gif                      -> --output torus.gif .svg
show plan.json allgather                                 -> allgather plan.json
show plan.json --boxes 2                                 -> --boxes plan.json
show plan.json --tree 3:70                               -> tree 70
show plan.json --size 1M                                 -> --size trees
show found.csv --figure trees                            -> --figure trees pareto
show found.csv allgather                                 -> allgather found.csv
show empty.csv                                           -> empty.csv header
show other.csv                                           -> 'name' steps bandwidth_factor
show binary.csv                                          -> binary.csv
"""


def cases(table: str) -> list[Any]:
    """The calls of a table with the words that their errors have."""
    rows = [[part.strip() for part in line.split(" -> ")] for line in table.splitlines() if line]
    return [pytest.param(shlex.split(call), named.split(), id=call) for call, named in rows]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network, plans, files of runtimes and of measured times, and some that are none of them."""
    folder = tmp_path_factory.mktemp("files")
    plan = collopt.plan(ring(4, bandwidth=25), "allgather", planner="ring")
    plan.save(folder / "plan.json")
    plan.to_msccl_xml(folder / "a.xml")
    plan.to_mscclpp_json(folder / "a.json")
    collopt.plan(ring(2, bandwidth=25), "allreduce", planner="ring").save(folder / "pair.json")
    collopt.write_topology(plan.topology, folder / "net.json")
    (folder / "link.json").hardlink_to(folder / "plan.json")
    (folder / "loop").symlink_to("loop")
    (folder / "folder").mkdir()
    (folder / "folder" / "mine").write_text("text")
    ranks = "".join(f"#  Rank {rank:2} Group  0 Pid 1 on host device {rank} [0000:0f:00] GPU\n" for rank in (0, 1))
    header = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    rows = "".join(f"{2**power} 1 float none -1 {4 + 2**power / 240e3:.3f} 0 0 0 4 0 0 N/A\n" for power in range(8, 30))
    profile = {"name": "lab_1MB", "gpus_per_node": 4, "nics_per_node": 2, "alpha": 1, "node_betas_list": [20]}
    contents = {
        "times.txt": f"# Collective test starting: sendrecv_perf\n{ranks}{header}{rows}",
        "traffic.csv": "\n".join(["1,1,1,1"] * 4),
        "lab": json.dumps(profile | {"remote_alpha": 2, "remote_beta": 80, "remote_invbw": 82}),
        "found.csv": "name,steps,bandwidth_factor\nK(4),1,0.75\n",
        "empty.csv": "",
        "other.csv": "a,b\n1,2\n",
        "empty": "",
        "cut": '{"format": "collopt-pl',
        "tree": "<plan/>",
        "bare": '{"collective": "allreduce"}',
        "newer": '{"format": "collopt-plan", "version": 11}',
        "fields": '{"format": "collopt-plan", "version": 1}',
    }
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "binary.csv").write_bytes(bytes(range(256)) * 4)
    return folder


@pytest.fixture(autouse=True)
def unchanged(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in the folder, start no ranks, and see to it that its files stay as they were."""
    monkeypatch.chdir(files)
    monkeypatch.setattr("collopt.runtime.execution.local_ranks.run_ranks", None)

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}

    before = contents()
    yield
    assert contents() == before


@pytest.mark.parametrize(("words", "named"), cases(USAGE + NUMBERS + NETWORKS + PLANS + FILES))
def test_bad_input_is_refused(cli: Cli, words: list[str], named: list[str]) -> None:
    """Status 2, nothing on standard output, one line on standard error that names the argument, no file."""
    if words[0] in ("show", "calibrate"):
        pytest.importorskip("matplotlib", reason="figures need matplotlib")
    if words[0] == "explore":
        pytest.importorskip("tornado", reason="the explorer needs tornado")
    if words[0] == "report":
        pytest.importorskip("jinja2", reason="reports need jinja2")
    message = refusal(cli(*words))
    assert [word for word in named if word not in message] == [], message


def test_every_command_refuses_something() -> None:
    """No command is left out of the tables."""
    refusing = {shlex.split(line)[0] for line in (USAGE + NUMBERS + NETWORKS + PLANS + FILES).split("\n") if line}
    names = {command.__name__.replace("import_network", "import").replace("_", "-") for command in COMMANDS}
    assert names - refusing == {"doctor"}


TAKERS = {
    "bound": "bound NET COLLECTIVE",
    "plan": "plan NET COLLECTIVE --planner PLANNER",
    "compare": "compare NET COLLECTIVE --planner PLANNER",
    "show": "show NET COLLECTIVE --figure trees --planner PLANNER",
    "family": "family NET COLLECTIVE --planners ring,PLANNER --sizes 1K-1M -o family",
    "bench": "bench --topology NET --collective COLLECTIVE --planner PLANNER",
    "calibrate": "calibrate nosuch.txt --topology NET --planner PLANNER",
    "explore": "explore NET COLLECTIVE --planner PLANNER --no-browser",
}


@pytest.mark.parametrize("words", TAKERS.values(), ids=TAKERS)
def test_names_are_refused_before_a_file_is_read(cli: Cli, words: str) -> None:
    """The error has the intended name, or all names."""
    usual = {"NET": "nosuch.xml", "COLLECTIVE": "allgather", "PLANNER": "auto"}
    for place, typed, named in (
        ("COLLECTIVE", "all_reduce", "did you mean allreduce?"),
        ("COLLECTIVE", "scan", "allgather, reduce_scatter, allreduce, broadcast, reduce, all_to_all, all_to_allv"),
        ("PLANNER", "forest_coll", "did you mean forestcoll?"),
        ("PLANNER", "oracle", "auto, "),
    ):
        if place in words:
            line = words
            for word, value in {**usual, place: typed}.items():
                line = line.replace(word, value)
            message = refusal(cli(*line.split()))
            assert f"'{typed}'" in message
            assert named in message


PAIR = {
    "format": "collopt-topology",
    "version": 1,
    "name": "pair",
    "compute": ["a", "b"],
    "switches": [],
    "links": [["a", "b", 25, 0], ["b", "a", 25, 0]],
}


def with_bandwidth(text: str) -> str:
    """A file of a pair whose first bandwidth is replaced as it would be typed."""
    return json.dumps(PAIR).replace("25", text, 1)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "empty"),
        (json.dumps(PAIR)[:-9], "line 1"),
        ("<system/>", "version of <system> is ''"),
        (json.dumps(PAIR | {"version": 3}), "version 3"),
        (json.dumps(PAIR | {"format": "collopt-plan"}), "collopt verify "),
        (json.dumps(PAIR | {"kind": "mesh"}), "field kind"),
        (json.dumps(PAIR | {"compute": "ab"}), "field compute"),
        (json.dumps(PAIR | {"links": [["a", "c", 25, 0]]}), "'c'"),
        (json.dumps(PAIR | {"links": [["a", "b", 25, 0]]}), "'b' to rank 'a'"),
        (with_bandwidth("NaN"), "NaN"),
        (with_bandwidth("0"), "bandwidth of link ('a', 'b') is 0"),
        (with_bandwidth("1e999999"), "bandwidth of link ('a', 'b')"),
    ],
)
def test_a_file_that_is_no_network_is_refused(cli: Cli, tmp_path: Path, content: str, named: str) -> None:
    """Bound and plan name the file and the field in the same words."""
    path = tmp_path / "net.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    message = refusal(cli("bound", path, "allgather", "--json"))
    assert named in message
    assert str(path) in message or "no path from rank" in message
    assert refusal(cli("plan", path, "allgather", "-o", tmp_path / "plan.json")) == message
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("none.csv", None, "exist"),
        ("empty.csv", b"", "empty"),
        ("short.csv", b"1,2\n3\n", "row 2"),
        ("small.csv", b"1,2\n3,4\n", "4 rows of 4"),
        ("word.csv", b"\n".join([b"1,1,1,1"] * 3 + [b"1,1,one,1"]), "from rank 3 to rank 2 is 'one'"),
        ("negative.csv", b"\n".join([b"1,1,1,1"] * 3 + [b"1,1,-1,1"]), "from rank 3 to rank 2 is '-1'"),
        ("binary.csv", b"\xff\xfe\x00", "UTF-8"),
        ("text.npy", b"nothing", "numpy.save"),
        ("header.npy", b"\x93NUMPY\x01\x00\x76\x00" + b"{" * 118, "numpy.save"),
    ],
)
def test_a_file_that_is_no_traffic_is_refused(
    cli: Cli, tmp_path: Path, name: str, content: bytes | None, named: str
) -> None:
    """The error names the place in the file."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert named in refusal(cli("plan", "net.json", "all_to_allv", "--traffic", tmp_path / name))


def test_arrays_that_could_run_code_or_fill_the_memory_are_refused(cli: Cli, tmp_path: Path) -> None:
    """Objects, a shape beyond the file and an archive are no traffic."""
    path = tmp_path / "traffic.npy"
    np.save(path, np.ones((4, 4), dtype=np.int64))
    content = path.read_bytes().replace(b"(4, 4), ", b"(4,9999999999999), "[:8])
    np.savez(tmp_path / "archive.npz", np.ones((4, 4)))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    archive, objects = (tmp_path / "archive.npz").read_bytes(), (tmp_path / "objects.npy").read_bytes()
    for each in (content, archive, objects):
        path.write_bytes(each)
        message = refusal(cli("bound", "net.json", "all_to_allv", "--traffic", path))
        assert "numpy.save" in message
