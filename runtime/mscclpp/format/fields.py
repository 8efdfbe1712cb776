"""Fields of MSCCL++ plan files, read with their types and ranges checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from ....errors import FileFormatError
from ....support.validation import is_whole, shown
from ...interpreter.findings import Severity
from ...programs.program import Buffer
from .execution_plan import CHANNEL_TYPES, MAX_CHANNELS, ChannelType

BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
MAX_BLOCKS = 2**10  # Of a GPU; all must run at once, and no GPU has as many multiprocessors
MAX_ENTRIES = MAX_BLOCKS * MAX_CHANNELS  # Of a list of what thread blocks use, such as the channels of a GPU
MAX_CHUNKS = 2**28  # A buffer of more would have chunks of less than 16 bytes


class PlanError(FileFormatError):
    """A plan that the loader of MSCCL++ takes or not, and what becomes of it."""

    def __init__(self, message: str, severity: Severity) -> None:
        super().__init__(message)
        self.severity = severity


class Fields:
    """Reads and checks fields; messages begin with the file, `where`, and the field."""

    def __init__(self, where: str) -> None:
        self.where = where

    def mapping(
        self, value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        """Read an object with all required keys, and no unknown ones."""
        if not isinstance(value, dict):
            self.fail(f"{where} is {shown(value)}; expected an object")
        for key in required:
            if key not in value:
                self.fail(f"{where} has no {key}")
        for key in value:
            if key not in required and key not in optional:
                self.fail(f"{where} has {shown(key)}, which the executor does not read; remove it")
        return value

    def entries(self, value: object, where: str, least: int = 0, most: int = MAX_ENTRIES) -> list[Any]:
        """Read a list of `least` to `most` entries."""
        if not isinstance(value, list) or len(value) < least:
            self.fail(f"{where} is {shown(value)}; expected a list{' with entries' if least else ''}")
        if len(value) > most:
            self.fail(f"{where} has {len(value)} entries; the limit is {most}")
        return value

    def integers(self, value: object, where: str, most: int, least: int = 0) -> tuple[int, ...]:
        """Read a list of at least `least` integers from 0 to `most`."""
        return tuple(self.integer(each, f"an entry of {where}", 0, most) for each in self.entries(value, where, least))

    def integer(self, value: object, where: str, least: int, most: int) -> int:
        """Read an integer from `least` to `most`."""
        if not is_whole(value) or not least <= value <= most:
            self.fail(f"{where} is {shown(value)}; expected a whole number from {least} to {most}")
        return value

    def channel_type(self, value: object, where: str, kinds: tuple[ChannelType, ...] = CHANNEL_TYPES) -> ChannelType:
        """Read a channel type, one of `kinds`."""
        found = next((kind for kind in kinds if value == kind), None)
        if found is None:
            self.fail(f"{where} has channel type {shown(value)}; expected {' or '.join(kinds)}")
        return found

    def buffer(self, value: object, where: str) -> Buffer:
        """Read a buffer by its letter."""
        if not isinstance(value, str) or value not in BUFFERS:
            self.fail(f"{where} has buffer type {shown(value)}; expected i, o or s")
        return BUFFERS[value]

    def check_position(self, number: object, where: str, position: int) -> None:
        """Refuse an entry whose number is not its position."""
        if not is_whole(number) or number != position:
            self.fail(f"{where} has id {shown(number)}; expected its position")

    def fail(self, what: str, severity: Severity = "wrong data") -> NoReturn:
        """Refuse the file."""
        raise PlanError(f"{self.where}: {what}", severity)
