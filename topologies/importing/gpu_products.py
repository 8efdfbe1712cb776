"""What GPUs have for links, for files that name the GPU and count its links but do not say how fast they are.

Two figures for every kind of link: the *line* rate, which ForestColl and the vendors' data sheets state, and the *nccl*
figure, which NCCL and RCCL plan with (``src/graph/topo.h`` of both) and which leaves room for headers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ...errors import TopologyError
from ..validation import shown

__all__ = ["FIGURES", "PRODUCTS", "GpuProduct", "as_figures", "find_product", "product_of"]

FIGURES = ("line", "nccl")
"""Names of the two figures; the first is the default."""


class GpuProduct(NamedTuple):
    """One GPU.

    Attributes
    ----------
    name : str
        As a person types it.
    vendor : str
        ``"nvidia"`` or ``"amd"``.
    code : str
        NVIDIA's compute capability times ten (``"90"``), AMD's architecture (``"gfx942"``).
    links : int
        NVLinks or xGMI links of the GPU; 0 where it has none.
    line, nccl : Fraction
        GB/s of one link in one direction: see the module.
    adds : bool
        Whether the NVSwitch that it is sold with can copy and add up data on its way.
    """

    name: str
    vendor: str
    code: str
    links: int
    line: Fraction
    nccl: Fraction
    adds: bool = False

    def link(self, figures: str) -> Fraction:
        """GB/s of one link in one direction, by one of `FIGURES`."""
        return self.line if figures == "line" else self.nccl


def _product(
    name: str, vendor: str, code: str, links: int, line: int | str, nccl: int | str, *, adds: bool = False
) -> GpuProduct:
    return GpuProduct(name, vendor, code, links, Fraction(line), Fraction(nccl), adds)


PRODUCTS = {
    product.name: product
    for product in (
        _product("p100", "nvidia", "60", 4, 20, 18),
        _product("v100", "nvidia", "70", 6, 25, 20),
        _product("a100", "nvidia", "80", 12, 25, 20),
        _product("a10", "nvidia", "86", 0, 14, 12),
        _product("h100", "nvidia", "90", 18, 25, "20.6", adds=True),
        _product("b200", "nvidia", "100", 18, 50, "40.1", adds=True),
        _product("mi100", "amd", "gfx908", 3, 46, 24),
        _product("mi250", "amd", "gfx90a", 8, 50, 36),
        _product("mi300x", "amd", "gfx942", 7, 64, 48),
    )
}
"""By name.  Line rates: NVLink 1 20, NVLink 2 to 4 25, NVLink 5 50, NVLink bridges of GA102 14, xGMI of MI100 46,
MI250 50, MI300X 64 (vendors' data sheets, one direction)."""

ALIASES = {"h200": "h100", "h800": "h100", "b100": "b200", "gb200": "b200", "mi250x": "mi250", "a10g": "a10"}
"""GPUs whose links are as those of another."""


def find_product(name: str) -> GpuProduct:
    """Return the GPU of this name, in upper or lower case.

    Raises
    ------
    TopologyError
        If it is not known.

    Examples
    --------
    >>> find_product("H100").link("line")
    Fraction(25, 1)
    """
    word = name.lower().replace("-", "") if isinstance(name, str) else ""
    word = ALIASES.get(word, word)
    if word not in PRODUCTS:
        known = ", ".join([*PRODUCTS, *ALIASES])
        raise TopologyError(f"there is no GPU {shown(name)} in our table of links; expected one of {known}")
    return PRODUCTS[word]


def product_of(vendor: str, code: str) -> GpuProduct | None:
    """Return the GPU of a compute capability or architecture, or None if the table has none.

    Examples
    --------
    >>> product_of("amd", "gfx942").name
    'mi300x'
    """
    for product in PRODUCTS.values():
        if (product.vendor, product.code) == (vendor, code):
            return product
    return None


def as_figures(value: object) -> str:
    """Read the name of one of `FIGURES`; anything else raises `TopologyError`."""
    if value not in FIGURES:
        raise TopologyError(f"figures are {shown(value)}; expected {' or '.join(map(repr, FIGURES))}")
    return str(value)
