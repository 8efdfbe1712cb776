"""Boxes from links between GPUs, with PCIe where those do not join all GPUs."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations
from typing import NamedTuple

from ...support.arrays import components
from ...support.formatting import set_text
from ..network.topology import Link, SwitchLimits
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

Pair = tuple[int, int]  # two GPUs, the smaller number first
Nodes = Sequence[tuple[str, ...]]  # for each NIC, what it is attached to


class PcieLocation(NamedTuple):
    """CPU and bridge, both numbered from 0, of a GPU or NIC; `bridge` is None if it is attached to the CPU."""

    cpu: int
    bridge: int | None = None


Locations = Callable[[], tuple[Sequence[PcieLocation], str]]  # where GPUs, then NICs, are, and a note on it


class GpuLinks(NamedTuple):
    """Links between GPUs other than PCIe, each for both directions; switches, limits and notes as in `Box`."""

    links: tuple[Link, ...] = ()
    switches: tuple[str, ...] = ()
    limits: tuple[SwitchLimits, ...] = ()
    notes: tuple[str, ...] = ()

    def joins(self, gpus: int, more_links: Collection[Link] = ()) -> bool:
        """Return whether these and other links join all GPUs."""
        links = [*self.links, *more_links]
        numbers = {f"gpu{gpu}": gpu for gpu in range(gpus)}
        ends = [[numbers.setdefault(node, len(numbers)) for node in link[:2]] for link in links]
        return not components(len(numbers), ends)[:gpus].any()


def unlinked_note(gpus: int, links: Collection[Link], kind: str) -> list[str]:
    """Name the GPUs without links of a kind, which others have, as a fault may be the cause."""
    ends = {end for link in links for end in link[:2]}
    lost = [name for gpu in range(gpus) if (name := f"gpu{gpu}") not in ends]
    if not lost or len(lost) == gpus:
        return []
    return [f"{set_text(lost)}: no {kind}s, which other GPUs of this box have; check them if that is a fault"]


def direct_links(rates: Mapping[Pair, Fraction]) -> tuple[Link, ...]:
    """Return links between pairs of GPUs. Units: `rates` in GB/s."""
    return tuple(Link(f"gpu{one}", f"gpu{two}", rate, SCALE_UP_LATENCY) for (one, two), rate in sorted(rates.items()))


def switch_links(gpus: Collection[int], switch: str, rate: Fraction) -> tuple[Link, ...]:
    """Return links from GPUs to a switch. Units: `rate` in GB/s."""
    return tuple(Link(f"gpu{gpu}", switch, rate, SCALE_UP_LATENCY / 2) for gpu in gpus)


def needed_product(document: Document, options: BoxOptions, vendor: str, why: str) -> GpuProduct:
    """Return the GPU model of the options, or raise `FileFormatError` if it is missing or has no such links."""
    if options.gpu is not None and options.gpu.vendor == vendor and options.gpu.links:
        return options.gpu
    names = ", ".join(product.name for product in PRODUCTS.values() if product.vendor == vendor and product.links)
    lack = "" if options.gpu is None else f", and {options.gpu.name} has no such links"
    raise document.error(f"{why}{lack}; say which GPU it is (gpu), one of {names}")


def check_counts(
    document: Document, product: GpuProduct, counts: Mapping[Pair, int], line: Callable[[int], int | None]
) -> None:
    """Raise `FileFormatError` if a GPU has more links than the product."""
    totals: Counter[int] = Counter()
    for pair, count in counts.items():
        totals.update(dict.fromkeys(pair, count))
    for gpu, links in sorted(totals.items()):
        if links > product.links:
            raise document.error(
                f"gpu{gpu} would have {links} links to others, but {product.name} has {product.links}; is it another "
                "GPU?",
                line(gpu),
            )


def linked_box(
    document: Document,
    options: BoxOptions,
    vendor: str,
    gpus: int,
    between: GpuLinks,
    locations: Locations,
    *,
    near: Sequence[tuple[int, ...]] = (),
    far_note: str = "",
) -> Box:
    """Make a box, with PCIe between its GPUs if other links do not join all; `near` has the GPUs nearest to NICs."""
    links, switches, notes = list(between.links), list(between.switches), list(between.notes)
    if between.joins(gpus):
        attached = _nics_of_gpus(document, options, near)
    else:
        where, where_from = locations()
        rate, rate_from = _pcie_bandwidth(document, options)
        tree, pcie_switches, above = _pcie_tree(where, gpus, rate)
        links += tree
        switches += pcie_switches
        notes += [where_from, rate_from]
        if sum(switch.startswith("cpu") for switch in pcie_switches) > 1:
            notes.append(
                f"two CPUs are joined with {float(rate):.4g} GB/s like one PCIe link, as the file does not say how"
            )
        slots = [SharedLink(OWN_LINK, rate, ((nic, 1),)) for nic in range(len(above))]
        attached = attach_nics(above, [options.nic_bandwidth] * len(above), slots)
    product = options.gpu if options.gpu is not None and options.gpu.vendor == vendor else None
    return Box(
        f"{vendor if product is None else product.name}-{gpus}gpu",
        gpus,
        tuple(links),
        attached.nics,
        tuple(switches),
        tuple(limit.switch for limit in between.limits),
        (*notes, *attached.notes, *filter(None, [far_note])),
        attached.shared,
        between.limits,
        product.rack_of(gpus) if product is not None and between.switches else "",
    )


def _nics_of_gpus(document: Document, options: BoxOptions, near: Sequence[tuple[int, ...]]) -> AttachedNics:
    """Attach NICs to GPUs; their slots are like those of the GPUs."""
    left_out = "PCIe between GPUs is left out, as faster links connect all of them"
    if not near:
        return AttachedNics((), (), (left_out,))
    rate, rate_from = _pcie_bandwidth(document, options)
    slots = [SharedLink(OWN_LINK, rate, ((nic, len(gpus)),)) for nic, gpus in enumerate(near)]
    users = {gpu: tuple((nic, 1) for nic, gpus in enumerate(near) if gpu in gpus) for gpu in chain(*near)}
    slots += [SharedLink(GPU_LINK, rate, paths) for _, paths in sorted(users.items())]
    names = [tuple(f"gpu{gpu}" for gpu in gpus) for gpus in near]
    attached = attach_nics(names, [options.nic_bandwidth] * len(near), slots)
    return attached._replace(notes=(left_out, rate_from, "every NIC is attached to its nearest GPUs", *attached.notes))


def _pcie_bandwidth(document: Document, options: BoxOptions) -> tuple[Fraction, str]:
    """Return GB/s of one PCIe link in each direction, and a note on its source."""
    if options.pcie_bandwidth is not None:
        rate, source = options.pcie_bandwidth, "given"
    elif options.gpu is not None:
        speed = options.gpu.lane_speed
        rate = DEFAULT_LANES * LANE_RATES[speed][options.figures]
        source = f"the slot of {options.gpu.name} has {DEFAULT_LANES} lanes of {speed} GT/s"
    else:
        raise document.error(
            "the PCIe bandwidth is unknown; give it in GB/s (pcie_bandwidth), or the GPU (gpu), whose slot is then "
            "assumed"
        )
    return rate, f"every PCIe link is modeled with {float(rate):.4g} GB/s, as {source}"


def _pcie_tree(locations: Sequence[PcieLocation], gpus: int, rate: Fraction) -> tuple[list[Link], list[str], Nodes]:
    """Build the PCIe tree of GPUs, then NICs: its links, its switches, and the switch above each NIC."""
    above = [f"cpu{place.cpu}" if place.bridge is None else f"pcie{place.bridge}" for place in locations]
    pairs = [(f"gpu{gpu}", above[gpu]) for gpu in range(gpus)]
    cpu_of = {place.bridge: place.cpu for place in locations if place.bridge is not None}
    pairs += [(f"pcie{bridge}", f"cpu{cpu}") for bridge, cpu in sorted(cpu_of.items())]
    cpus = sorted({place.cpu for place in locations})
    pairs += [(f"cpu{one}", f"cpu{other}") for one, other in combinations(cpus, 2)]
    # A CPU with one bridge and nothing else joins nothing.
    only = f"cpu{cpus[0]}"
    if len(cpus) == 1 and len(cpu_of) == 1 and only not in above:
        pairs = [pair for pair in pairs if only not in pair]
    linked = {node for pair in pairs for node in pair}
    switches = [*(f"pcie{bridge}" for bridge in sorted(cpu_of)), *(f"cpu{cpu}" for cpu in cpus)]
    links = [Link(one, other, rate, PCIE_LATENCY) for one, other in pairs]
    return links, [switch for switch in switches if switch in linked], [(switch,) for switch in above[gpus:]]
