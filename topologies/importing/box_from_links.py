"""Boxes from direct links between pairs of GPUs, with PCIe where those do not connect all GPUs."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from ...support.arrays import components
from ..network.topology import Link
from ..switched.scale_out import (
    GPU_LINK,
    OWN_LINK,
    PCIE_LATENCY,
    SCALE_UP_LATENCY,
    AttachedNics,
    Box,
    SharedLink,
    attach_nics,
)
from .documents import Document
from .options import DEFAULT_LANES, LANE_RATES, PRODUCTS, BoxOptions, GpuProduct


class PcieLocation(NamedTuple):
    """CPU and bridge, both numbered from 0, of a GPU or NIC; `bridge` is None if it is attached to the CPU."""

    cpu: int
    bridge: int | None = None


class PciePathTree(NamedTuple):
    """The PCIe part of a box."""

    links: tuple[Link, ...]  # each for both directions
    switches: tuple[str, ...]  # ``pcie0`` ... for bridges, ``cpu0`` ... for CPUs
    above: tuple[str, ...]  # the switch above each device


Pair = tuple[int, int]  # two GPUs, the smaller number first
Locations = Callable[[], tuple[Sequence[PcieLocation], str]]  # where GPUs, then NICs, are, and a note on it


def needed_product(document: Document, options: BoxOptions, vendor: str, why: str) -> GpuProduct:
    """Return the GPU model of the options, or raise `FileFormatError` if it is missing or has no such links."""
    names = ", ".join(product.name for product in PRODUCTS.values() if product.vendor == vendor and product.links)
    if options.gpu is None:
        raise document.error(f"{why}; say which GPU it is (gpu), one of {names}")
    if options.gpu.vendor != vendor or not options.gpu.links:
        raise document.error(
            f"{why}, and {options.gpu.name} has no such links; say which GPU it is (gpu), one of {names}"
        )
    return options.gpu


def check_counts(
    document: Document, product: GpuProduct, counts: Mapping[Pair, int], line: Callable[[int], int | None]
) -> None:
    """Raise `FileFormatError` if a GPU has more links than the product."""
    total: dict[int, int] = {}
    for pair, count in counts.items():
        for gpu in pair:
            total[gpu] = total.get(gpu, 0) + count
    for gpu, links in sorted(total.items()):
        if links > product.links:
            raise document.error(
                f"gpu{gpu} would have {links} links to others, but {product.name} has {product.links}; is it another "
                "GPU?",
                line(gpu),
            )


def directly_linked(gpus: int, pairs: Mapping[Pair, object]) -> bool:
    """Return whether the pairs connect all GPUs."""
    return not components(gpus, [*pairs]).any()


def box_name(vendor: str, options: BoxOptions, gpus: int) -> str:
    """Name a box after its GPUs."""
    fitting = options.gpu is not None and options.gpu.vendor == vendor
    return f"{options.gpu.name if options.gpu is not None and fitting else vendor}-{gpus}gpu"


def linked_box(
    document: Document,
    options: BoxOptions,
    vendor: str,
    gpus: int,
    direct: Mapping[Pair, Fraction],
    locations: Locations,
    *,
    near: Sequence[tuple[int, ...]] = (),
    notes: Sequence[str] = (),
) -> Box:
    """Make a box of direct links, and of PCIe if those do not connect all GPUs. Units: `direct` in GB/s."""
    name = box_name(vendor, options, gpus)
    links = [Link(f"gpu{one}", f"gpu{two}", rate, SCALE_UP_LATENCY) for (one, two), rate in sorted(direct.items())]
    if directly_linked(gpus, direct):
        attached = gpu_nics(document, options, near)
        return Box(name, gpus, tuple(links), attached.nics, notes=(*notes, *attached.notes), shared=attached.shared)
    where, where_from = locations()
    rate, rate_from = pcie_link_bandwidth(document, options)
    tree = pcie_path_tree(where, gpus, rate)
    all_notes = [*notes, where_from, rate_from]
    if sum(switch.startswith("cpu") for switch in tree.switches) > 1:
        all_notes.append(
            f"two CPUs are joined with {float(rate):.4g} GB/s like one PCIe link, as the file does not say how"
        )
    above = [(switch,) for switch in tree.above[gpus:]]
    own_links = [_own_slot(nic, 1, rate) for nic in range(len(above))]
    attached = attach_nics(above, [options.nic_bandwidth] * len(above), own_links)
    return Box(
        name,
        gpus,
        (*links, *tree.links),
        attached.nics,
        tree.switches,
        notes=(*all_notes, *attached.notes),
        shared=attached.shared,
    )


def gpu_nics(document: Document, options: BoxOptions, near: Sequence[tuple[int, ...]]) -> AttachedNics:
    """Attach NICs to GPUs; their slots are like those of the GPUs."""
    left_out = "PCIe between GPUs is left out, as faster links connect all of them"
    if not near:
        return AttachedNics((), (), (left_out,))
    rate, rate_from = pcie_link_bandwidth(document, options)
    gpus = sorted({gpu for near_gpus in near for gpu in near_gpus})
    own_links = [_own_slot(nic, len(near_gpus), rate) for nic, near_gpus in enumerate(near)]
    gpu_links = [
        SharedLink(GPU_LINK, rate, tuple((nic, 1) for nic, near_gpus in enumerate(near) if gpu in near_gpus))
        for gpu in gpus
    ]
    names = [tuple(f"gpu{gpu}" for gpu in near_gpus) for near_gpus in near]
    attached = attach_nics(names, [options.nic_bandwidth] * len(near), [*own_links, *gpu_links])
    return attached._replace(notes=(left_out, rate_from, "every NIC is attached to its nearest GPUs", *attached.notes))


def _own_slot(nic: int, near: int, rate: Fraction) -> SharedLink:
    return SharedLink(OWN_LINK, rate, ((nic, near),))


def pcie_link_bandwidth(document: Document, options: BoxOptions) -> tuple[Fraction, str]:
    """Return GB/s of one PCIe link in each direction, and a note on its source."""
    if options.pcie_bandwidth is not None:
        return (
            options.pcie_bandwidth,
            f"every PCIe link is modeled with {float(options.pcie_bandwidth):.4g} GB/s, as given",
        )
    if options.gpu is None:
        raise document.error(
            "the PCIe bandwidth is unknown; give it in GB/s (pcie_bandwidth), or the GPU (gpu), whose slot is then "
            "assumed"
        )
    speed = options.gpu.lane_speed
    lane = LANE_RATES[speed]
    bandwidth = DEFAULT_LANES * (lane.line if options.figures == "line" else lane.nccl)
    return bandwidth, (
        f"every PCIe link is modeled with {float(bandwidth):.4g} GB/s, as the slot of {options.gpu.name} has "
        f"{DEFAULT_LANES} lanes of {speed} GT/s"
    )


def pcie_path_tree(locations: Sequence[PcieLocation], gpus: int, bandwidth: Fraction) -> PciePathTree:
    """Build the PCIe tree of devices, the first `gpus` of which are GPUs. Units: `bandwidth` in GB/s."""
    above = tuple(
        f"cpu{location.cpu}" if location.bridge is None else f"pcie{location.bridge}" for location in locations
    )
    pairs = [(f"gpu{gpu}", above[gpu]) for gpu in range(gpus)]
    cpu_of = {location.bridge: location.cpu for location in locations if location.bridge is not None}
    pairs += [(f"pcie{bridge}", f"cpu{cpu}") for bridge, cpu in sorted(cpu_of.items())]
    cpus = sorted({location.cpu for location in locations})
    pairs += [(f"cpu{one}", f"cpu{other}") for one, other in combinations(cpus, 2)]
    only = f"cpu{cpus[0]}"
    if len(cpus) == 1 and len(cpu_of) == 1 and only not in above:
        pairs = [pair for pair in pairs if only not in pair]
    switches = [f"pcie{bridge}" for bridge in sorted(cpu_of)] + [f"cpu{cpu}" for cpu in cpus]
    linked = {node for pair in pairs for node in pair}
    return PciePathTree(
        tuple(Link(one, other, bandwidth, PCIE_LATENCY) for one, other in pairs),
        tuple(switch for switch in switches if switch in linked),
        above,
    )
