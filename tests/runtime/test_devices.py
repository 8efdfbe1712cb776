"""GPUs and NICs of a machine by their names and numbers: from dumps, through plan files, to what runtimes are told.

What is written is read as NCCL 2.30.7 and MSCCL++ 0.9.0 read it, and compared with the dump by addresses on the bus.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import defusedxml.ElementTree
import pytest

import collopt
from cli_calls import Cli
from collopt.errors import UnsupportedError
from collopt.runtime.lowering.devices import environment_script
from collopt.topologies import Topology, compose, mi250, read_box, write_topology
from collopt.topologies.network.topology_json import topology_to_json
from nccl_texts import cpu, gpu, nic, pci, switched, system, tag
from sample_files import sample


def card(bus: int, name: str, dev: int) -> str:
    """Write a network card."""
    net = tag("net", name=name, dev=dev, speed=200000, port=1, guid=f"0x{dev + 1:x}")
    return nic(f"0000:{bus:02x}:00.0", net)


def bridge(number: int, *inside: str) -> str:
    """Write a PCIe switch."""
    return pci(f"0000:{0xA0 + number:02x}:00.0", *inside)


def reversed_text() -> str:
    """Four GPUs whose NICs count down."""
    below = [bridge(n, gpu(n, switched()), card(0x40 + n, f"mlx5_{3 - n}", 3 - n)) for n in range(4)]
    return system(cpu(*below[:2]), cpu(*below[2:], numaid=1))


def shared_text() -> str:
    """Two GPUs and two NICs below each of four PCIe switches; names, numbers and addresses in different orders."""
    devs, places = [6, 2, 1, 7, 0, 4, 3, 5], [2, 3, 0, 1, 6, 7, 4, 5]
    pairs = [gpu(places[n], switched(), sm=80) + card(0x90 - n, f"roce{10 - n}", devs[n]) for n in range(8)]
    return system(cpu(*(bridge(n, *pairs[2 * n : 2 * n + 2]) for n in range(4))))


def rotated_text() -> str:
    """Four GPUs in the reverse order of NVML, with the NIC of the next one."""
    gpus = [gpu(3 - n, switched(), busid=f"0000:{0xC0 - n:02x}:00.0") for n in range(4)]
    return system(cpu(*(bridge(n, gpus[n], card(0x10 + n, f"mlx5_{(n + 1) % 4}", (n + 1) % 4)) for n in range(4))))


TEXTS = {"reversed": reversed_text, "shared": shared_text, "rotated": rotated_text}


class Port(NamedTuple):
    """A NIC of a dump."""

    dev: int
    name: str
    bus: str


class Machine(NamedTuple):
    """What a dump says, read apart from the importer: NICs, and the addresses of GPUs by NVML's numbers."""

    ports: list[Port]
    gpus: dict[int, str]

    @classmethod
    def of(cls, text: str) -> Machine:
        """Read a dump."""
        slots = list(defusedxml.ElementTree.fromstring(text).iter("pci"))
        nets = [(slot.attrib["busid"], net) for slot in slots for net in slot.findall("nic/net")]
        ports = [Port(int(net.attrib["dev"]), net.attrib["name"], bus) for bus, net in nets]
        cards = [(slot.attrib["busid"], card) for slot in slots for card in slot.findall("gpu")]
        return cls(ports, {int(card.attrib["dev"]): bus for bus, card in cards})

    def counted_by_nccl(self, environment: dict[str, str]) -> list[str]:
        """Addresses of NICs by the numbers that NCCL gives them in an environment."""
        listed = environment["NCCL_IB_HCA"]
        assert listed.startswith("=")  # whole names
        names = listed[1:].split(",")
        by_address = environment["NCCL_IB_DEVICE_PCI_ORDER"] == "1"
        kept = [port for port in self.ports if port.name in names]
        assert len(kept) == len(names)
        return [port.bus for port in sorted(kept, key=lambda port: port.bus if by_address else f"{port.dev:04}")]


