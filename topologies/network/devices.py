"""Devices behind nodes: the names, numbers and bus addresses of GPUs and NICs in their machines."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...errors import TopologyError
from ...support.validation import as_list, as_name, as_whole, shown

MAX_NUMBER = 2**31 - 1


class Device(NamedTuple):
    """A GPU or NIC as its machine and runtimes name it.

    Attributes
    ----------
    node : str
        The node, or what follows the last slash of the names of several, such as ``"nic3"`` of every box.
    name : str
        Name of a NIC, such as ``"mlx5_3"``; of several ports that are one NIC all, joined by ``+``.
    number : int or None
        NVML's number of a GPU, NCCL's number of a NIC; None if it is not stated.
    bus : str
        Address on the PCI bus.
    """

    node: str
    name: str = ""
    number: int | None = None
    bus: str = ""

    @property
    def stated(self) -> dict[str, object]:
        """What is stated of it, by name."""
        return {name: value for name, value in self._asdict().items() if name != "node" and value not in ("", None)}


def as_devices(rows: Iterable[object], nodes: Collection[str]) -> tuple[Device, ...]:
    """Check devices, each of which is that of a node."""
    checked: dict[str, Device] = {}
    for row in as_list(rows, "the devices"):
        if not isinstance(row, Device):
            raise TopologyError(f"a device is {shown(row)}; expected Device(node, name, number, bus)")
        texts = [as_name(text) if text else "" for text in (row.name, row.bus)]
        number = row.number
        if number is not None:
            number = as_whole(
                number, f"the number of device {shown(row.node)}", low=0, high=MAX_NUMBER, error=TopologyError
            )
        device = Device(as_name(row.node), texts[0], number, texts[1])
        if checked.setdefault(device.node, device) is not device:
            raise TopologyError(f"node {device.node!r} has two devices; state one")
    if unknown := checked.keys() - {device.node for device in devices_of(checked.values(), nodes)}:
        raise TopologyError(f"a device is stated for {min(unknown)!r}, which is not a node of this topology")
    return tuple(checked.values())


def devices_of(devices: Iterable[Device], nodes: Collection[str]) -> tuple[Device, ...]:
    """Return the devices of these nodes."""
    listed = tuple(devices)
    if not listed:
        return ()
    names = {*nodes, *(node.rpartition("/")[2] for node in nodes)}
    return tuple(device for device in listed if device.node in names)
