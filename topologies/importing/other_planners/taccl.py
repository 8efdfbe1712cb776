"""Reader of TACCL's topology profiles, which are measured for a buffer of some size.

The file states, in µs for that size, the latency of a link (``alpha``) and the time of its bytes (``betas``): inside
the box in ``node_betas_list``, or pair by pair in ``links`` and ``betas``, whose rows are receivers; and between boxes
(``remote_alpha``, ``remote_beta``).  TACCL takes the kind of network from its command line (microsoft/taccl,
``taccl/topologies/generic.py``); here it follows from the file: one beta is a switch, two are the hybrid cube mesh of
Azure NDv2.
"""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

from ...network.topology import Link
from ...switched.nic_shares import OWN_LINK, UNLIMITED
from ...switched.scale_out import Box, Nic, SharedLink
from ..sources.document import Document
from ..sources.json_text import Fields, decode, looks_like
from ..sources.options import BoxOptions

NDV2_FAST = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
"""Pairs of GPUs of an NDv2 that are joined by two NVLinks, as TACCL numbers them."""
NDV2_SLOW = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))  # pairs that are joined by one

Rate = Callable[[Decimal], Fraction]  # from a beta to GB/s
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
MAX_TACCL_GPUS = 256


def matches_taccl(document: Document) -> bool:
    """Return whether the content looks like a profile."""
    return looks_like(document, "gpus_per_node", "alpha")


def read_taccl(document: Document, options: BoxOptions) -> Box:
    """Read the box of a profile, whose name ends in its buffer size, such as ``NDv2_1MB``."""
    fields = Fields(document, decode(document))
    gpus = fields.count("gpus_per_node", least=2, most=MAX_TACCL_GPUS)
    size, alpha = _buffer_size(fields, document), Fraction(fields.number("alpha"))

    def rate(beta: Decimal) -> Fraction:
        if beta == 0:
            raise document.error("a beta is 0, which no link can be; expected µs for the bytes that the name states")
        return size / Fraction(beta) / 1000

    switches: tuple[str, ...] = ()
    if "links" in fields:
        links = tuple(_links_of_matrices(fields, gpus, alpha, rate, document))
    else:
        betas = fields.numbers("node_betas_list")
        if len(betas) == 1:
            switches = ("nvswitch",)
            links = tuple(Link(f"gpu{gpu}", "nvswitch", rate(betas[0]), alpha / 2) for gpu in range(gpus))
        elif len(betas) == 2 and gpus == 8:
            pairs = [(pair, betas[0]) for pair in NDV2_FAST] + [(pair, betas[1]) for pair in NDV2_SLOW]
            links = tuple(Link(f"gpu{a}", f"gpu{b}", rate(beta), alpha) for (a, b), beta in pairs)
        else:
            raise document.error(
                f"node_betas_list has {len(betas)} entries for {gpus} GPUs; expected one for a switch, two for the 8 "
                "GPUs of an NDv2, or links and betas for every pair"
            )
    notes = (
        f"bandwidths are TACCL's measurements for {int(size)} bytes (K, M, G as powers of 1000), latencies its alpha",
    )
    nics = () if "nics_per_node" not in fields else _taccl_nics(fields, gpus, rate, options)
    # A profile has no PCIe figures, so a given NIC bandwidth applies to the NIC's links to GPUs as well.
    shared = tuple(SharedLink(OWN_LINK, UNLIMITED, ((n, len(nic.near)),)) for n, nic in enumerate(nics))
    return Box(fields.text("name"), gpus, links, nics, switches, notes=notes, shared=shared)


def _taccl_nics(fields: Fields, gpus: int, rate: Rate, options: BoxOptions) -> tuple[Nic, ...]:
    """Assign GPUs to NICs evenly, as the profile does not state their distances."""
    count = fields.count("nics_per_node", most=gpus)
    speed = options.nic_bandwidth or rate(fields.number("remote_beta"))
    # The path from GPU to GPU has two NICs and one switch.
    hop = Fraction(fields.number("remote_alpha")) / 2
    near = [tuple(f"gpu{gpu}" for gpu in range(gpus) if gpu * count // gpus == nic) for nic in range(count)]
    return tuple(Nic(each, speed, speed, Fraction(0), hop) for each in near)


def _links_of_matrices(fields: Fields, gpus: int, alpha: Fraction, rate: Rate, document: Document) -> Iterator[Link]:
    """Yield the links of the matrices, whose rows are receivers; both directions of a link have to be equal."""
    links, betas = fields.square("links", gpus), fields.square("betas", gpus)
    for head in range(gpus):
        for tail in range(head):
            there, back = (links[head][tail], betas[head][tail]), (links[tail][head], betas[tail][head])
            if there != back:
                raise document.error(
                    f"GPUs {tail} and {head} are joined by {there[0]} links with beta {there[1]} one way and {back[0]} "
                    f"with {back[1]} the other; expected both alike"
                )
            if there[0]:
                yield Link(f"gpu{tail}", f"gpu{head}", rate(there[1]), alpha)


def _buffer_size(fields: Fields, document: Document) -> Fraction:
    """Parse the buffer size, in bytes, which is only in the name."""
    name = fields.text("name")
    found = re.search(r"(?:^|[_-])([0-9]{1,6})([KMG])B?$", name, re.IGNORECASE)
    if found is None or int(found[1]) == 0:
        raise document.error(
            f"its times are for a buffer of some size, and the name {name!r} does not end in it; write it there, such "
            "as 'lab_1MB'"
        )
    return Fraction(int(found[1]) * UNITS[found[2].upper()])
