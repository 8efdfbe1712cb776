"""Topology files for NCCL: what its parser stops at, what it ignores or believes, and files like a host or a box."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_calls import Cli
from collopt.errors import TopologyError
from collopt.runtime.nccl.topology_file import lint_topology_file, topology_file
from collopt.topologies import read_box
from nccl_texts import GPU, cpu, gpu, nic, pci, port, switched, system

CPU = '<cpu numaid="0"/>'
# Texts, and whether NCCL 2.30.7's `ncclTopoGetXmlFromFile` takes them, as its compiled source says.
PARSED = {
    f'<system version="1">{CPU}</system>': True,
    f'<!-- a -->\r\n<system version="1">\r\n{CPU}\r\n</system>\n': True,
    '<system version="1"><cpu  numaid="0" /></system>': True,
    f'<?xml version="1.0"?>\n<system version="1">{CPU}</system>': False,
    f'<system version="1">\n\t{CPU}</system>': False,
    f'<system\n version="1">{CPU}</system>': False,
    '<system version="1"><cpu numaid="0"\n/></system>': False,
    '<system version="1"><cpu numaid=0 /></system>': False,
    f'<system version="2">{CPU}</system>': False,
    f'<system version="1">text{CPU}</system>': False,
    '<system version="1"><cpu\tnumaid="0"/></system>': False,
    '<system version="1"><cpu numaid="0"></cpu ></system>': False,
}


def written(folder: Path, text: str) -> Path:
    """Put a text into a file."""
    path = folder / "topology.xml"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def machine(*, shift: int = 0, bridge: str = "32.0 GT/s PCIe", **more: object) -> str:
    """Two CPUs with a GPU and a card below a bridge each, as one line for each tag."""
    fast = {"speed": "32.0 GT/s PCIe"}

    def below(n: int) -> str:
        devices = (
            pci(f"{n + shift + 1:04x}:00:00.0", kind=GPU, **fast),  # type: ignore[arg-type]
            pci(f"{n + shift + 257:04x}:00:00.0", kind="0x020700", **fast),  # type: ignore[arg-type]
        )
        return pci(f"ffff:0{n + 1}:00.0", *devices, speed=bridge, **more)  # type: ignore[arg-type]

    return system(*(cpu(below(n), numaid=n) for n in range(2)))


@pytest.mark.parametrize(("text", "is_parsed"), PARSED.items())
def test_what_the_parser_of_nccl_stops_at_is_rejected(tmp_path: Path, text: str, is_parsed: bool) -> None:
    """The files have no GPUs, which is no error of NCCL's, but nothing else is checked then."""
    report = lint_topology_file(written(tmp_path, text))
    assert (report.verdict != "rejected") == is_parsed


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (machine().replace("0002:00:00.0", "000B:00:00.0"), "ignored: line 5: busid '000B:00:00.0'"),
        (machine(bridge="16.0 GT/s"), "ignored: line 1: link_speed '16.0 GT/s' counts as 8 GT/s"),
        (machine(bridge="2.5 GT/s", width=1), "note: line 1: NCCL plans with the 0.188 GB/s of ffff:01:00.0"),
        (system(cpu(gpu(0), gpu(1)), cpu(nic("0000:90:00.0", port(0)), numaid=1)), "note: line 6: nic0 is on a CPU"),
        (system(cpu(gpu(0, switched()), gpu(1))), "note: line 4: 0000:01:00.0 lists no NVLinks, as others do"),
        (system(cpu(gpu(0, switched()), gpu(1, switched()))), "note: line 1: NCCL takes dev, sm and NVLinks of <gpu>"),
        (
            system(cpu(gpu(0), gpu(1), nic("0000:90:00.0", port(0)))),
            "note: NCCL takes the speed of <net> from the file",
        ),
        (system(cpu(gpu(0, switched()), gpu(1, switched(count=9)))), "note: gpu1 has 9 of 18 NVLinks"),
    ],
)
def test_what_nccl_ignores_or_believes_is_found(tmp_path: Path, text: str, finding: str) -> None:
    """At its line."""
    found = [str(each) for each in lint_topology_file(written(tmp_path, text)).findings]
    assert any(line.startswith(finding) for line in found), found


def test_a_repaired_file_has_the_places_of_the_host_and_the_addresses_of_the_machine(tmp_path: Path) -> None:
    """The machine's file has both GPUs on one CPU; slow bridges of the host are artifacts."""
    host = tmp_path / "host.xml"
    host.write_text(machine(shift=32, bridge="2.5 GT/s PCIe", width=1), encoding="utf-8")
    devices = [
        pci(f"{n:04x}:00:00.0", kind=kind) for n, kind in ((1, GPU), (2, GPU), (257, "0x020700"), (258, "0x020700"))
    ]
    flat = written(tmp_path, system(cpu(*devices)))
    repaired = tmp_path / "repaired.xml"
    repaired.write_text(topology_file(flat, host=host), encoding="utf-8")
    assert not lint_topology_file(repaired).findings
    assert [each.near for each in read_box(repaired, gpu="a10").nics] == [("pcie0",), ("pcie1",)]
    text = repaired.read_text(encoding="utf-8")
    assert all(f'"{busid}"' in text for busid in ("0001:00:00.0", "0002:00:00.0", "0101:00:00.0", "0102:00:00.0"))
    assert text.count('link_speed="32.0 GT/s PCIe"') == 6


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100"])
def test_a_file_like_a_box_is_read_as_that_box(tmp_path: Path, name: str) -> None:
    """With the links that its GPUs have."""
    product = name.rpartition("-")[2]
    path = written(tmp_path, topology_file(box=name))
    assert lint_topology_file(path).runs
    box = read_box(path, gpu=product, nic_bandwidth=25)
    assert [each.near for each in box.nics] == [(f"gpu{n}",) for n in range(8)]
    assert box.switches == ("nvswitch",)
    assert topology_file(path, box=name) == path.read_text(encoding="utf-8")
    with pytest.raises(TopologyError, match="has 8 GPUs and 8 NICs, but dgx1-v100 has 8 and 4; expected as many"):
        topology_file(path, box="dgx1-v100")


def test_the_command_checks_and_writes(cli: Cli, tmp_path: Path) -> None:
    """Status 0 for an accepted file, 1 for others; what is written is accepted."""
    path = tmp_path / "box.xml"
    assert cli("topology-file", "--box", "dgx-h100", "-o", path).status == 0
    assert cli("topology-file", path).out == f"{path}: accepted by NCCL 2.30.7\n"
    answer = cli("topology-file", written(tmp_path, '<?xml version="1.0"?>'), "--json")
    assert (answer.status, answer.data["verdict"]) == (1, "rejected")
