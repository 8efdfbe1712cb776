"""Measured times of a collective, and the reader of the output of nccl-tests, rccl-tests and `collopt bench`.

The text is a table, beneath comments and whatever launchers and libraries print in between; as versions differ in their
columns, these are taken from the comment that names them.  The JSON of ``-J`` and of ``collopt bench --json`` goes by
keys.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from ...errors import FileFormatError, UnsupportedError
from ...schedules import COLLECTIVES, Collective
from ...schedules.collective import collective_or_given
from ...support.files import decode_json, name_of, read_text
from ...support.validation import as_whole, is_int, shown

UNPLANNED = ("sendrecv", "gather", "scatter", "hypercube")  # Benchmarks of nccl-tests that no planner covers
MEASURED: dict[str, Collective | str] = {
    **{collective.nccl_name: collective for collective in COLLECTIVES.values() if collective.traffic is None},
    **{name: name for name in UNPLANNED},
}
"""By the names of nccl-tests, of its programs and of rccl-tests' JSON, without what these differ in."""
MAX_EXPONENT = 300  # Of numbers in files; more is no time
MAX_BYTES = 64 * 2**20
MAX_COLUMNS = 64
MAX_LINE = 1000  # characters in which a row is looked for
READING_COLUMNS = ("time", "algbw", "busbw", "#wrong")
DEFAULT_COLUMNS = ("size", "count", "type", "redop", "root", *READING_COLUMNS, *READING_COLUMNS)
"""Columns of a table without the comment that names them."""
TIME_COLUMNS = ("time", "cputime", "cpu_time")
TIME_KEYS, WRONG_KEYS = ("time", "cpu_time"), ("nwrong", "wrong")  # In JSON
MICROSECONDS = {"(ns)": 1e-3, "(us)": 1.0, "(µs)": 1.0, "(μs)": 1.0, "(ms)": 1e3, "(s)": 1e6}
"""Microseconds per unit of time."""
_LABELS = re.compile(
    r"(?:\s*(?:"
    r"(?:\[[^][\s]{1,64}\])?<std(?:out|err)>:"  # mpirun --tag-output
    r"|\d{1,9}:(?=\s)"  # srun --label
    r"|\[[^][]{1,64}\]:?\s"  # mpiexec -l, torchrun, kubectl --prefix
    r"|(?:\d{4}[-/]\d\d[-/]\d\d[T ]|[A-Z][a-z]{2} {1,2}\d{1,2} )?"  # a time, after a date
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?:?\s"
    r"|[A-Za-z][\w./-]{0,252}(?:\[\d{1,9}\])?(?::|\s{1,9}\|)?\s"  # the name of a host, pod, container or service
    r")){1,8}?(?=\s*(?:#|\d{1,18}\s+[\d.]{1,18}\s))"
)
"""What launchers and log shippers put before each line."""
_HEADER = re.compile(r"\s*#?\s*(?:Collective test starting:|(?P<threads>nThread \d)|(?:nccl|rccl)-tests version)")
_BARE_ROW = re.compile(r"\s*\d{1,18}\s+\d{1,18}\s+[a-z]\w*\s")
_PROGRAM = re.compile(r"\b[a-z]+(?:_[a-z]+)*_perf\b")
_ROW = re.compile(r"(\S.*\s)\d{1,18}\s+\d{1,18}\s+[a-z]\w*\s+\w+\s+-?\d{1,9}(?:\s+\d{1,12}\.\d+){3}\s")
"""A row behind something else."""
_STARTS = re.compile(r"#\s*Collective test starting:\s*(\S+)")
_BENCH = re.compile(r"#\s*collopt bench:\s*(\w+),\s*(\d{1,9}) ranks\b")
_RANK = re.compile(r"#\s*Rank\s+(\d{1,9})\s")
_SETTING = re.compile(r"\bNCCL_[A-Z0-9_]+=\S")
_UNIT = re.compile(r"\([^()\s]{1,16}\)")
_JSON = re.compile(r"\s*(?:\{|\[\s*[\[\]{])")
_INFO, MAX_PREFIX = " NCCL INFO ", 100
"""What lines of NCCL have among their first characters, and no row of a table."""
ROUNDING = 0.005
"""Microseconds at most: a number of few digits may be the whole number, which a table would have cut to two."""


