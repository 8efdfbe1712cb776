"""`diagnose`: verdicts of logs, what NCCL says of itself, and its rings and trees on a network."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import collopt
from collopt.errors import ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.runtime.health.channels import score_rings, score_trees
from collopt.runtime.health.diagnose import Diagnosis, diagnose
from collopt.runtime.health.explanations import Healthy, explain
from collopt.runtime.health.nccl_log import Hop, NcclLog, read_graph_dump, read_nccl_log
from collopt.schedules.collective import as_collective
from nccl_logs import A100, H100, MI300X, SIZES, Machine, cached_expect, devices, header, info, ring_orders, table, text

H1, H2, A1, A2 = devices(1, H100), devices(2, H100), devices(1, A100), devices(2, A100)
AG, RS, A2A, BC = "all_gather", "reduce_scatter", "alltoall", "broadcast"
PREFIXED = ["[1,0]<stdout>:" + line for line in (*header(), *H1, *table(470, 8))]
LABELED = ["0: " + line for line in (*header(), *H1, *table(470, 8))]
KUBERNETES = [f"2026-01-05T10:00:00Z worker-0: {line}" for line in (*header(), *H1, *table(470, 8))]
TINY = tuple(2**power for power in range(3, 20))
P4D = Machine(2, nics=(4, 4), used=(0, 1, 2, 3), channels=8)
CUT = text(header(), H1, table(470, 8))[:-250]
SPEEDS = [
    f"node-{host}:1:1 [0] NCCL INFO NET/IB: [{nic}] mlx5_{nic}:uverbs{nic}:1/RoCE provider=Mlx5 speed=100000 ar=0"
    for host in (1, 2)
    for nic in range(4)
]
SOCKET = Machine(network="Socket", gdr=False)
EFA, RTX_PRO, TWO = "AWS Libfabric", "NVIDIA RTX PRO 6000 Blackwell Server Edition", devices(1, H100, 2)
P4D_EFA, P5 = P4D._replace(network=EFA), Machine(nics=(32, 32), network=EFA)
THREE_EFA = Machine(nics=(3, 3), used=(0, 1, 2), channels=6, network=EFA)
ONE_LESS = Machine(nics=(8, 7), used=tuple(range(7)))
WARNING = "node-1:1:1 [0] x.cc:1 NCCL WARN NET/IB : Got async event"
OTHER_JOB = [line.replace("node-1:4000:", "node-1:9000:") for line in info()]
COMMS = [f"h:{n}:1 [0] NCCL INFO comm 0x1 rank 0 nranks {n} x commId 0x{n} - Init START" for n in (16, 8)]
SHARP = "NCCL INFO AllReduce: 4294967296 Bytes -> Algo CollNetChain proto Simple channel{Lo..Hi}={0..15}"

# What the log is, and the verdict of `diagnose`.
LOGS: dict[str, tuple[list[list[str]], str]] = {
    "h100 box": ([header(), H1, table(470, 8)], "normal"),
    "h100 box, lines of NCCL": ([header(), H1, info(Machine(1)), table(468, 8)], "normal"),
    "h100 box of an old version": ([header(None), H1, table(470, 8)], "normal"),
    "h100 box by mpirun --tag-output": ([PREFIXED], "normal"),
    "h100 box by srun --label": ([LABELED], "normal"),
    "h100 box by kubernetes": ([KUBERNETES], "normal"),
    "h100 box, allgather": ([header(AG), H1, table(361, 8, AG)], "normal"),
    "h100 box, two collectives": ([header(), H1, table(470, 8), header(AG), H1, table(361, 8, AG)], "normal"),
    "h100 box, the second is low": ([header(), H1, table(470, 8), header(AG), H1, table(160, 8, AG)], "low"),
    "h100 box at half": ([header(), H1, table(240, 8)], "low"),
    "h100 box without nvls": ([header(), H1, info(Machine(1, nvls=False)), table(362, 8)], "low"),
    "h100 box through shared memory": ([header(), H1, info(Machine(1, inner="SHM/direct")), table(12, 8)], "low"),
    "h100 box, wrong data": ([header(), H1, table(470, 8, wrong=3)], "wrong data"),
    "h100 box, slow and wrong": ([header(), H1, table(20, 8, wrong=1)], "wrong data"),
    "h100 box, in units of 1000": ([header(), H1, table(900, 8)], "impossible"),
    "h100 box, small sizes": ([header(), H1, table(470, 8, sizes=TINY)], "normal"),
    "h100 boxes, small sizes of an allgather": ([header(AG), H2, table(360, 16, AG, TINY)], "unknown"),
    "four of eight gpus": ([header(), devices(1, H100, 4), table(360, 4)], "normal"),
    "h100 boxes, allgather": ([header(AG), H2, table(362, 16, AG)], "normal"),
    "h100 boxes, lines of NCCL": ([header(AG), H2, info(), table(362, 16, AG)], "normal"),
    "h100 boxes, all-to-all": ([header(A2A), H2, table(88, 16, A2A)], "normal"),
    "h100 boxes over sockets": ([header(AG), H2, info(SOCKET), table(3.2, 16, AG)], "low"),
    "h100 boxes without gdr": ([header(AG), H2, info(Machine(gdr=False)), table(110, 16, AG)], "low"),
    "h100 boxes, a nic not listed": ([header(AG), H2, info(ONE_LESS), table(290, 16, AG)], "low"),
    "h100 boxes, nics not used": ([header(AG), H2, info(Machine(used=(0, 1, 2, 3, 4))), table(230, 16, AG)], "low"),
    "h100 boxes beyond the bound": ([header(AG), H2, table(540, 16, AG)], "impossible"),
    "h100 boxes with SHARP": ([header(), H2, [SHARP], table(800, 16)], "impossible"),
    "h100 boxes, allreduce": ([header(), H2, table(470, 16)], "normal"),
    "h100, four boxes": ([header(RS), devices(4, H100), table(365, 32, RS)], "normal"),
    "h100, four boxes at half": ([header(RS), devices(4, H100), table(185, 32, RS)], "low"),
    "a100 box": ([header(None), A1, table(231, 8)], "normal"),
    "a100 box at a third": ([header(None), A1, info(Machine(1, channels=2)), table(40, 8)], "low"),
    "a100 boxes": ([header(AG), A2, info(), table(187, 16, AG)], "normal"),
    "a100 boxes, allreduce": ([header(), A2, table(190, 16)], "normal"),
    "a100 boxes of 4 x 100 Gb/s": ([header(AG), A2, info(P4D), SPEEDS, table(45, 16, AG)], "normal"),
    "a100 boxes of 4 x 100 Gb/s, slow": ([header(AG), A2, info(P4D), SPEEDS, table(22, 16, AG)], "low"),
    "mi300x box": ([header(), devices(1, MI300X), table(312, 8)], "normal"),
    "mi300x box at half": ([header(), devices(1, MI300X), table(150, 8)], "low"),
    "h100 box, broadcast": ([header(BC), H1, table(345, 8, BC, root=0)], "normal"),
    "h100 box, slow broadcast of rank 3": ([header(BC), H1, table(20, 8, BC, root=3)], "low"),
    "h100 boxes, reduce": ([header("reduce"), H2, table(350, 16, "reduce", root=0)], "normal"),
    "p4d with all efa": ([header(), A2, info(P4D_EFA), table(78, 16)], "normal"),
    "p4d with three of four efa": ([header(AG), A2, info(THREE_EFA), table(31, 16, AG)], "low"),
    "p5": ([header(), H2, info(P5), table(480, 16)], "normal"),
    "h800 boxes": ([header(AG), devices(2, "NVIDIA H800"), table(155, 16, AG)], "normal"),
    "l40s box": ([header(), devices(1, "NVIDIA L40S"), table(22, 8)], "normal"),
    "rtx pro 6000 box": ([header(), devices(1, RTX_PRO), table(43, 8)], "normal"),
    "mi300a node": ([header(), devices(1, "AMD Instinct MI300A", 4), table(260, 4)], "normal"),
    "two dgx sparks": ([header(), devices(2, "NVIDIA GB10", 1), table(22, 2)], "normal"),
    "a host without a name": ([header(), [line.replace("node-1", "") for line in H1], table(470, 8)], "normal"),
    "pasted without #": ([[line.replace("#", "") for line in (*header(), *H1, *table(470, 8))]], "normal"),
    "a run with a warning": ([header(), H1, [WARNING], table(470, 8)], "normal"),
    "rings without a table": ([H2, info()], "unknown"),
    "cut short": ([CUT.splitlines()], "normal"),
}  # fmt: skip

REFUSED: dict[str, tuple[str, type[ColloptError], str]] = {
    "another program": ("epoch 1 loss 0.3\nepoch 2 loss 0.2\n", FileFormatError, "neither a table of nccl-tests nor"),
    "nothing": ("", FileFormatError, "neither"),
    "one rank": (text(header(), devices(1, H100, 1), table(100, 2)), UnsupportedError, "MPI=1"),
    "two jobs": (
        text(header(AG), H2, info(), OTHER_JOB, table(360, 16, AG)),
        FileFormatError,
        "rings of two jobs",
    ),
    "communicators of two sizes": (
        text(header(AG), H2, COMMS, table(360, 16, AG)),
        FileFormatError,
        "communicators of 16, 8 ranks",
    ),
    "gpus without a box": (text(header(), devices(1, "NVIDIA A10G"), table(20, 8)), TopologyError, "'NVIDIA A10G'"),
    "runs beside each other": (
        text(header(), TWO, [line.replace("node-1", "node-2") for line in TWO], table(9, 2)),
        FileFormatError,
        "lists one rank 2 times",
    ),
    "a root that is no rank": (text(header(BC), H1, table(100, 8, BC, root=8)), UnsupportedError, "root 8"),
    "uneven hosts": (text(header(), [*H2[:-3]], table(300, 13)), TopologyError, "[5, 8] GPUs"),
    "two gpus": (text(header(), [*H1[:5], *A1[5:]], table(100, 8)), TopologyError, "A100"),
    "sendrecv": (text(header("sendrecv"), H1, table(100, 8)), UnsupportedError, "sendrecv"),
    "a list of devices that is not complete": (text(header(), H1[:-1], table(470, 8)), UnsupportedError, "on 7 ranks"),
    "gh200 is no h200": (text(header(), devices(8, "NVIDIA GH200 480GB", 1), table(40, 8)), TopologyError, "GH200"),
    "nothing says what": (text(header(None), H1, table(361, 8, AG)), UnsupportedError, "--collective"),
    "a row cut short in the middle": (
        text(header(), H1, [line[: 60 if place == 5 else None] for place, line in enumerate(table(470, 8))]),
        FileFormatError,
        "is it cut short?",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def kept_expectations() -> Iterator[None]:
    """Compute what to expect of a network once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collopt.runtime.health.diagnose.expect", cached_expect)
        yield


