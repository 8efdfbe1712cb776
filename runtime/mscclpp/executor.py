"""The MSCCL++ executor: its limits, its versions and their operations."""

from collections.abc import Mapping

from ...schedules import COLLECTIVES
from ..programs.program import Buffer

MAX_OPERATIONS = 64
"""Operations of one thread block, those inside pipelines included; the only limit that the executor checks itself."""
MAX_CHANNELS = 16  # Channels of one type, and remote buffers of one type, that one thread block uses
MAX_CHANNELS_PER_OPERATION = 8
MAX_SEMAPHORES_PER_OPERATION = 16  # A GPU may have more of them: the executor allocates as many as the plan lists
MAX_BUFFER_BYTES = 2**32 - 1  # Offsets are numbers of 32 bits
ALIGNMENT = 16
"""Bytes; chunks start at multiples of it.  The executor adds 16 bytes at once and the rest of a chunk wrongly."""
MAX_THREADS = 1024

WRITTEN = tuple(collective for collective in COLLECTIVES.values() if not collective.parts_differ)
"""Collectives of plan files; the executor treats allgather differently and ignores the names of the others."""

SWITCH_OPERATIONS = ("glres", "gstore", "gstorepkt")
"""Load-reduce-store (``execution_kernel.hpp`` of 0.9.0, line 523), and stores (in the main branch, from line 587)."""
VERSIONS = ("0.8.0", "0.9.0", "0.10.0", "main")
"""Releases of MSCCL++ that load these files, and its main branch of August 2026; 0.7 reads another format."""
VERSION, MAIN, STORING = VERSIONS[1], VERSIONS[3], VERSIONS[2:]
"""The usual version, the newest one, and those that load ``gstore``, since 414f6d1 of July 2026."""
OFFSET_IDS: Mapping[Buffer, int] = {"input": 0, "output": 1}
"""``buffer_id`` of a source of a port channel that gets its offset: the value of its ``BufferType`` in the executor."""
SHAPES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("put", "pws", "pwsf"), ("l+", "r+")),
    "get": ("r+", "l+"),
    "copy": ("l", "l"),
    "re": ("l+", "l"),
    "res": ("l+", "lr+"),
    "rre": ("lr+", "l"),
    "rres": ("lr+", "lr+"),
    "cpkt": ("l", "p"),
    "upkt": ("p", "l"),
    "ppkt": ("l+", "q+"),
    "rppkt": ("p", "q+"),
    "repkt": ("lp+", "l"),
    "respkt": ("lp+", "lq+"),
    "recpkt": ("lp+", "lp"),
    "recspkt": ("lp+", "lpq+"),
}
"""Sources and targets of operations, the last one as often as there are entries (``execution_kernel.hpp``, line 125).

l: chunks of the GPU itself, r: of another one, p and q: packets of LL there.  An operation with several targets stores
one sum to all, and one with as many sources as targets copies each (`PAIRED`).
"""
PAIRED = ("put", "pws", "pwsf", "get", "ppkt")
PORT_OPERATIONS = ("put", "pws", "pwsf", "ppkt", "rppkt")
DATA_OPERATIONS = (*SHAPES, *SWITCH_OPERATIONS)
MAX_PLACES = 10  # Sources, or targets, of an operation
SCRATCH_BYTES = 2**26  # Of a plan that reuses resources, in both halves together; packets take twice the room
MAX_BARRIERS = 16
WAITING = ("wait", "rlxwait")
SIGNALLING = ("signal", "rlxsignal")
SEMAPHORE_OPERATIONS = ("sem_acquire", "sem_release")


def shape_of(name: str, kind: str | None, sources: int, targets: int) -> tuple[str, str] | None:
    """Letters of so many sources and targets of an operation; None if it cannot have as many."""
    shapes = SHAPES[name]
    if name == "ppkt" and kind == "port":
        shapes = ("p+", "q+")  # NICs copy packets as they are (line 295).
    if name in PAIRED and sources != targets:
        return None
    letters = []
    for shape, number in zip(shapes, (sources, targets), strict=True):
        shortest = shape.rstrip("+")
        text = shortest + shortest[-1] * (number - len(shortest)) if "+" in shape else shortest
        text = text[:number] if number >= max(1, len(shortest) - ("+" in shape)) else ""
        if len(text) != number:
            return None
        letters.append(text)
    return letters[0], letters[1]