class MeasuredRow(NamedTuple):
    """One measured time."""

    size: int  # Bytes as nccl-tests counts them
    microseconds: float  # More than 0
    in_place: bool = False
    by: str = ""  # Library or plan, where a file has several; else empty
    wrong_elements: float | None = None  # Elements that were not as they have to be; None where nothing was checked
    rounding: float = 0.0  # Microseconds that the time may be off because it was printed with so many digits
    printed: tuple[float, float] | None = None  # Algorithm and bus bandwidth in GB/s as the table has them
    root: int | None = None  # Its rank, where the table has one
    redop: str = ""  # ``sum``; ``none`` of collectives without one, and empty where the table has none


class MeasuredRun(NamedTuple):
    """One run of a log: its lines, and its times."""

    text: str
    times: MeasuredTimes
    program: str  # Program of nccl-tests that the line of command above it, or its header, names; else empty
    is_cut: bool = False  # Whether its last row is not complete, and was left out


@dataclass(frozen=True)
class MeasuredTimes:
    """Measured times of a file.

    Attributes
    ----------
    source : str
        The file, for messages.
    collective : Collective, str or None
        ``sendrecv``, ``gather``, ``scatter`` and ``hypercube`` by their names; None where the file does not say.
    num_ranks : int or None
        None likewise.
    rows : tuple of MeasuredRow
    """

    source: str
    collective: Collective | str | None
    num_ranks: int | None
    rows: tuple[MeasuredRow, ...]

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the measured libraries."""
        return tuple(dict.fromkeys(row.by for row in self.rows))

    def of(self, by: str | None) -> MeasuredTimes:
        """Keep the rows of one of `names`; it may be None if there is only one.

        Raises `UnsupportedError` if there is none of that name, or it has to be chosen.
        """
        names = self.names
        if by is None and len(names) == 1:
            return self
        if by is not None and names == ("",):
            raise UnsupportedError(f"{self.source} does not say whose times it has; leave {shown(by)} out")
        if by not in names:
            problem = "measures several" if by is None else f"measures nothing of {shown(by)}"
            raise UnsupportedError(f"{self.source} {problem}; choose one of {', '.join(map(shown, names))}")
        return replace(self, rows=tuple(row for row in self.rows if row.by == by))

    def right(self) -> MeasuredTimes:
        """Leave out runs with wrong results.

        Raises `UnsupportedError` if nothing is left.
        """
        rows = tuple(row for row in self.rows if not row.wrong_elements)
        if not rows:
            raise UnsupportedError(f"{self.source} has only wrong results; fix that before using its times")
        return replace(self, rows=rows)


def collective_by_name(name: str) -> Collective | str | None:
    """Look up a collective by another library's name, or that of a benchmark program.

    >>> collective_by_name("all_reduce_perf"), collective_by_name("AllGather"), collective_by_name("mpirun")
    (<Collective allreduce>, <Collective allgather>, None)
    """
    plain = re.sub(r"(_perf)?(\.exe)?$", "", name.lower())
    return MEASURED.get(re.sub(r"[^a-z]", "", plain))


def rounding_error(text: str) -> float:
    """Return the largest rounding error of a printed number.

    >>> rounding_error("4.00"), rounding_error("1234.5"), rounding_error("1.25e+03"), rounding_error("17")
    (0.005, 0.05, 5.0, 0.5)
    """
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    # The power as text, which rounds once.
    return float(f"5e{min(int(exponent or 0), MAX_EXPONENT) - digits - 1}")


class _Place(NamedTuple):
    """Columns of one of the two readings of a row."""

    time: int
    wrong_elements: int | None
    in_place: bool


def read_nccl_tests(path: str | os.PathLike[str]) -> MeasuredTimes:
    """Read the text or the JSON of nccl-tests or rccl-tests, or of ``collopt bench``.

    Rows of zero bytes and readings that are N/A are left out; times in ns, ms or s come in µs.  Raises
    `FileFormatError`, with the file and the line, if it cannot be read or is none of these, holds more than one
    collective, has units of its own, is cut short, or measured nothing.
    """
    text, where = read_text(path, MAX_BYTES), name_of(path)
    if not text.strip():
        raise FileFormatError(f"{where} is empty; expected the output of nccl-tests")
    times = read_results(text, where) if _JSON.match(text) else _Table(where).read(text.splitlines())
    if not times.rows:
        for number, line in enumerate(text.splitlines(), 1):
            if match := _ROW.match(line[:MAX_LINE]):
                raise FileFormatError(
                    f"{where}, line {number} has a row behind {shown(match[1].strip())}; cut that from all lines"
                )
        raise FileFormatError(f"{where} has no measured times; expected the output of nccl-tests, as text or JSON")
    return times


def read_runs(text: str, where: str) -> tuple[MeasuredRun, ...]:
    """Read all runs of a log, which may have no rows; a last row that is cut short is left out.

    Raises `FileFormatError` as `read_nccl_tests` does, for each run by itself.
    """
    if _JSON.match(text):
        return (MeasuredRun(text, read_results(text, where), ""),)
    lines = text.splitlines()
    # A header begins a run where the lines above it have rows, or a header that is complete; so do its settings.
    starts, programs, has_rows, has_threads, program, command = [0], [""], False, False, "", 0
    for number, line in enumerate(lines):
        if _INFO in line[:MAX_PREFIX]:
            continue
        unlabeled = line[label.end() :] if (label := _LABELS.match(line)) else line
        if header := _HEADER.match(unlabeled):
            if has_rows or (has_threads and header["threads"]):
                start = number if command <= starts[-1] else command
                starts, programs, has_rows, has_threads = [*starts, start], [*programs, ""], False, False
            has_threads = has_threads or bool(header["threads"])
        if _BARE_ROW.match(unlabeled):
            has_rows, command = True, 0
        elif has_rows and not command and _SETTING.search(line):
            command = number
        if "_perf" in line and (named := _PROGRAM.search(line)):
            program = named[0]
        programs[-1] = program if header or not programs[-1] else programs[-1]
    runs = []
    for start, end, name in zip(starts, [*starts[1:], len(lines)], programs, strict=True):
        part, is_cut = lines[start:end], False
        try:
            times = _Table(where, start).read(part)
        except CutShortError:
            if end < len(lines) or not _BARE_ROW.match(part[-1]):
                raise
            part, is_cut = part[:-1], True
            times = _Table(where, start).read(part)
        runs.append(MeasuredRun("\n".join(part), times, name, is_cut))
    return tuple(runs)


class CutShortError(FileFormatError):
    """A row has too few columns."""


class _Table:
    """Reads the table of nccl-tests line by line."""

    def __init__(self, where: str, lines_above: int = 0) -> None:
        self._where = where
        self._lines_above = lines_above
        self._columns: tuple[str, ...] = DEFAULT_COLUMNS
        self._places = _places(DEFAULT_COLUMNS)
        self._unit = 1.0
        self._collective: tuple[Collective | str, int] | None = None
        self._ranks: set[int] = set()
        self._num_ranks: int | None = None
        self._run: tuple[dict[str, object], int] | None = None  # what the first run measures, and its first line
        self._has_rows = False
        self._line = 0

    def read(self, lines: Sequence[str]) -> MeasuredTimes:
        rows: list[MeasuredRow] = []
        for number, line in enumerate(lines, self._lines_above + 1):
            self._line = number
            if _INFO in line[:MAX_PREFIX]:
                continue
            unlabeled = line
            if label := _LABELS.match(line):
                unlabeled, tag = line[label.end() :], label[0].strip()
                if tag.startswith("["):  # some launchers repeat it within a line
                    unlabeled = unlabeled.replace(tag, " ")
            words = unlabeled.split(maxsplit=MAX_COLUMNS)
            # Before a comment names the columns, lines of other programs may begin with a number.
            has_names = self._columns is not DEFAULT_COLUMNS
            # Pages that take "#" for markup swallow it.
            if words and (words[0].startswith("#") or words[0] in ("size", "(B)")):
                self._comment(unlabeled.strip(), words)
            elif words and re.fullmatch(r"\d{1,18}", words[0]) and (has_names or len(words) == len(DEFAULT_COLUMNS)):
                rows += self._row(words)
        return MeasuredTimes(
            self._where,
            None if self._collective is None else self._collective[0],
            self._count(),
            tuple(rows),
        )

    def _count(self) -> int | None:
        return self._num_ranks or (max(self._ranks) + 1 if self._ranks else None)

    def _comment(self, line: str, words: list[str]) -> None:
        if match := _STARTS.match(line):
            self._measures(match[1])
        elif match := _BENCH.match(line):
            self._measures(match[1])
            self._num_ranks = int(match[2])
        elif match := _RANK.match(line):
            # A list of devices after rows is that of another run.
            self._ranks = {int(match[1])} if self._has_rows else self._ranks | {int(match[1])}
            self._has_rows = False
        # The first word may be "#" alone or hold the first column, and the last row of names has units.
        names = [word for word in (words[0].lstrip("#"), *words[1:]) if word]
        if names and names[0] == "size" and any(name in TIME_COLUMNS for name in names):
            self._columns, self._places, self._unit = tuple(names), _places(tuple(names)), 1.0
        elif names[:2] == ["size", "count"]:
            raise FileFormatError(f"{self._place()} names columns, but no 'time' in µs; expected those of nccl-tests")
        elif names and all(_UNIT.fullmatch(name) for name in names):
            self._units(names)

    def _units(self, units: list[str]) -> None:
        """Read the unit of times from the row below the names; units of rates contain a slash."""
        size, *later_units = units
        time_units = {unit for unit in later_units if "/" not in unit and unit != "(elements)"}
        if size != "(B)" or len(time_units) > 1 or not time_units <= MICROSECONDS.keys():
            listing = ", ".join(dict.fromkeys([size, *sorted(time_units)]))
            raise FileFormatError(
                f"{self._place()} gives sizes and times in {listing}; expected (B), and one of "
                f"{', '.join(MICROSECONDS)}"
            )
        self._unit = MICROSECONDS[time_units.pop()] if time_units else 1.0

    def _measures(self, program: str) -> None:
        name = collective_by_name(program.rpartition("/")[2])
        if name is None:
            raise FileFormatError(f"{self._place()} measures {shown(program)}; expected a program of nccl-tests")
        if self._collective is not None and self._collective[0] != name:
            first, line = self._collective
            raise FileFormatError(
                f"{self._place()} starts {name} after the {first} of line {line}; put each into a file of its own"
            )
        self._collective = (name, self._line)

    def _same_run(self, words: list[str]) -> None:
        """Refuse a row of other ranks, another type or another operation than the first."""
        run: dict[str, object] = {"ranks": self._count()}
        run |= {name: words[place] for place, name in enumerate(self._columns[:4]) if name in ("type", "redop")}
        first, line = self._run = self._run or (run, self._line)
        self._has_rows = True
        for name in run.keys() & first.keys():
            if run[name] != first[name]:
                raise FileFormatError(
                    f"{self._place()} is of a run with {name} {shown(run[name])}, and line {line} of one with "
                    f"{shown(first[name])}; put each into a file of its own"
                )

    def _row(self, words: list[str]) -> Iterator[MeasuredRow]:
        by = "by" in self._columns
        expected = len(self._columns) - by
        places = self._places
        # Old programs leave cells blank that do not apply: a number is no operation, and a time no root.
        for name, other in (("redop", r"[-\d.]+"), ("root", r"\d*\.\d*")):
            cell = self._columns.index(name) if name in self._columns else MAX_COLUMNS
            if cell < len(words) < expected and re.fullmatch(other, words[cell]):
                words.insert(cell, "")
        if len(words) < expected and len(places) == 2 and len(words) == expected - (places[1].time - places[0].time):
            # Without a reading out of place, its columns are blank.
            places = (places[1]._replace(time=places[0].time, wrong_elements=places[0].wrong_elements),)
        elif len(words) < expected:
            raise CutShortError(f"{self._place()} has {len(words)} columns; expected {expected}: is it cut short?")
        self._same_run(words)
        redop, root = (words[self._columns.index(name)] if name in self._columns else "" for name in ("redop", "root"))
        for place in places:
            time = _number(words[place.time], f"{self._place()}: time")
            count = None if place.wrong_elements is None else words[place.wrong_elements]
            wrong_elements = _number(count, f"{self._place()}: #wrong")
            if time and (size := int(words[0])):
                name = " ".join(words[expected:]) if by else ""
                rounding = rounding_error(words[place.time]) * self._unit
                printed = None
                if self._columns[place.time + 1 : place.time + 3] == ("algbw", "busbw"):
                    algbw, busbw = (_number(words[place.time + 1 + at], f"{self._place()}: bandwidth") for at in (0, 1))
                    printed = None if algbw is None or busbw is None else (algbw, busbw)
                number = int(root) if re.fullmatch(r"\d{1,9}", root) else None
                yield MeasuredRow(
                    size, time * self._unit, place.in_place, name, wrong_elements, rounding, printed, number, redop
                )

    def _place(self) -> str:
        return f"{self._where}, line {self._line}"


def _places(columns: tuple[str, ...]) -> tuple[_Place, ...]:
    """Find the columns of times and wrong elements; `error` of old versions is no count."""
    times = [number for number, name in enumerate(columns) if name in TIME_COLUMNS][:2]
    ends = [*times[1:], len(columns)]
    return tuple(
        _Place(time, columns.index("#wrong", time, end) if "#wrong" in columns[time:end] else None, place == 1)
        for place, (time, end) in enumerate(zip(times, ends, strict=True))
    )


class _PrintedNumber(float):
    """A number with its rounding error as printed."""

    rounding: float

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.rounding = rounding_error(text)
        return number


def read_results(text: str, where: str) -> MeasuredTimes:
    """Read measured times from JSON; sizes in bytes."""
    data = decode_json(text, where, parse_float=_PrintedNumber)
    if isinstance(data, list):
        return _flat_results(data, where)
    if not isinstance(data, Mapping) or not isinstance(data.get("results"), list):
        raise FileFormatError(f"{where} has no list 'results'; expected the JSON that nccl-tests writes with -J")
    rows: list[MeasuredRow] = []
    for number, result in enumerate(data["results"]):
        at = f"{where}, results[{number}]"
        entry = _mapping(result, at)
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            if entry.get(key) is not None:
                rows += _json_row(entry, _mapping(entry[key], f"{at}.{key}"), in_place, f"{at}.{key}")
    return MeasuredTimes(where, _collective(data, where), _num_ranks(data), tuple(rows))


def _flat_results(data: Sequence[object], where: str) -> MeasuredTimes:
    rows: list[MeasuredRow] = []
    names: dict[Collective | str | None, None] = {}
    ranks: set[int] = set()
    for number, result in enumerate(data):
        at = f"{where}, entry {number}"
        entry = _mapping(result, at)
        names[collective_by_name(str(entry.get("name", "")))] = None
        ranks.add(_integer(entry.get("ranks", 0), f"{at}: ranks"))
        rows += _json_row(entry, entry, bool(entry.get("inPlace")), at)
    if len(names) > 1 or len(ranks) > 1:
        what = ", ".join(map(str, names)) if len(names) > 1 else f"runs of {', '.join(map(str, sorted(ranks)))} ranks"
        raise FileFormatError(f"{where} holds {what}; put each into a file of its own")
    return MeasuredTimes(where, next(iter(names), None), max(ranks, default=0) or None, tuple(rows))


def _mapping(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FileFormatError(f"{at} is {shown(value)}; expected an object")
    return value


def _json_row(entry: Mapping[str, Any], reading: Mapping[str, Any], in_place: bool, at: str) -> Iterator[MeasuredRow]:
    """Yield one row, or none if nothing was measured."""
    size = _integer(entry.get("size"), f"{at}: size")
    time, wrong_key = (next((key for key in keys if key in reading), keys[0]) for keys in (TIME_KEYS, WRONG_KEYS))
    microseconds, count = (_number(reading.get(key), f"{at}: {key}") for key in (time, wrong_key))
    # nccl-tests leaves the name empty where there is nothing to tell apart.
    by = entry.get("experiment_name")
    if size and microseconds:
        rounding = min(ROUNDING, getattr(reading[time], "rounding", ROUNDING))
        yield MeasuredRow(size, microseconds, in_place, by if isinstance(by, str) else "", count, rounding)


def _integer(value: object, at: str) -> int:
    return as_whole(value, at, low=0, high=10**18, error=FileFormatError)


def _number(value: object, at: str) -> float | None:
    """Read a number, or None for null and the placeholders of nccl-tests and rccl-tests."""
    if value is None or (isinstance(value, str) and value.upper() in ("N/A", "NAN", "-NAN")):
        return None
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise FileFormatError(f"{at} is {shown(value)}; expected a number of at least 0, or N/A")
    return number


def _collective(data: Mapping[str, Any], where: str) -> Collective | str | None:
    if "collective" in data:
        if name := collective_by_name(str(data["collective"])):
            return name
        raise FileFormatError(f"{where}: collective is {shown(data['collective'])}; expected one of nccl-tests")
    words = data.get("args")
    program = words[0] if isinstance(words, list) and words else ""
    return collective_by_name(program.rpartition("/")[2]) if isinstance(program, str) else None


def _num_ranks(data: Mapping[str, Any]) -> int | None:
    devices = data.get("devices")
    count = data.get("num_ranks", len(devices) if isinstance(devices, list) else 0)
    return count if is_int(count) and 0 < count < 10**9 else None