def diagnosed(folder: Path, *parts: list[str], **options: object) -> Diagnosis:
    """Diagnose a log."""
    path = folder / "log.txt"
    path.write_text(text(*parts))
    return diagnose(path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LOGS)
def test_verdicts(name: str, tmp_path: Path) -> None:
    """Each of the logs gets its verdict, and a reason for it."""
    parts, verdict = LOGS[name]
    result = diagnosed(tmp_path, *parts)
    assert result.verdict == verdict, [run.reason for run in result.runs]
    assert all(run.reason for run in result.runs)
    assert bool(result.explanations) == (verdict == "low")


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, tmp_path: Path) -> None:
    """Logs that cannot be used end in one error that says why."""
    content, kind, words = REFUSED[name]
    path = tmp_path / "log.txt"
    path.write_text(content)
    with pytest.raises(kind) as error:
        diagnose(path)
    assert words in str(error.value)
    assert "log.txt" in str(error.value)


def test_a_stated_collective_does_not_replace_that_of_the_log(tmp_path: Path) -> None:
    """It is for tables without a name alone."""
    for program, stated, expected in ((AG, "reduce_scatter", "allgather"), (None, "reduce_scatter", "reduce_scatter")):
        result = diagnosed(tmp_path, header(program), H1, table(361, 8, AG), collective=stated)
        assert result.runs[0].collective.name == expected