def in_shell(script: Path, box: int) -> dict[str, str]:
    """Variables of a shell that has read a script."""
    done = subprocess.run(
        ["sh", "-c", '. "$0" && env', str(script)], capture_output=True, env={"COLLOPT_BOX": str(box)}, check=True
    )
    return dict(line.split("=", 1) for line in done.stdout.decode().splitlines())


def planned_nics(plan: dict[str, Any]) -> dict[tuple[int, int], set[tuple[str, str]]]:
    """Addresses of the NICs on all paths between boxes of a plan file, by sender and receiver."""
    topology = plan["topology"]
    names = topology["compute"] + [switch["name"] for switch in topology["switches"]]
    ways: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for path in plan["schedule"]["paths"]:
        nodes = [names[number] for number in path]
        if nodes[0].split("/")[0] != nodes[-1].split("/")[0]:
            boxes = nodes[0].split("/")[0], nodes[-1].split("/")[0]
            own = [next(node for node in nodes if re.fullmatch(f"{box}/nic[0-9]+", node)) for box in boxes]
            buses = [topology["devices"][node.split("/")[1]]["bus"] for node in own]
            ways.setdefault((path[0], path[-1]), set()).add((buses[0], buses[1]))
    return ways


def imported(text: str, folder: Path, **options: Any) -> Topology:
    """Two boxes of a dump."""
    (folder / "topo.xml").write_text(text)
    return collopt.read_topology(folder / "topo.xml", boxes=2, fabric="rail", **options)


def saved(topology: Topology, planner: str, folder: Path, **options: Any) -> tuple[collopt.Plan, dict[str, Any]]:
    """A plan that was a file, and what the file holds."""
    collopt.plan(topology, "allgather", planner=planner, **options).save(folder / "plan.json")
    return collopt.load_plan(folder / "plan.json"), json.loads((folder / "plan.json").read_text())


def check_graph(text: str, folder: Path, topology: Topology) -> None:
    """Rings of a graph file enter and leave each box by NICs of the plan, next to the GPUs of its ranks."""
    plan, stored = saved(topology, "ring", folder)
    machine, ways = Machine.of(text), planned_nics(stored)
    used: set[tuple[int, str, str]] = set()
    for box in range(2):
        plan.export("nccl-graph-xml", folder / "graph.xml", box=box)
        environment = in_shell(folder / "graph.xml.env", 0)
        nics = machine.counted_by_nccl(environment)
        ranks = [rank for rank, name in enumerate(stored["topology"]["compute"]) if name.startswith(f"box{box}/")]
        visible = [machine.gpus[int(number)] for number in environment["CUDA_VISIBLE_DEVICES"].split(",")]
        rank_of = dict(zip(visible, ranks, strict=True))
        for channel in defusedxml.ElementTree.parse(folder / "graph.xml").iter("channel"):
            numbers = [int(each.attrib["dev"], 16) for each in channel]
            order = [rank_of[machine.gpus[number]] for number in numbers[1:-1]]
            assert sorted(order) == ranks
            assert any(nics[numbers[0]] == into for way, both in ways.items() for _, into in both if way[1] == order[0])
            assert any(nics[numbers[-1]] == out for way, both in ways.items() for out, _ in both if way[0] == order[-1])
            used |= {(box, "into", nics[numbers[0]]), (box, "out", nics[numbers[-1]])}
    planned = {
        (int(stored["topology"]["compute"][way[end]][3]), word, pair[end])
        for way, pairs in ways.items()
        for pair in pairs
        for end, word in enumerate(("out", "into"))
    }
    assert used == planned  # no NIC of the plan is idle, and none beside it is used


