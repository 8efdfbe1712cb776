"""Result of a benchmark, as the table and the JSON of nccl-tests, and sizes as these count them.

The size is that of the whole result: all shards together, all parts of one rank for all-to-all(v), on average, and one
rank's buffer elsewhere.  The *count* is that of one shard or part where there are such.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import UnsupportedError
from ...schedules import Collective
from ...schedules.collective import collective_or_given
from ..programs.layout import Layout

DATATYPES = {
    "int8": "int8", "uint8": "uint8", "int32": "int32", "int64": "int64", "half": "float16", "float": "float32",
    "double": "float64", "bfloat16": "bfloat16",
}  # fmt: skip
"""torch's names of element types by those of nccl-tests."""
MAX_SIZES = 10**4
JSON_VERSION = 1
SIZE_COLUMNS = (("size", "(B)", 12), ("count", "(elements)", 12), ("type", "", 8), ("redop", "", 6), ("root", "", 6))
TIME_COLUMNS = (("time", "(us)", 9), ("algbw", "(GB/s)", 7), ("busbw", "(GB/s)", 7), ("#wrong", "", 7))
COLUMNS = (*SIZE_COLUMNS, *TIME_COLUMNS, *TIME_COLUMNS)
COLUMN_GAP = "  "


@dataclass(frozen=True)
class Extent:
    """A size of a sweep."""

    size: int  # Bytes
    count: int  # Elements as nccl-tests counts them; the average for parts that are not equal
    elements: int  # Of the whole collective; of an all-to-all(v), those of all ranks together


def sweep(minbytes: int, maxbytes: int, stepfactor: int | None, stepbytes: int) -> tuple[int, ...]:
    """List the sizes of a sweep, in bytes."""
    if maxbytes < minbytes:
        raise UnsupportedError(f"the sweep ends at {maxbytes} bytes and begins at {minbytes}; expected it to end later")
    sizes: list[int] = []
    size = minbytes
    while size <= maxbytes:
        if len(sizes) == MAX_SIZES:
            raise UnsupportedError(f"the sweep has more than {MAX_SIZES} sizes; take larger steps")
        sizes.append(size)
        size = size * stepfactor if stepfactor else size + stepbytes
    return tuple(sizes)


