"""Which kinds of files there are, and how each is known by its content; readers are imported when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from ..switched.scale_out import Box
from .sources.document import Document
from .sources.imported import Imported
from .sources.options import OPTIONS, BoxOptions
from .strangers import what_it_is

__all__ = ["FORMATS", "Format", "find_format"]


class Format(NamedTuple):
    """One kind of file.

    Attributes
    ----------
    name : str
        As messages and ``docs`` call it.
    module : str
        Of this package.  It has ``matches(document) -> bool``, which looks at the content only and never raises, and
        either ``read_box(document, options) -> Box`` or ``read_network(document, options) -> Imported``; ``OPTIONS``
        names the fields of `BoxOptions` that it uses, unless it uses all; ``STATES_LATENCIES`` is true if files that
        describe boxes state latencies.
    """

    name: str
    module: str

    def matches(self, document: Document) -> bool:
        """Tell whether the content looks like this kind; never raises."""
        found: bool = self._reader().matches(document)
        return found

    @property
    def box_reader(self) -> Callable[[Document, BoxOptions], Box] | None:
        """What makes a box of the document, or None if the format describes whole networks."""
        return getattr(self._reader(), "read_box", None)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options that the reader uses."""
        return getattr(self._reader(), "OPTIONS", OPTIONS)

    @property
    def states_latencies(self) -> bool:
        """Whether the latencies of a box are those of the file, and not assumed."""
        return getattr(self._reader(), "STATES_LATENCIES", False)

    @property
    def network_reader(self) -> Callable[[Document, BoxOptions], Imported] | None:
        """What makes a network of the document, or None if the format describes one box."""
        return getattr(self._reader(), "read_network", None)

    def _reader(self) -> ModuleType:
        return import_module(f".{self.module}", __package__)


FORMATS = (
    Format("NCCL or RCCL topology XML", "nccl.nccl_xml"),
    Format("nvidia-smi topo -m", "vendor_tools.nvidia_smi"),
    Format("rocm-smi --shownodesbw", "vendor_tools.rocm_smi_bandwidth"),
    Format("rocm-smi --showtopo", "vendor_tools.rocm_smi_topology"),
    Format("amd-smi topology", "vendor_tools.amd_smi"),
    Format("xgmi_num_links of AMD's driver", "vendor_tools.amd_sysfs"),
    Format("TACCL topology", "other_planners.taccl"),
    Format("TE-CCL input", "other_planners.teccl"),
    Format("MSCCL topology JSON", "other_planners.msccl_tools"),
    Format("ASTRA-sim network YAML", "other_planners.astra_sim"),
    Format("physical topology of ns-3", "other_planners.ns3"),
)
"""In the order in which they are tried."""


def find_format(document: Document) -> Format | None:
    """Return the first of `FORMATS` that the content looks like, or None for JSON, which has to be of ours.

    Raises
    ------
    FileFormatError
        If it looks like none; where it is a known kind of file that describes no network, the message says which.
    """
    for candidate in FORMATS:
        if candidate.matches(document):
            return candidate
    if what := what_it_is(document):
        raise document.error(f"it is {what}")
    if document.text.lstrip().startswith(("{", "[")):
        return None
    names = ", ".join(candidate.name for candidate in FORMATS)
    raise document.error(f"it is of no format that describes a network; expected collopt's own JSON or {names}")
