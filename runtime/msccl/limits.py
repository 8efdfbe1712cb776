"""Limits of the MSCCL runtimes, beyond which memory is corrupted or calls hang, and what each version loads.

Read from microsoft/msccl (2.12.12, 2023-09), Azure/msccl-executor-nccl (2.23.4) and ROCm/rccl (ROCm 5.5 to 6.3).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...errors import UnsupportedError
from ...schedules import COLLECTIVES, REDUCE_SCATTER, Collective
from ...support.validation import shown
from ..programs.program import check_choice

MAX_COUNT = 71  # Chunks that one step may move: MSCCL_MAX_COUNT is 72, exclusive
MAX_NODES = 4095
"""XML elements that a rank keeps: the algorithm, all ranks' gpu elements, its own thread blocks and their steps."""
MAX_AWAITED_BLOCK = 127  # Thread blocks that others wait for are named by an int8


@dataclass(frozen=True)
class RuntimeLimits:
    """Limits of one runtime."""

    name: str
    max_steps: int  # Step elements in one thread block, nops included
    max_thread_blocks: int  # SMs of an A100, as all blocks must run at once, or what the parser takes if less
    hard_thread_blocks: int  # What the parser takes
    max_channels: int  # RCCL from ROCm 6.1 on takes more; 32 works everywhere
    collectives: Mapping[Collective, str]  # The runtime's spelling of each collective
    adds_on_receive: bool  # not by RCCL from ROCm 6.1 on, which launches no fused steps (ROCm/rccl#1005)
    supports_both_placements: bool  # Whether one file can be for calls in place and out of place


A100_SMS = 108

JOINED = {ours: ours.nccl_name for ours in COLLECTIVES.values() if not ours.parts_differ}
MICROSOFT = JOINED | {REDUCE_SCATTER: REDUCE_SCATTER.name}
SPELLINGS = {theirs: ours for names in (MICROSOFT, JOINED) for ours, theirs in names.items()}

RUNTIMES: Mapping[str, RuntimeLimits] = {
    limits.name: limits
    for limits in (
        RuntimeLimits("msccl", 256, A100_SMS, 216, 32, MICROSOFT, True, False),
        RuntimeLimits("msccl-executor-nccl", 64, A100_SMS, 1024, 32, JOINED, True, True),
        RuntimeLimits("rccl", 64, 64, 64, 32, JOINED, False, True),
    )
}


def runtime_limits(runtime: str) -> RuntimeLimits:
    """Look up a runtime by name; `UnsupportedError` lists the names."""
    check_choice("runtime", runtime, RUNTIMES)
    return RUNTIMES[runtime]


UNLIMITED = 2**63
MSCCL_DEFAULT_MAX_BYTES = 2**27
FUSED = frozenset({"rcs", "rrs", "rrc", "rrcs"})  # Steps that receive and do something else in the same go
PLAIN = frozenset({"s", "r", "cpy", "re", "nop"})

ATTRIBUTES = ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace")
_LATER_DEFAULTS = (*ATTRIBUTES, "outofplace", "minBytes", "maxBytes")
"""Attributes that the two later runtimes read without a default: Azure/msccl#26, #37."""
TRANSFER_BYTES = {"Simple": 2**21, "LL": 2**15, "LL128": 576000}
"""Data that one transfer takes, with NCCL's own sizes of buffers on x86, by protocol."""
PROTOCOLS = tuple(TRANSFER_BYTES)
RCCL_TRANSFER_BYTES = {"Simple": 2**21, "LL": 2**14, "LL128": 50176}