def extents(layout: Layout, sizes: tuple[int, ...], element_bytes: int) -> tuple[Extent, ...]:
    """Round sizes, in bytes, down to whole elements of all parts; leave out empty and repeated ones."""
    # Elements of the smallest whole, ranks among which its bytes are divided, and parts among which its elements are.
    unit, ranks, parts = 1, 1, 1
    if layout.in_pairs:
        unit, ranks, parts = sum(layout.parts), layout.num_ranks, layout.num_ranks**2
    elif layout.collective.is_sharded:
        unit = parts = layout.num_ranks
    times = dict.fromkeys(size * ranks // (unit * element_bytes) for size in sizes)
    times.pop(0, None)
    if not times:
        raise UnsupportedError(
            f"sizes up to {max(sizes)} bytes are less than one element of {element_bytes} bytes for each part; "
            f"go up to {-(-unit * element_bytes // ranks)} bytes at least"
        )
    return tuple(Extent(time * unit * element_bytes // ranks, time * unit // parts, time * unit) for time in times)


class Device(NamedTuple):
    """Device of a rank; without a GPU `device` is -1 and `device_hex` empty."""

    rank: int
    pid: int
    hostname: str
    device: int
    device_hex: str
    device_info: str


class Reading(NamedTuple):
    """One measurement."""

    microseconds: float  # Mean over the iterations, of the slowest rank
    wrong_elements: int | None  # Of all ranks and checks; None if nothing was checked


@dataclass(frozen=True)
class BenchRow:
    """One size in bytes and elements, measured for one plan or library; None where that cannot be done."""

    name: str
    size: int
    count: int
    out_of_place: Reading | None
    in_place: Reading | None

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Readings that were measured."""
        return tuple(reading for reading in (self.out_of_place, self.in_place) if reading is not None)

    @property
    def wrong_elements(self) -> int:
        """Wrong elements of both readings."""
        return sum(reading.wrong_elements or 0 for reading in self.readings)


@dataclass(frozen=True)
class BenchReport:
    """Result of a benchmark.

    Attributes
    ----------
    collective, backend, num_ranks
    datatype, redop, config
        By the names of nccl-tests; `redop` is ``"none"`` where nothing is combined.
    root : int
        -1 where there is none.
    devices : tuple of Device
        By rank.
    rows : tuple of BenchRow
        By size, and in each by plan or library.
    start_time, end_time : str
    """

    collective: Collective
    backend: str
    num_ranks: int
    datatype: str
    redop: str
    root: int
    config: dict[str, Any]
    devices: tuple[Device, ...]
    rows: tuple[BenchRow, ...]
    start_time: str
    end_time: str

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the compared plans and libraries."""
        return tuple(dict.fromkeys(row.name for row in self.rows))

    @property
    def wrong_elements(self) -> int:
        """Wrong elements of all rows."""
        return sum(row.wrong_elements for row in self.rows)

    def algbw(self, row: BenchRow, reading: Reading) -> float:
        """GB/s as in nccl-tests: size over time."""
        return row.size / reading.microseconds / 1e3

    def busbw(self, row: BenchRow, reading: Reading) -> float:
        """GB/s as in nccl-tests: `algbw` times the collective's factor, (n - 1) / n for allgather."""
        return self.algbw(row, reading) * float(self.collective.bus_factor(self.num_ranks, self.root))

    def average_busbw(self, name: str | None = None) -> float:
        """Average `busbw` of all measurements, or of those of one of the names."""
        rates = [self.busbw(row, reading) for row in self.rows if name in (None, row.name) for reading in row.readings]
        return sum(rates) / len(rates)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of nccl-tests, in which an experiment is a plan or library."""
        devices = [{"rank": device.rank, "group": 0} | device._asdict() for device in self.devices]
        return {
            "version": JSON_VERSION,
            "start_time": self.start_time,
            "collective": str(self.collective),
            "backend": self.backend,
            "num_ranks": self.num_ranks,
            "config": self.config,
            "devices": devices,
            "results": [self._result(row) for row in self.rows],
            "out_of_bounds": {"count": self.wrong_elements, "okay": "false" if self.wrong_elements else "true"},
            "average_bus_bandwidth": {
                "bandwidth": self.average_busbw(),
                "okay": "unchecked",
                "experiments": {name: self.average_busbw(name) for name in self.names},
            },
            "end_time": self.end_time,
        }

    def head_lines(self) -> list[str]:
        """Write the header."""
        config, validation = self.config, self.config["validation"]
        step = f"{config['step_factor']}(factor)" if "step_factor" in config else f"{config['step_bytes']}(bytes)"
        what = sum(width for _, _, width in SIZE_COLUMNS) + len(COLUMN_GAP) * len(SIZE_COLUMNS)
        read = sum(width for _, _, width in TIME_COLUMNS) + len(COLUMN_GAP) * (len(TIME_COLUMNS) - 1)
        return [
            f"# collopt bench: {self.collective}, {self.num_ranks} ranks, {self.backend}",
            f"# minBytes {config['minimum_bytes']} maxBytes {config['maximum_bytes']} step: {step}",
            f"# warmup iters: {config['warmup_iters']} iters: {config['iterations']} validation: {validation}",
            "#",
            "#" + f"{' ' * what}{'out-of-place':^{read}}{COLUMN_GAP}{'in-place':^{read}}"[1:].rstrip(),
            "#" + _aligned([name for name, _, _ in COLUMNS], "by")[1:].rstrip(),
            "#" + _aligned([unit for _, unit, _ in COLUMNS], "")[1:].rstrip(),
        ]

    def tail_lines(self) -> list[str]:
        """Write the lines below the last row."""
        return [
            f"# Out of bounds values : {self.wrong_elements} {'FAILED' if self.wrong_elements else 'OK'}",
            *(f"# Avg bus bandwidth    : {self.average_busbw(name):g} {name}" for name in self.names),
        ]

    def row_line(self, row: BenchRow) -> str:
        """Write a row."""
        what = (str(row.size), str(row.count), self.datatype, self.redop, str(self.root))
        read = [entry for reading in (row.out_of_place, row.in_place) for entry in self._reading_entries(row, reading)]
        return _aligned([*what, *read], row.name)

    def _reading_entries(self, row: BenchRow, reading: Reading | None) -> tuple[str, str, str, str]:
        if reading is None:
            return ("N/A",) * 4
        return (
            f"{reading.microseconds:.{2 if reading.microseconds < 10**4 else 0}f}",
            f"{self.algbw(row, reading):.2f}",
            f"{self.busbw(row, reading):.2f}",
            "N/A" if reading.wrong_elements is None else str(reading.wrong_elements),
        )

    def __str__(self) -> str:
        """The table of nccl-tests."""
        return "\n".join([*self.head_lines(), *map(self.row_line, self.rows), *self.tail_lines()])

    def _result(self, row: BenchRow) -> dict[str, Any]:
        places = {name: self._place(row, getattr(row, name)) for name in ("out_of_place", "in_place")}
        return {
            "size": row.size,
            "count": row.count,
            "type": self.datatype,
            "redop": self.redop,
            "root": str(self.root),
            **places,
            "actual_iterations": self.config["iterations"],
            "experiment_name": row.name,
        }

    def _place(self, row: BenchRow, reading: Reading | None) -> dict[str, Any] | None:
        if reading is None:
            return None
        rates = {"alg_bw": self.algbw(row, reading), "bus_bw": self.busbw(row, reading)}
        return {"time": reading.microseconds, **rates, "nwrong": reading.wrong_elements}


def _aligned(entries: list[str], name: str) -> str:
    aligned = (f"{entry:>{width}}" for entry, (_, _, width) in zip(entries, COLUMNS, strict=True))
    return COLUMN_GAP.join([*aligned, name])