def check_mscclpp(text: str, folder: Path, topology: Topology, broken: str = "") -> None:
    """Each rank with port channels has a NIC of the plan, and no rank the broken one, whose address is given."""
    plan, stored = saved(topology, "auto", folder, in_network=False)
    plan.export("mscclpp-json", folder / "plan-mscclpp.json")
    machine, ways = Machine.of(text), planned_nics(stored)
    address = {port.name: port.bus for port in machine.ports}
    gpus = json.loads((folder / "plan-mscclpp.json").read_text())["gpus"]
    size = len(gpus) // 2
    for gpu_of_plan in gpus:
        rank = gpu_of_plan["id"]
        environment = in_shell(folder / "plan-mscclpp.json.env", rank // size)
        hcas = environment["MSCCLPP_HCA_DEVICES"].split(",")
        mine = address[hcas[rank % size]]
        assert rank // size or mine != broken
        visible = environment["CUDA_VISIBLE_DEVICES"].split(",")
        assert machine.gpus[int(visible[rank % size])] == stored["topology"]["devices"][f"gpu{rank % size}"]["bus"]
        if any(row["channel_type"] == "port" and row["connected_to"] for row in gpu_of_plan["channels"]):
            choices = {out for way, pairs in ways.items() for out, _ in pairs if way[0] == rank}
            choices |= {into for way, pairs in ways.items() for _, into in pairs if way[1] == rank}
            assert mine in choices
        else:
            assert not [way for way in ways if rank in way]


@pytest.mark.parametrize("name", TEXTS)
def test_files_use_the_nics_that_the_plan_takes(name: str, tmp_path: Path) -> None:
    """Graph file, MSCCL++ plan and their environments, for dumps with NICs in other orders than GPUs."""
    text = TEXTS[name]()
    topology = imported(text, tmp_path)
    check_graph(text, tmp_path, topology)
    check_mscclpp(text, tmp_path, topology)


@pytest.mark.parametrize("name", TEXTS)
def test_files_leave_out_a_broken_nic(name: str, tmp_path: Path) -> None:
    """NCCL's numbers are those that are left, and MSCCL++ opens no broken NIC even where a rank sends nothing."""
    text = TEXTS[name]()
    topology = imported(text, tmp_path)
    broken = topology.device("box0/nic3").bus
    without = topology.without_node("box0/nic3")
    check_graph(text, tmp_path, without)
    check_mscclpp(text, tmp_path, without, broken)


@pytest.mark.parametrize("name", ["nccl-topo-dump_h100-8gpu-8nic-vm.xml", "rccl-topo_mi250x-16gcd-8nic.xml"])
def test_real_dumps_keep_their_nics(name: str, tmp_path: Path) -> None:
    """NIC 7 of the first is that of GPU 0; the second names NIC 6 ``mlx5_7``, and has more GPUs than transports."""
    text = sample(name).read_text()
    topology = imported(text, tmp_path)
    check_graph(text, tmp_path, topology)
    if topology.num_ranks == 16:
        check_mscclpp(text, tmp_path, topology)
        assert topology.device("box1/nic7")[1:] == ("mlx5_7", 7, "0000:a3:00.0")
        assert topology.out_links("box1/nic7")[0].head == "box1/gpu0"
    else:
        assert topology.device("box0/nic6").name == "mlx5_7"


def test_devices_stay_through_changes_and_files(tmp_path: Path) -> None:
    """Failures, other orders of ranks, other bandwidths and files keep what is stated of the nodes that are left."""
    topology = imported(shared_text(), tmp_path)
    changed = topology.without_node("box0/nic3").derate("box0/gpu2", "box0/nic2", "1/2").restrict([3, 1, 9, 8])
    write_topology(changed, tmp_path / "changed.json")
    again = collopt.read_topology(tmp_path / "changed.json")
    assert again.devices == changed.devices
    for node in again.nodes:
        assert again.device(node)[1:] == topology.device(node)[1:]
    assert [again.device(rank).number for rank in again.compute_nodes] == [3, 1, 1, 0]
    # Unequal boxes name their own devices.
    boxes = [read_box(tmp_path / "topo.xml")] * 2
    (tmp_path / "other.xml").write_text(reversed_text())
    mixed = compose([*boxes, read_box(tmp_path / "other.xml")])
    assert mixed.device("box2/nic3").bus == "0000:40:00.0"
    assert mixed.device("box1/nic7").name == topology.device("box1/nic7").name
    assert not mixed.device("box9/nic0").stated
    # Plan files of networks that nobody imported are as before.
    assert "devices" not in topology_to_json(mi250(2))


def test_numbers_that_nobody_knows_are_not_guessed(tmp_path: Path) -> None:
    """NICs of a cloud's file have no number in NCCL; MSCCL++ has transports for eight GPUs of a box."""
    nics = [pci(f"0000:{0x20 + n:02x}:00.0", kind="0x020700") for n in range(2)]
    gpus = [pci(f"0000:{9 - n:02x}:00.0", kind="0x030200") for n in range(8)]
    (tmp_path / "cloud.xml").write_text(system(cpu(*gpus, *nics)))
    topology = collopt.read_topology(tmp_path / "cloud.xml", gpu="a100", boxes=2, fabric="full", nic_bandwidth=25)
    # NVML counts by address, the file does not.
    assert [topology.device(gpu).number for gpu in topology.compute_nodes[:8]] == [7, 6, 5, 4, 3, 2, 1, 0]
    plan = collopt.plan(topology, "allgather", planner="ring")
    with pytest.raises(UnsupportedError, match=r"NCCL's number of box0/nic. is not known; give those"):
        plan.export("nccl-graph-xml", tmp_path / "graph.xml")
    plan.export("nccl-graph-xml", tmp_path / "graph.xml", nics=[0] * 8)
    big = collopt.plan(mi250(2), "allgather", planner="ring")
    with pytest.raises(UnsupportedError, match="16 ranks in a box, and MSCCL\\+\\+ InfiniBand transports for 8"):
        big.export("mscclpp-json", tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_the_commands_write_and_name_the_environment(cli: Cli, tmp_path: Path) -> None:
    """Beside the file of `plan` and `export`, and in words where the names are not known."""
    (tmp_path / "topo.xml").write_text(rotated_text())
    words = ("--fabric", "rail", "--boxes", "2", "allgather", "--no-in-network")
    answer = cli("plan", tmp_path / "topo.xml", *words, "-o", tmp_path / "p.json", "--mscclpp", tmp_path / "m.json")
    assert answer.status == 0
    assert f"load {tmp_path / 'm.json.env'} in the shell" in answer.err
    assert cli("export", tmp_path / "p.json", "--format", "mscclpp-json", "-o", tmp_path / "n.json").status == 0
    assert (tmp_path / "n.json.env").read_bytes() == (tmp_path / "m.json.env").read_bytes()
    assert in_shell(tmp_path / "n.json.env", 1)["MSCCLPP_HCA_DEVICES"] == "mlx5_0,mlx5_3,mlx5_2,mlx5_1"
    answer = cli("plan", "dgx1-v100", "--boxes", "2", "allgather", "--mscclpp", tmp_path / "v.json")
    assert "the plan nic0, nic0, nic1, nic1, nic2, nic2, nic3, nic3 for the ranks of a box" in answer.err
    assert not (tmp_path / "v.json.env").exists()


def test_a_shell_that_does_not_say_its_box_gets_no_environment(tmp_path: Path) -> None:
    """Where boxes differ, also for the number of a box that there is not; values are quoted."""
    (tmp_path / "a.env").write_text(environment_script([{"A": "x"}, {"A": "$(touch b)"}, {"A": "x"}], "Of a test"))
    assert [in_shell(tmp_path / "a.env", box)["A"] for box in range(3)] == ["x", "$(touch b)", "x"]
    for environment in ({}, {"COLLOPT_BOX": "3"}):
        words = ["sh", "-c", '. "$0" && echo loaded', str(tmp_path / "a.env")]
        done = subprocess.run(words, capture_output=True, env=environment, cwd=tmp_path, check=False)
        assert done.stdout == b""
        assert b"COLLOPT_BOX" in done.stderr
    assert not (tmp_path / "b").exists()