def test_nvls_that_the_environment_switches_off_is_the_explanation(tmp_path: Path) -> None:
    """NCCL prints the setting, and nothing about NVLS then."""
    line = "node-1:4000:1 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0."
    result = diagnosed(tmp_path, header(), H1, [line], table(365, 8))
    assert [(entry.faults, entry.confirmed) for entry in result.explanations] == [
        (("no NVLink SHARP (NVLS): rings instead",), True)
    ]
    assert not result.next_run


def test_below_the_healthy_range_is_said_even_if_normal(tmp_path: Path) -> None:
    """Equal machines differ by more than the slowest that was measured."""
    result = diagnosed(tmp_path, header(), H1, table(420, 8))
    assert result.verdict == "normal"
    assert "below the 473 to 477 GB/s of healthy machines" in result.runs[0].reason


def test_a_network_that_does_not_fit(tmp_path: Path) -> None:
    """A network of other ranks is refused with both numbers."""
    with pytest.raises(UnsupportedError, match="16 ranks, and dgx-h100 has 8; describe"):
        diagnosed(tmp_path, header(AG), H2, table(360, 16, AG), topology="dgx-h100")


def test_a_bandwidth_above_the_bound_is_said_as_it_is(tmp_path: Path) -> None:
    """It is never clipped, and the links are named that would have to carry more."""
    (run,) = diagnosed(tmp_path, header(AG), H2, table(540, 16, AG)).runs
    assert run.sizes[-1].bound == 500
    assert run.sizes[-1].measured > 535
    assert "1.08 times what the network as described can carry" in run.reason
    assert "box0/nvswitch to box0/gpu0" in run.reason
    # Rounding alone is no contradiction: the bound itself is possible.
    assert diagnosed(tmp_path, header(AG), H2, table(500, 16, AG, latency=0.0)).verdict != "impossible"


