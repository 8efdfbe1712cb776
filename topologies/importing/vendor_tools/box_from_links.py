"""From pairs of GPUs with direct links to a box; PCIe is used where those links do not join all GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from ...network.topology import Link
from ...switched.scale_out import SCALE_UP_LATENCY, Box, SharedLink
from ..sources.document import Document
from ..sources.gpu_products import PRODUCTS, GpuProduct
from ..sources.options import GPU_LINK, OWN_LINK, BoxOptions, Cards, plugged_in
from .pcie_paths import Place, slot_bandwidth, slot_tree

Pair = tuple[int, int]
"""Two GPUs, the smaller number first."""


class GroupFinder:
    """Things from 0 that belong together, told pair by pair.

    >>> groups = GroupFinder(3)
    >>> groups.join(0, 2)
    >>> groups.numbers()
    [0, 1, 0]
    """

    def __init__(self, count: int) -> None:
        self._first = list(range(count))

    def find(self, thing: int) -> int:
        """Return the thing that stands for the group."""
        while self._first[thing] != thing:
            self._first[thing] = self._first[self._first[thing]]
            thing = self._first[thing]
        return thing

    def join(self, one: int, other: int) -> None:
        """Make one group of two."""
        low, high = sorted((self.find(one), self.find(other)))
        self._first[high] = low

    def numbers(self) -> list[int]:
        """Return the group of every thing; groups are numbered from 0 in the order of their first things."""
        number: dict[int, int] = {}
        return [number.setdefault(self.find(thing), len(number)) for thing in range(len(self._first))]


def needed_product(document: Document, options: BoxOptions, vendor: str, why: str) -> GpuProduct:
    """Return the GPU that the caller named."""
    known = ", ".join(product.name for product in PRODUCTS.values() if product.vendor == vendor and product.links)
    if options.gpu is None:
        raise document.error(f"{why}; say which GPU it is (gpu), one of {known}")
    if options.gpu.vendor != vendor or not options.gpu.links:
        raise document.error(
            f"{why}, and {options.gpu.name} has no such links; say which GPU it is (gpu), one of {known}"
        )
    return options.gpu


def check_counts(
    document: Document, product: GpuProduct, counts: Mapping[Pair, int], line: Callable[[int], int | None]
) -> None:
    """Refuse more links at a GPU than the product has."""
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
    """Tell whether the pairs join all GPUs.

    >>> directly_linked(3, {(0, 1): 1})
    False
    """
    groups = GroupFinder(gpus)
    for pair in pairs:
        groups.join(*pair)
    return max(groups.numbers()) == 0


def box_name(vendor: str, options: BoxOptions, gpus: int) -> str:
    """Name a box after its GPUs.

    >>> box_name("nvidia", BoxOptions.of(gpu="A100"), 8)
    'a100-8gpu'
    """
    fitting = options.gpu is not None and options.gpu.vendor == vendor
    return f"{options.gpu.name if options.gpu is not None and fitting else vendor}-{gpus}gpu"


def linked_box(
    document: Document,
    options: BoxOptions,
    *,
    name: str,
    gpus: int,
    direct: Mapping[Pair, Fraction],
    places: Callable[[], tuple[Sequence[Place], str]],
    near: Sequence[tuple[int, ...]] = (),
    notes: Sequence[str] = (),
) -> Box:
    """Make a box of direct links, and of PCIe if those do not join all GPUs.

    Units: `direct` in GB/s.
    """
    links = [Link(f"gpu{one}", f"gpu{two}", rate, SCALE_UP_LATENCY) for (one, two), rate in sorted(direct.items())]
    if directly_linked(gpus, direct):
        cards = gpu_nics(document, options, near)
        return Box(name, gpus, tuple(links), cards.nics, notes=(*notes, *cards.notes), shared=cards.shared)
    where, where_from = places()
    rate, rate_from = slot_bandwidth(document, options)
    tree = slot_tree(where, gpus, rate)
    said = [*notes, where_from, rate_from]
    if sum(switch.startswith("cpu") for switch in tree.switches) > 1:
        said.append(f"two CPUs are joined with {float(rate):.4g} GB/s like one PCIe link, as the file does not say how")
    above = [(switch,) for switch in tree.above[gpus:]]
    own = [_own_slot(nic, 1, rate) for nic in range(len(above))]
    cards = plugged_in(above, [options.nic_bandwidth] * len(above), own)
    return Box(
        name,
        gpus,
        (*links, *tree.links),
        cards.nics,
        tree.switches,
        notes=(*said, *cards.notes),
        shared=cards.shared,
    )


def gpu_nics(document: Document, options: BoxOptions, near: Sequence[tuple[int, ...]]) -> Cards:
    """Plug NICs into GPUs; each is in a slot like those of the GPUs."""
    left_out = "PCIe between GPUs is left out, as faster links connect all of them"
    if not near:
        return Cards((), (), (left_out,))
    rate, rate_from = slot_bandwidth(document, options)
    gpus = sorted({gpu for near_gpus in near for gpu in near_gpus})
    own = [_own_slot(nic, len(near_gpus), rate) for nic, near_gpus in enumerate(near)]
    slots = [
        SharedLink(
            GPU_LINK,
            rate,
            tuple((nic, 1) for nic, near_gpus in enumerate(near) if gpu in near_gpus),
        )
        for gpu in gpus
    ]
    names = [tuple(f"gpu{gpu}" for gpu in near_gpus) for near_gpus in near]
    cards = plugged_in(names, [options.nic_bandwidth] * len(near), [*own, *slots])
    return cards._replace(notes=(left_out, rate_from, "every NIC is attached to its nearest GPUs", *cards.notes))


def _own_slot(nic: int, near: int, rate: Fraction) -> SharedLink:
    return SharedLink(OWN_LINK, rate, ((nic, near),))
