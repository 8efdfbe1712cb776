"""`certify`: schedules of any origin as plans with proofs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import collopt
import nccl_logs
from cli_calls import Cli
from collopt.errors import CertificateError, ColloptError, UnsupportedError
from collopt.runtime import certify, plan_traces, write_trace
from collopt.runtime.health.channels import score_rings
from collopt.runtime.health.nccl_log import read_nccl_log
from collopt.schedules import Allreduce, FlowSchedule, Forest, StepExchange, StepSchedule

T = collopt.topologies
NETWORKS = {
    "ring": T.ring(4, bandwidth=24),
    "cube": T.hypercube(3, bandwidth=24),
    "boxes": T.dgx_a100(boxes=2),
    "h100": T.dgx_h100(),
}
SUFFIXES = {"msccl-xml": ".xml", "mscclpp-json": ".json", "chakra-et": ""}


def again(plan: collopt.Plan, path: Path) -> collopt.Plan:
    """Return the plan after a stay in a file."""
    plan.save(path)
    return collopt.load_plan(path, plan.topology)


@pytest.mark.parametrize("form", SUFFIXES)
@pytest.mark.parametrize(
    ("network", "collective", "planner"),
    [
        ("ring", "allgather", "auto"),
        ("ring", "allreduce", "ring"),
        ("ring", "broadcast", "auto"),
        ("cube", "reduce_scatter", "ring"),
        ("cube", "all_to_all", "auto"),
        ("boxes", "allgather", "ring"),
        ("boxes", "allreduce", "ring"),
    ],
)
def test_certifies_what_was_exported(network: str, collective: str, planner: str, form: str, tmp_path: Path) -> None:
    """Exports of pipelined plans become plans of the same rate and loads, which files keep."""
    topology, root = NETWORKS[network], {"root": 1} if collective == "broadcast" else {}
    plan = collopt.plan(topology, collective, planner=planner, **root)
    path = tmp_path / f"file{SUFFIXES[form]}"
    size = {"size": 2**20 * 3 * 16} if form == "chakra-et" else {}
    plan.export(form, path, **size)
    read = again(certify(path, topology, **(root if size else {})), tmp_path / "plan.json")
    assert (read.algbw, read.gap, read.collective) == (plan.algbw, plan.gap, plan.collective)
    shares = collopt.runtime.score(path, topology, sizes=["1M"], **(root if size else {})).shares
    loads = read.link_loads.tolist()
    assert [Fraction(load, sum(loads)) for load in loads] == [share / sum(shares) for share in shares]


def test_switches_that_add_and_copy_stay(tmp_path: Path) -> None:
    """An allreduce over NVLink SHARP, whose switch loops copies back, is certified at its bound."""
    plan = collopt.plan(NETWORKS["h100"], "allreduce")
    plan.to_mscclpp_json(tmp_path / "sharp.json")
    read = again(certify(tmp_path / "sharp.json", NETWORKS["h100"]), tmp_path / "plan.json")
    assert (read.algbw, read.gap) == (400, 0)
    assert len(read.schedule.forests[0].switches) == 1


def test_sums_that_ranks_make_for_a_switch_are_planned_again(tmp_path: Path) -> None:
    """An MSCCL++ plan of a reduce is as fast as ranks alone can add, by a chain."""
    plan = collopt.plan(NETWORKS["h100"], "reduce", root=0)
    plan.to_mscclpp_json(tmp_path / "reduce.json")
    assert certify(tmp_path / "reduce.json", NETWORKS["h100"]).algbw == plan.algbw == 450


def rows(path: Path, header: str, sends: list[str]) -> Path:
    """Write a list of sends."""
    path.write_text("\n".join([header, *sends]))
    return path


RING_SENDS = [f"{step},{rank},{(rank + 1) % 4},{(rank - step) % 4},0" for step in range(3) for rank in range(4)]
DOUBLING = [f"{bit},{rank},{rank ^ 1 << bit},0,add" for bit in range(2) for rank in range(4)]
PAIRS = [f"0,{a},{b},0,{a},{b}" for a in range(4) for b in range(4) if a != b]


@pytest.mark.parametrize(
    ("collective", "header", "sends", "kind", "algbw"),
    [
        ("allgather", "step,from,to,owner,chunk", RING_SENDS, StepSchedule, 40 / 3),
        ("allreduce", "step,from,to,chunk,op", DOUBLING, StepExchange, 5),
        ("all_to_all", "step,from,to,chunk,owner,target", PAIRS, FlowSchedule, 40),
        ("broadcast", "step,from,to,chunk", ["0,0,1,0", "1,1,2,0-1", "0,0,1,1", "2,2,3,0-1"], Forest, 10),
        ("reduce", "step,from,to,chunk", ["0,3,2,0", "1,2,1,0", "2,1,0,0"], Forest, 10),
        (
            "reduce_scatter",
            "step,from,to,owner,chunk",
            [f"{step},{rank},{(rank + 1) % 4},{(rank - step - 1) % 4},0" for step in range(3) for rank in range(4)],
            StepSchedule,
            40 / 3,
        ),
    ],
)
def test_lists_of_sends_keep_their_steps(
    collective: str, header: str, sends: list[str], kind: type, algbw: float, tmp_path: Path
) -> None:
    """Lists become steps, sums that ranks exchange, paths, or, with one root, trees."""
    topology, root = T.complete(4, bandwidth=10), {"root": 0} if collective in ("broadcast", "reduce") else {}
    plan = certify(rows(tmp_path / "a.csv", header, sends), topology, collective=collective, **root)
    assert isinstance(again(plan, tmp_path / "plan.json").schedule, kind)
    assert float(plan.algbw) == pytest.approx(algbw)


ALL_SEND = """<algo name="all" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="3" coll="allreduce" inplace="1">
{}</algo>"""


def test_sums_that_every_rank_makes_are_an_exchange(tmp_path: Path) -> None:
    """An allreduce in which all send to all, one after the other, is no pair of trees, and one step."""
    gpus = []
    for rank in range(3):
        one, two = (rank + 1) % 3, (rank + 2) % 3
        ends = 'srcbuf="{}" srcoff="{}" dstbuf="{}" dstoff="{}" cnt="1" depid="{}" deps="{}" hasdep="{}"'
        step = f'<step s="{{}}" type="{{}}" {ends}/>'
        blocks = []
        for number, peer in enumerate((one, two)):
            inner = step.format(0, "s", "i", 0, "i", 0, -1, -1, 0)
            inner += step.format(1, "r", "i", 0, "s", number, -1, -1, int(number == 0))
            if number:
                inner += step.format(2, "re", "s", 0, "i", 0, 0, 1, 0) + step.format(3, "re", "s", 1, "i", 0, -1, -1, 0)
            blocks.append(f'<tb id="{number}" send="{peer}" recv="{peer}" chan="0">{inner}</tb>')
        gpus.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="0" s_chunks="2">{"".join(blocks)}</gpu>')
    path = tmp_path / "all.xml"
    path.write_text(ALL_SEND.format("".join(gpus)))
    plan = certify(path, T.complete(3, bandwidth=10))
    assert isinstance(plan.schedule, StepExchange)
    assert (plan.schedule.num_steps, plan.algbw) == (1, 10)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce", "broadcast"])
def test_rings_of_a_log_are_trees(collective: str, tmp_path: Path) -> None:
    """The rings that NCCL lists are as fast as `diagnose` says."""
    topology, path = T.dgx_h100(), tmp_path / "log.txt"
    path.write_text(nccl_logs.text(nccl_logs.info(nccl_logs.Machine(hosts=1))))
    root = {"root": 3} if collective == "broadcast" else {}
    plan = again(certify(path, topology, collective=collective, **root), tmp_path / "plan.json")
    log = read_nccl_log(path.read_text(), "log")
    scored = score_rings(log.rings, log.hops, collopt.bound(topology, collective, **root))
    assert (plan.algbw, 1 - plan.gap) == (scored.algbw, scored.share)


def test_rings_through_nics_of_other_gpus_are_refused(tmp_path: Path) -> None:
    """Data that passes a GPU on its way to a NIC takes no path of a plan."""
    path = tmp_path / "log.txt"
    path.write_text(nccl_logs.text(nccl_logs.info()))
    with pytest.raises(UnsupportedError, match=r"\(PXN\)"):
        certify(path, T.dgx_h100(boxes=2), collective="allgather")


def test_trees_of_a_log_are_an_allreduce(tmp_path: Path) -> None:
    """A log that lists a tree alone is of that."""
    lines = [
        f"n:1:1 [{rank}] NCCL INFO Trees [0] -1/-1/-1->{rank}->{rank - 1 if rank else -1}" for rank in range(4)
    ] + [f"n:1:1 [{rank}] NCCL INFO comm 0x5 rank {rank} nranks 4 cudaDev 0 commId 0x1 - Init" for rank in range(4)]
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines))
    plan = certify(path, T.ring(4, bandwidth=10), collective="allreduce")
    assert isinstance(plan.schedule, Allreduce)
    assert plan.algbw == 10


def test_plans_stay_plans(tmp_path: Path) -> None:
    """A plan of collopt is verified and returned."""
    plan = collopt.plan(NETWORKS["ring"], "allgather")
    plan.save(tmp_path / "plan.json")
    assert certify(tmp_path / "plan.json", NETWORKS["ring"]).planner == plan.planner


OWNED = "step,from,to,owner,chunk"
TWICE = ["step,from,to,chunk", "0,0,1,0", "0,0,2,0", "0,0,3,0", "1,1,3,0"]
LOG = "n:1:1 [0] NCCL INFO Channel 00/01 : "


@pytest.mark.parametrize(
    ("name", "content", "options", "error", "words"),
    [
        ("a.csv", [OWNED, *RING_SENDS[:-1]], {"collective": "allgather"}, CertificateError, "never"),
        ("a.csv", TWICE, {"collective": "broadcast", "root": 0}, UnsupportedError, "2 times"),
        ("log", [LOG + "0 1 2 3"], {}, UnsupportedError, "collective"),
        ("log", [LOG + "0 1 2 3"], {"collective": "all_to_all"}, UnsupportedError, "pairs"),
        ("log", [LOG + "0 1 2 2"], {"collective": "allgather"}, UnsupportedError, "ring"),
        ("log", ["n:1:1 [0] NCCL INFO nothing"], {"collective": "allgather"}, UnsupportedError, "no rings"),
    ],
)  # fmt: skip
def test_refuses_what_no_plan_says(
    name: str, content: list[str], options: dict[str, str | int], error: type[ColloptError], words: str, tmp_path: Path
) -> None:
    """Wrong data, copies that nobody needs and files that do not say enough are refused in one line."""
    path = tmp_path / name
    path.write_text("\n".join(content))
    with pytest.raises(error, match=words) as caught:
        certify(path, T.complete(4, bandwidth=10), **options)  # type: ignore[arg-type] # of a table
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_traces_without_chunks_are_refused(tmp_path: Path) -> None:
    """A trace that does not say which chunks it sends proves nothing."""
    traces = plan_traces(collopt.plan(NETWORKS["ring"], "allgather"), 2**20)
    for rank, trace in enumerate(traces):
        nodes = tuple(
            replace(node, attributes=tuple(a for a in node.attributes if "chunk" not in a.name)) for node in trace.nodes
        )
        write_trace(replace(trace, nodes=nodes), tmp_path / f"t.{rank}.et")
    with pytest.raises(UnsupportedError, match="msg_chunk_idx"):
        certify(tmp_path / "t", NETWORKS["ring"])


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_traces_that_do_not_wait_for_data_are_refused(collective: str, tmp_path: Path) -> None:
    """Bytes alone would be enough, but a rank would pass on what has not come."""
    for rank, trace in enumerate(plan_traces(collopt.plan(NETWORKS["ring"], collective, planner="ring"), 2**20)):
        nodes = tuple(replace(node, waits=() if "send" in node.name else node.waits) for node in trace.nodes)
        write_trace(replace(trace, nodes=nodes), tmp_path / f"t.{rank}.et")
    with pytest.raises(UnsupportedError):
        certify(tmp_path / "t", NETWORKS["ring"])


def test_the_command_writes_the_plan(cli: Cli, tmp_path: Path) -> None:
    """The command prints rate, bound and gap, and writes a plan that `verify` accepts."""
    collopt.plan(NETWORKS["ring"], "allgather", planner="blink").to_msccl_xml(tmp_path / "a.xml")
    network = ["--topology", "ring", "--nodes", 4, "--set", "bandwidth=24"]
    answer = cli("certify", tmp_path / "a.xml", *network, "-o", tmp_path / "plan.json")
    assert answer.status == 0
    assert "  optimality gap  40.00 % (2/5)" in answer.out
    assert cli("verify", tmp_path / "plan.json", *network).status == 0
    data = cli("certify", tmp_path / "a.xml", *network, "--json").data
    assert (data["gap"], data["planner"]) == ("2/5", "msccl")


@pytest.mark.parametrize("name", ["t", "t.0.et"])
def test_the_command_keeps_the_traces_that_it_reads(name: str, cli: Cli, tmp_path: Path) -> None:
    """A plan is not written over any of the traces, whether their prefix or one of them is named."""
    collopt.plan(NETWORKS["ring"], "allgather").export("chakra-et", tmp_path / "t", size="1M")
    before = (tmp_path / "t.1.et").read_bytes()
    network = ["--topology", "ring", "--nodes", 4, "--set", "bandwidth=24"]
    assert cli("certify", tmp_path / name, *network, "-o", tmp_path / "t.1.et").status == 2
    assert (tmp_path / "t.1.et").read_bytes() == before