def test_sharp_in_the_fabric_is_named(tmp_path: Path) -> None:
    """Allreduces beyond the bound of a fabric that does not add are explained by the algorithm of the log."""
    assert "SHARP" in diagnosed(tmp_path, *LOGS["h100 boxes with SHARP"][0]).runs[0].reason


def test_nics_of_the_log_are_those_of_the_network(tmp_path: Path) -> None:
    """Hosts that agree on four NICs of 100 Gb/s are taken to be built so, and it is said."""
    result = diagnosed(tmp_path, *LOGS["a100 boxes of 4 x 100 Gb/s"][0])
    assert any("4 NICs of 12.50 GB/s per host" in note for note in result.notes)
    assert result.topology.link("box0/nic3", "ib").bandwidth == Fraction(25, 2)


def test_faults_of_many_boxes_are_one_line_each() -> None:
    """Large networks are looked at by two of their boxes, whose faults stand for those of all."""
    network = collopt.topology("dgx-h100", boxes=9)
    healthy = Healthy(as_collective("allgather"), 380.0, 0.02, 399.0, 190.0)
    words = {entry.faults: entry.members for entry in explain(network, [healthy], NcclLog())}
    assert words["NIC box0/nic0, its cable or slot at 1/2 of its rate",] == 72
    assert len([entry for entry in words if "NIC" in entry[0]]) == 1