@dataclass(frozen=True)
class Dialect:
    """How one version of one runtime treats a file; the defaults are those of msccl-executor-nccl and RCCL."""

    limits: RuntimeLimits  # Those that do not depend on the version
    version: str
    max_channels: int  # that the parser takes
    max_thread_blocks: int
    launches_fused: bool  # Whether it also runs steps that receive and send on or add
    absent: str = ""  # Why this version loads no such files at all; empty if it does
    required: tuple[str, ...] = _LATER_DEFAULTS  # Attributes that an algo element must have
    other_collectives: tuple[str, ...] = ("send", "recv", "gather", "scatter", "alltoallv")  # that collopt lacks
    step_types: frozenset[str] = PLAIN | FUSED
    transfer_bytes: Mapping[str, int] = field(default_factory=TRANSFER_BYTES.copy)

    @property
    def name(self) -> str:
        """Name of the runtime."""
        return self.limits.name

    @cached_property
    def collectives(self) -> Mapping[str, Collective]:
        """Collectives of collopt by the runtime's spelling."""
        return {theirs: ours for ours, theirs in self.limits.collectives.items()}

    @property
    def is_microsoft(self) -> bool:
        """Whether it is microsoft/msccl, from which the other two differ in the same way."""
        return self.name == "msccl"

    def placements(self, inplace: int, outofplace: int) -> tuple[bool, bool]:
        """Whether a file with these attributes is selected for in-place and for out-of-place calls."""
        return bool(inplace), not inplace if self.is_microsoft else bool(outofplace)

    def sizes(self, min_bytes: int | None, max_bytes: int | None) -> tuple[int, int]:
        """First size for which a file with these attributes is selected, and the end of the range; equal if none."""
        low = min_bytes or 0
        if self.is_microsoft:
            high = MSCCL_DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
        else:
            high = max_bytes + 1 if max_bytes and max_bytes > 0 else UNLIMITED
        return low, max(low, high)


def largest_chunk(dialect: Dialect, protocol: str) -> int:
    """Bytes of a chunk beyond which waits hang: the number of a round of transfers is kept in 16 bits."""
    return 2**16 * dialect.transfer_bytes[protocol]


def dialect_of(runtime: str, version: str | None = None) -> Dialect:
    """Look up a version of a runtime; by default the last with MSCCL."""
    limits = runtime_limits(runtime)
    if version is not None and not isinstance(version, str):
        raise UnsupportedError(f"version is {shown(version)}; expected text such as '6.4'")
    if limits.name == "rccl":
        return _rccl(limits, version)
    release = {"msccl": "2.12.12", "msccl-executor-nccl": "2.23.4"}[limits.name]
    if version not in (None, release):
        raise UnsupportedError(f"version is {shown(version)}; the one known of {limits.name} is {release}")
    dialect = Dialect(limits, release, 32, limits.hard_thread_blocks, launches_fused=True)
    if limits.name != "msccl":
        return dialect
    required, kinds = ("name", *ATTRIBUTES), PLAIN | FUSED | {"ra"}
    return replace(dialect, required=required, other_collectives=("custom",), step_types=kinds)


LAST_WITH_MSCCL = "7.12"


def _rccl(limits: RuntimeLimits, version: str | None) -> Dialect:
    release = _release(LAST_WITH_MSCCL if version is None else version)
    absent = ""
    if release < (5, 5):
        absent = "RCCL has MSCCL from ROCm 5.5 on"
    if release >= (7, 13):
        # RCCL 2.28.3; the functions stayed as empty ones (ROCm/rocm-systems#4340).
        absent = "RCCL has no MSCCL from ROCm 7.13 on"
    channels = 32 if release < (6, 1) else 64 if release < (6, 2) else 128
    blocks = 1024 if release < (6, 0) else 64
    # ROCm/rccl#1005 took the kernels of the fused steps out.
    name, sizes = f"of ROCm {version or LAST_WITH_MSCCL}", RCCL_TRANSFER_BYTES
    return Dialect(limits, name, channels, blocks, release < (6, 1), absent, transfer_bytes=sizes)


def _release(version: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})(\.[0-9]{1,4})?", version)
    # RCCL itself counts 2.15 to 2.28, which no release of ROCm that has a RCCL shares.
    if not match or int(match[1]) < 3:
        raise UnsupportedError(f"version is {shown(version)}; expected a release of ROCm, such as 6.4")
    return int(match[1]), int(match[2])
