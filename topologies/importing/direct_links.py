"""From pairs of GPUs with direct links to a box; PCIe is used where those links do not join all GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from ..scale_out import SCALE_UP_LATENCY, Box, Nic
from ..topology import Link
from .box_options import BoxOptions
from .document import Document
from .gpu_products import PRODUCTS, GpuProduct
from .slots import Place, slot_bandwidth, slot_tree

__all__ = ["GroupFinder", "Pair", "box_name", "check_counts", "directly_linked", "linked_box", "needed_product"]

Pair = tuple[int, int]
"""Two GPUs, the smaller number first."""


class GroupFinder:
    """Things from 0 that belong together, told pair by pair.

    Parameters
    ----------
    count : int
        How many things there are.

    Examples
    --------
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
    """Return the GPU that the caller named.

    Parameters
    ----------
    document : Document
        For the error message.
    options : BoxOptions
        What the caller named.
    vendor : str
        Whose tool wrote the file.
    why : str
        Begins the message, such as ``"it counts NVLinks but does not say how fast they are"``.

    Raises
    ------
    FileFormatError
        If none is named, or one of another vendor.
    """
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

    Examples
    --------
    >>> directly_linked(3, {(0, 1): 1})
    False
    """
    groups = GroupFinder(gpus)
    for pair in pairs:
        groups.join(*pair)
    return max(groups.numbers()) == 0


def box_name(vendor: str, options: BoxOptions, gpus: int) -> str:
    """Name a box after its GPUs.

    Examples
    --------
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

    Parameters
    ----------
    document : Document
        For error messages.
    options : BoxOptions
        Bandwidths that the file does not say.
    name : str
        Of the box.
    gpus : int
        How many there are.
    direct : mapping of pair to Fraction
        GB/s of the direct links in each direction.
    places : callable
        Gives the places of GPUs and NICs on PCIe, and a sentence on where that comes from; called only if PCIe is
        needed, and raises what the file lacks for it.
    near : sequence of tuple of int
        For each NIC, the GPUs next to it.
    notes : sequence of str
        What is to be said already.

    Returns
    -------
    Box
        Where PCIe is left out, NICs are plugged into the GPUs next to them, otherwise into the switch above.
    """
    links = [Link(f"gpu{one}", f"gpu{two}", rate, SCALE_UP_LATENCY) for (one, two), rate in sorted(direct.items())]
    if directly_linked(gpus, direct):
        cards, told = gpu_nics(document, options, near)
        return Box(name, gpus, tuple(links), cards, notes=(*notes, *told))
    where, where_from = places()
    rate, rate_from = slot_bandwidth(document, options)
    tree = slot_tree(where, gpus, rate)
    said = [*notes, where_from, rate_from]
    if sum(switch.startswith("cpu") for switch in tree.switches) > 1:
        said.append(f"two CPUs are joined with {float(rate):.4g} GB/s like one PCIe link, as the file does not say how")
    nics = tuple(_nic((switch,), rate, options) for switch in tree.above[gpus:])
    return Box(name, gpus, (*links, *tree.links), nics, tree.switches, notes=tuple(said))


def gpu_nics(
    document: Document, options: BoxOptions, near: Sequence[tuple[int, ...]]
) -> tuple[tuple[Nic, ...], tuple[str, ...]]:
    """Plug NICs into GPUs, with a PCIe link to each.

    Returns
    -------
    tuple of (tuple of Nic, tuple of str)
        The NICs, and what is to be said about them.
    """
    left_out = "PCIe between GPUs is left out, as faster links join all of them"
    if not near:
        return (), (left_out,)
    rate, rate_from = slot_bandwidth(document, options)
    said = [left_out, rate_from, "every NIC is plugged into the GPUs nearest to it"]
    plugged = _divided(near, rate, options.nic_bandwidth)
    if plugged != list(near):
        said.append("NICs that are together faster than the slot of a GPU next to them are divided among those GPUs")
    return tuple(_nic(tuple(f"gpu{gpu}" for gpu in gpus), rate, options) for gpus in plugged), tuple(said)


def _divided(near: Sequence[tuple[int, ...]], rate: Fraction, speed: Fraction | None) -> list[tuple[int, ...]]:
    """Give each NIC fewer GPUs where a GPU could otherwise use more of its NICs than its own slot lets through."""
    plugged = list(near)
    for gpus in set(near):
        cards = [card for card, others in enumerate(near) if others == gpus]
        if speed is None or speed * len(cards) <= rate:
            continue
        for place, card in enumerate(cards):
            shared = [gpu for number, gpu in enumerate(gpus) if number * len(cards) // len(gpus) == place]
            plugged[card] = tuple(shared) or (gpus[place * len(gpus) // len(cards)],)
    return plugged


def _nic(near: tuple[str, ...], rate: Fraction, options: BoxOptions) -> Nic:
    """Plug a NIC in; where it is slower than its slot, the slot counts like it, which bounds no less and no more."""
    speed = options.nic_bandwidth
    return Nic(near, rate if speed is None else min(rate, speed), speed)