def test_what_the_log_refutes_is_no_explanation(tmp_path: Path) -> None:
    """GPUDirect, P2P and NICs that the log shows in use are left out; without its lines they may be it."""
    lines = [header(AG), H2, info(), table(140, 16, AG)]
    with_lines, without = diagnosed(tmp_path, *lines), diagnosed(tmp_path, *lines[:2], lines[3])
    words = [" ".join(entry.faults) for entry in with_lines.explanations]
    assert not any("GPUDirect" in text or "lost" in text for text in words)
    assert any("GPUDirect" in " ".join(entry.faults) for entry in without.explanations)
    assert "NCCL_DEBUG=INFO" in without.next_run


def test_the_next_run_finds_the_place(tmp_path: Path) -> None:
    """Kinds of faults need different runs; what the log says needs none."""
    for busbw, words in ((94, "each machine alone"), (333, "NCCL_IB_HCA")):
        twin = tmp_path / "twin.txt"
        twin.write_text(text(header(AG), H2, table(380, 16, AG)))
        lines = [] if busbw > 300 else info()
        assert words in diagnosed(tmp_path, header(AG), H2, lines, table(busbw, 16, AG), reference=twin).next_run
    nothing = diagnosed(tmp_path, header(AG), H2, info(), table(40, 16, AG))
    assert (nothing.verdict, nothing.explanations) == ("low", ())
    assert "each machine alone" in nothing.next_run
    assert diagnosed(tmp_path, *LOGS["h100 boxes over sockets"][0]).next_run == ""


def test_efa_that_nccl_does_not_list_is_named(tmp_path: Path) -> None:
    """A p4d has four, and three rings of the plugin's NICs are what NCCL made of the others."""
    result = diagnosed(tmp_path, *LOGS["p4d with three of four efa"][0])
    assert result.explanations[0].faults == ("1 of 4 NICs not in NCCL's list on node-1..2",)
    assert any("4 NICs of 12.50 GB/s per host, of EFA" in note for note in result.notes)
    assert diagnosed(tmp_path, *LOGS["p5"][0]).runs[0].shown[-1].nccl < 465


def test_rows_of_other_roots_are_other_runs(tmp_path: Path) -> None:
    """nccl-tests runs all roots with -r -1; the first is diagnosed, with its own bound."""
    rows = [*table(345, 8, BC, root=2), *table(3, 8, BC, root=5)[2:]]
    run = diagnosed(tmp_path, header(BC), H1, rows).runs[0]
    assert (run.root, run.verdict) == (2, "normal")
    assert run.expectation.bound == collopt.bound("dgx-h100", "broadcast", root=2)


def test_nics_that_no_channel_uses_need_no_list(tmp_path: Path) -> None:
    """Where every channel names its NIC, the others are idle."""
    lines = [line for line in info(THREE_EFA) if "NET/OFI" not in line]
    result = diagnosed(tmp_path, header(AG), A2, lines, table(31, 16, AG))
    assert result.explanations[0].faults == ("1 of 4 NICs that no channel uses",)
    assert result.explanations[0].confirmed
    few = [line for line in lines if "Channel 05" not in line]
    assert not any(
        entry.confirmed for entry in diagnosed(tmp_path, header(AG), A2, few, table(31, 16, AG)).explanations
    )


def test_settings_of_the_command_explain_a_run(tmp_path: Path) -> None:
    """Those above the header of the second run are its own."""
    command = ["$ mpirun -x NCCL_ALGO=Ring \\", "    ./build/all_reduce_perf -b 1M -e 8G -f 4"]
    result = diagnosed(tmp_path, header(), H1, table(470, 8), command, header(), H1, table(362, 8))
    assert [run.verdict for run in result.runs] == ["normal", "low"]
    assert "the run had NCCL_ALGO=Ring" in result.notes
    assert diagnosed(tmp_path, command, header(), H1, table(362, 8)).explanations[0].confirmed
    log = read_nccl_log(
        "h:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n-x NCCL_IB_HCA=mlx5_0:1,mlx5_1", "x"
    )
    assert log.settings == {"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5_0:1,mlx5_1"}


