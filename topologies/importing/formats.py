"""Registry of imported formats and their detection by content; readers are imported on demand."""

import re
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from ..switched.scale_out import Box
from .sources.document import Document, Imported
from .sources.options import OPTIONS, BoxOptions


class Format(NamedTuple):
    """A file format and its reader, a module of this package with ``matches(document) -> bool``, which never raises.

    It has ``read_network(document, options) -> Imported``, or ``read_box(document, options) -> Box``.
    """

    name: str  # for messages and documentation
    module: str
    options: tuple[str, ...] = OPTIONS  # the fields of `BoxOptions` that it uses
    is_network: bool = False  # whether it describes whole networks, not one box
    states_latencies: bool = False  # whether those of a box are read from the file, not assumed

    def matches(self, document: Document) -> bool:
        """Return whether the content looks like this format; never raises."""
        found: bool = self._reader().matches(document)
        return found

    def read(self, document: Document, options: BoxOptions) -> Box | Imported:
        """Read a document."""
        made: Box | Imported = getattr(self._reader(), "read_network" if self.is_network else "read_box")(
            document, options
        )
        return made

    def _reader(self) -> ModuleType:
        return import_module(f".{self.module}", __package__)


FORMATS = (
    Format("collopt box", "sources.box_file", ("nic_bandwidth",), states_latencies=True),
    Format("NCCL or RCCL topology XML", "nccl.nccl_xml"),
    Format("nvidia-smi topo -m", "vendor_tools.nvidia_smi"),
    Format("rocm-smi --shownodesbw", "vendor_tools.rocm_smi_bandwidth"),
    Format("rocm-smi --showtopo", "vendor_tools.rocm_smi_topology"),
    Format("amd-smi topology", "vendor_tools.amd_smi"),
    Format("xgmi_num_links of AMD's driver", "vendor_tools.amd_sysfs"),
    Format("TACCL topology", "other_planners.taccl", ("nic_bandwidth",), states_latencies=True),
    Format("TE-CCL input", "other_planners.teccl", (), is_network=True),
    Format("MSCCL topology JSON", "other_planners.msccl_tools", ("figures", "gpu"), is_network=True),
    Format("ASTRA-sim network YAML", "other_planners.astra_sim", (), is_network=True),
)
"""In the order in which they are tried."""


def find_format(document: Document) -> Format | None:
    """Return the first of `FORMATS` that matches, or None for JSON, which has to be collopt's own."""
    for candidate in FORMATS:
        if candidate.matches(document):
            return candidate
    if what := unsupported_format(document):
        raise document.error(f"it is {what}")
    if document.text.lstrip().startswith(("{", "[")):
        return None
    names = ", ".join(candidate.name for candidate in FORMATS)
    raise document.error(f"it is not in a known network format; expected collopt's own JSON or {names}")


UNSUPPORTED_FORMATS = (
    (r'"internode_sketch"|"intranode_sketch"', "a TACCL sketch, which restricts routes and has no bandwidths"),
    (r'"logical-dims"', "a logical topology of ASTRA-sim for ns-3, whose links are in another file"),
    (r'"scheduling-policy"', "a system description of ASTRA-sim; its network is in another file"),
    (r'"1-Epoch_Duration"', "a schedule of TE-CCL; the network that it is for is in another file"),
    (r'"collective"[\s\S]*"gpus"', "an MSCCL++ execution plan, not a network; collopt lint checks it"),
    (
        r"\A\s*\d+[ \t]+\d+[ \t]+\d+[ \t]*\n[\s\S]*?\d[ \t]+\d+(?:\.\d*)?[kKMG]?i?(?:bps|b/s|Bps|B/s)\s",
        "a physical topology of ns-3, which is not read; describe it as JSON or in Python",
    ),
    (
        r"\A\s*\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+[A-Za-z]\w*[^\n]*\n\s*\d",
        "a topology of SimAI, whose first line has more than nodes, switches and links; describe it as JSON",
    ),
    (r"\A\s*Nodes \d+\s+Tiers \d+", "a topology of htsim, which is not read; describe it as JSON or in Python"),
    (r"(?m)^[ \t]*(allreduce|allgather|broadcast|reduce\w*),\d+,", "a tuner table of NCCL, not a network"),
    (
        r"\A\d+( \d+)*\s*(\n\d+( \d+)*\s*)*\Z",
        "a table of numbers without a description; write a collopt topology file instead",
    ),
)
"""Pattern and description of files that are often mistaken for networks."""

PREFIX_CHARACTERS = 2**16  # characters at the beginning of a file that are searched


def unsupported_format(document: Document) -> str | None:
    """Describe a file of a known format that is not a network, or return None for an unknown one."""
    beginning = document.text[:PREFIX_CHARACTERS]
    return next((what for pattern, what in UNSUPPORTED_FORMATS if re.search(pattern, beginning)), None)
