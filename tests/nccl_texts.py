"""Writes small topology files in NCCL's format, and finds real ones where somebody has them."""

from __future__ import annotations

from collopt.topologies.importing.documents import Document, read_document
from collopt.topologies.importing.nccl_xml import read_nccl
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.switched.scale_out import Box
from sample_files import sample

SWITCH = "0x068000"
GPU = "0x030200"


def tag(name: str, /, *inside: str, **attributes: object) -> str:
    """Write an element; ``class_`` stands for ``class``."""
    told = "".join(f' {key.rstrip("_")}="{value}"' for key, value in attributes.items())
    return f"<{name}{told}>{''.join(inside)}</{name}>\n"


def system(*cpus: str, version: object = 1) -> str:
    """Write a whole file."""
    return tag("system", *cpus, version=version)


def cpu(*inside: str, numaid: int = 0, **attributes: object) -> str:
    """Write a CPU: one of Intel's Sapphire Rapids unless told otherwise."""
    known = {"arch": "x86_64", "vendor": "GenuineIntel", "familyid": 6, "modelid": 143}
    return tag("cpu", *inside, numaid=numaid, **(known | attributes))


def pci(
    busid: str, *inside: str, kind: str = "0x060400", speed: str = "16.0 GT/s PCIe", width: int = 16, **more: object
) -> str:
    """Write a PCIe device; a bridge unless told otherwise."""
    return tag("pci", *inside, busid=busid, class_=kind, link_speed=speed, link_width=width, **more)


def gpu(dev: int, *links: str, busid: str | None = None, sm: int = 90, **place: object) -> str:
    """Write a GPU in its slot ``0000:01:00.0`` for number 1 and so on; ``rank`` may be given."""
    told = {"rank": place.pop("rank")} if "rank" in place else {}
    element = tag("gpu", *links, dev=dev, sm=sm, **told)
    return pci(busid or slot(dev), element, kind=GPU, **place)  # type: ignore[arg-type]


def slot(number: int) -> str:
    """The address of a GPU."""
    return f"0000:{number:02x}:00.0"


def link(target: str, count: object = 1, kind: str = GPU, name: str = "nvlink") -> str:
    """Write NVLinks to an address."""
    return tag(name, target=target, count=count, tclass=kind)


def switched(*, count: int = 18) -> str:
    """Write NVLinks to an NVSwitch that is not visible."""
    return link("fffffff:ffff:ff", count, SWITCH)


def nic(busid: str, *ports: str, **place: object) -> str:
    """Write a network card in its slot."""
    return pci(busid, tag("nic", *ports), kind="0x020700", **place)  # type: ignore[arg-type]


def port(dev: int, speed: object = 200000, guid: str | None = None, number: int = 1, **more: object) -> str:
    """Write a port of a network card."""
    return tag("net", name=f"mlx5_{dev}", dev=dev, speed=speed, port=number, guid=guid or f"0x{dev + 1:x}", **more)


def box_of(text: str, **options: object) -> Box:
    """Read a text as a box."""
    return read_nccl(Document("topo.xml", text), BoxOptions.of(**options))  # type: ignore[arg-type]


def real_file(name: str) -> Document:
    """Read a real dump, or skip the test."""
    return read_document(sample(name))