def test_a_fall_of_the_bandwidth_is_said(tmp_path: Path) -> None:
    """A larger size with less than half the bandwidth; healthy curves rise."""
    rows = [*table(300, 16, AG, SIZES[:4]), *table(20, 16, AG, SIZES[4:])[2:]]
    (note,) = (note for note in diagnosed(tmp_path, header(AG), H2, rows).notes if "falls" in note)
    assert f"at {SIZES[3]} bytes to " in note
    assert not any("falls" in note for note in diagnosed(tmp_path, header(), H1, table(470, 8)).notes)


def test_columns_tell_the_collective(tmp_path: Path) -> None:
    """On two ranks, allreduce, broadcast and reduce have one factor, and other columns."""
    for program, root in (("all_reduce", -1), ("broadcast", 0), ("reduce", 1)):
        result = diagnosed(tmp_path, header(None), devices(1, H100, 2), table(320, 2, program, root=root))
        assert result.runs[0].collective.nccl_name == program.replace("_", "")


def test_times_of_nothing_are_no_network(tmp_path: Path) -> None:
    """Thousands of times the bound are no wrong description."""
    result = diagnosed(tmp_path, header(), H1, table(5e6, 8, latency=0))
    assert (result.verdict, "no transfer" in result.runs[0].reason) == ("impossible", True)


def test_rings_that_old_versions_cut_are_left_out() -> None:
    """NCCL 2.5 to 2.27 print 20 ranks of a ring and no dots; their neighbors complete it."""
    ranks = range(24)
    cut = "h:1:2 [0] NCCL INFO Channel 00/01 : " + " ".join(f"{rank:3d}" for rank in ranks[:20])
    comm = "h:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 24 commId 0x5 - Init START"
    ring = [f"h:1:2 [0] NCCL INFO Ring 00 : {(rank - 1) % 24} -> {rank} -> {(rank + 1) % 24}" for rank in ranks]
    assert read_nccl_log(text([cut, comm]), "log").rings == {}
    assert read_nccl_log(text([cut, comm, *ring]), "log").rings == {0: tuple(ranks)}
    assert len(read_nccl_log(text([cut]), "log").rings[0]) == 20


def test_rings_of_old_versions_are_read() -> None:
    """NCCL 2.4 to 2.6 say Ring where later ones say Channel."""
    log = read_nccl_log("h:1:2 [7] NCCL INFO Ring 00 : 15 -> 0 [send] via NET/Socket/0\n", "log.txt")
    assert log.hops == [Hop(0, 15, 0, "NET/Socket", "send", 0, None, False)]


def test_a_reference_replaces_public_measurements(tmp_path: Path) -> None:
    """A run beside a healthy twin is low where it would be normal beside others."""
    twin = tmp_path / "twin.txt"
    twin.write_text(text(header(AG), H2, table(385, 16, AG)))
    lines = header(AG), H2, table(337, 16, AG)
    assert diagnosed(tmp_path, *lines).verdict == "normal"
    result = diagnosed(tmp_path, *lines, reference=twin)
    assert result.verdict == "low"
    assert result.explanations[0].faults == ("NIC box0/nic0 lost",)
    assert result.runs[0].compared == "the reference log"


def test_the_table_has_all_sizes(tmp_path: Path) -> None:
    """One row for each run and size."""
    frame = diagnosed(tmp_path, *LOGS["h100 box, two collectives"][0]).to_frame()
    assert list(frame.collective.unique()) == ["allreduce", "allgather"]
    assert len(frame) == 2 * len(SIZES)
    assert (frame.measured < frame.bound).all()


def test_lines_of_nccl_are_read() -> None:
    """Versions, NICs, rings, transports and choices; also in the forms of old versions and other launchers."""
    log = read_nccl_log(text(H2, info(), [f"[0] node-1:4000:1 [0] {SHARP}"]), "log.txt")
    assert (log.version, log.network, log.nvls, log.channels) == ("2.21.5", "IB", True, 16)
    assert log.nics["node-2"][3] == "mlx5_3:1/IB"
    assert [*log.rings.values()] == [tuple(ring) for ring in ring_orders(Machine())]
    assert {hop.via for hop in log.hops_over(network=False)} == {"P2P/CUMEM"}
    assert all(hop.gdr for hop in log.hops_over(network=True))
    assert log.choices[0][1:4] == (2**32, "CollNetChain", "Simple")
    old = read_nccl_log(
        "h:1:2 [0] NCCL INFO Channel 03 : 0[14000] -> 2[41000] via P2P/IPC/read\n"
        "h:1:2 [0] NCCL INFO Channel 00/02 :    0   1   2   3\n"
        "h:1:2 [0] NCCL INFO Channel 01/02 :    0   1   2 ...\n"
        "h:1:2 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/2(6)/GDRDMA/Shared\n"
        "h:1:2 [0] NCCL INFO Channel 00/1 : 7[7] -> 8[0] [send] via NET/IB/5\n",
        "log.txt",
    )
    assert old.hops == [
        Hop(3, 0, 2, "P2P/IPC/read", "", None, None, False),
        Hop(0, 7, 8, "NET/AWS Libfabric", "send", 2, 6, True),
    ]
    assert old.rings == {0: (0, 1, 2, 3)}


@pytest.mark.parametrize("word", ["Rank 1 ", "NET/IB : Using ", "h-", "AllReduce"])
def test_long_lines_of_other_programs_take_no_time(word: str) -> None:
    """Time is linear: with squares, this would take a day."""
    line = word * 1_000_000
    assert not read_nccl_log(line, "log").devices


def test_trees_of_all_ranks_are_read() -> None:
    """A tree is there once all ranks have said their parents."""
    lines = [f"h:1:2 [0] NCCL INFO comm 0x1 rank {rank} nranks 3 commId 0x5 - Init START" for rank in range(3)]
    lines += [
        "h:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
        "h:1:2 [0] NCCL INFO Trees [0] 2/-1/-1->1->0 [1] 0/2/-1->1->-1",
        "h:1:2 [0] NCCL INFO Trees [0] -1/-1/-1->2->1",
    ]
    assert read_nccl_log(text(lines), "log.txt").trees == {0: (-1, 0, 1)}


def test_rings_are_scored_on_their_nics() -> None:
    """The busiest NIC limits rings, and NICs that none uses are named."""
    network = collopt.topology("dgx-h100", boxes=2)
    limit = collopt.bound(network, "allgather")
    even, narrow = (
        read_nccl_log(text(info(machine)), "log")
        for machine in (Machine(channels=8), Machine(used=(0, 1, 2, 3, 4), channels=10))
    )
    score = score_rings(even.rings, even.hops, limit)
    # Each of 8 NICs carries a ring, 15/16 of its eighth of all data: 8 x 50 x 16/15 GB/s.
    assert score.algbw == Fraction(8 * 50 * 16, 15)
    assert score.share == score.algbw / limit.algbw == Fraction(4, 5)
    assert score.idle_nics == ()
    fewer = score_rings(narrow.rings, narrow.hops, limit)
    assert fewer.algbw == Fraction(5 * 50 * 16, 15)
    assert fewer.idle_nics == tuple(f"box{box}/nic{nic}" for box in range(2) for nic in (5, 6, 7))
    assert "6 of 16 NICs are not used: box0/nic5..7, box1/nic5..7" in str(fewer)


def test_a_nic_far_from_its_gpu_is_reached_over_the_nvswitch() -> None:
    """A ring through one NIC of another GPU loads that NIC, and the GPU near it."""
    network = collopt.topology("dgx-h100", boxes=2)
    ring = {0: tuple(range(16))}
    hops = [
        Hop(0, tail, head, "NET/IB", end, 3, None, True)
        for tail, head in ((7, 8), (15, 0))
        for end in ("send", "receive")
    ]
    score = score_rings(ring, hops, collopt.bound(network, "allgather"))
    assert score.algbw == Fraction(50 * 16, 15)
    assert "box0/nic3 -> ib" in score.busiest


@pytest.mark.parametrize("ring", [(0, 1, 2, 3, 4, 5, 6), (0, 1, 2, 3, 4, 5, 6, 6), tuple(range(9))])
def test_rings_that_miss_a_rank_are_refused(ring: tuple[int, ...]) -> None:
    """A ring has to pass each rank once."""
    with pytest.raises(UnsupportedError, match="channel 0 passes"):
        score_rings({0: ring}, [], collopt.bound(collopt.topology("dgx-h100"), "allgather"))


@pytest.mark.parametrize("parents", [(-1, 0, 1, 2, 3, 4, 5), (-1, 0, 1, 2, 3, 4, 5, -1), (-1, 2, 1, 0, 0, 0, 0, 0)])
def test_trees_that_do_not_span_are_refused(parents: tuple[int, ...]) -> None:
    """A tree joins all ranks, without circles."""
    with pytest.raises(UnsupportedError, match="channel 0 does not join"):
        score_trees({0: parents}, [], collopt.bound(collopt.topology("dgx-a100"), "allreduce"))


def test_a_chain_as_a_tree_is_scored() -> None:
    """Each link of a chain carries all data once in each direction."""
    limit = collopt.bound(collopt.topology("dgx-a100"), "allreduce")
    score = score_trees({0: (-1, *range(7))}, [], limit)
    assert score.algbw == 150  # A GPU inside the chain receives from both sides
    assert score.kind == "tree"


def graph_dump(channels: list[list[str]], nets: str = '<net dev="0x2"/>') -> str:
    """File of NCCL_GRAPH_DUMP_FILE."""
    gpus = ["".join(f'<gpu dev="{gpu}" rank="0"/>' for gpu in channel) for channel in channels]
    body = "".join(f"<channel>{nets}{inside}{nets}</channel>" for inside in gpus)
    return f'<graphs version="1"><graph id="0" pattern="4" nchannels="{len(channels)}">{body}</graph></graphs>'


def test_dumps_of_the_search_are_rings_of_all_boxes(tmp_path: Path) -> None:
    """The chain of a box is that of all, and a log without lines of NCCL gets its rings from there."""
    dump = graph_dump([[f"0x{gpu:x}" for gpu in (3, 0, 1, 2, 4, 5, 6, 7)]])
    rings, hops = read_graph_dump(dump, "graph.xml", 2, 8)
    assert rings == {0: (3, 0, 1, 2, 4, 5, 6, 7, 11, 8, 9, 10, 12, 13, 14, 15)}
    assert {(hop.sender, hop.receiver, hop.nic) for hop in hops} == {(7, 11, 2), (15, 3, 2)}
    (tmp_path / "graph.xml").write_text(dump)
    result = diagnosed(tmp_path, header(AG), H2, table(48, 16, AG), graph=tmp_path / "graph.xml")
    assert "14 of 16 NICs are not used" in str(result.runs[0].channels[0])


@pytest.mark.parametrize(
    "content",
    ["<system/>", "<graphs", "<!DOCTYPE a><graphs/>", graph_dump([["0", "1"]]), graph_dump([[*"0123456", "x"]])],
)
def test_dumps_that_are_none_are_refused(content: str) -> None:
    """Other XML, other boxes and documents with entities are refused by name."""
    with pytest.raises(FileFormatError, match=r"graph\.xml"):
        read_graph_dump(content, "graph.xml", 2, 8)
