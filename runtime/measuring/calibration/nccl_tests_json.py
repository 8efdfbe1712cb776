"""Reads the JSON of nccl-tests (``-J``), of rccl-tests, and of ``collopt bench --json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from ....errors import FileFormatError
from ....schedules import Collective
from ....support.validation import shown
from .measured_times import MeasuredRow, MeasuredTimes, collective_called, half_digit

__all__ = ["read_results"]

MAX_DIGITS = 100
TIMES = ("time", "cpu_time")
ROUNDING = 0.005
"""Microseconds at most: a number of few digits may be the whole number, which a table would have cut to two."""


class _Printed(float):
    """A number that knows with how many digits it was written."""

    rounding: float

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.rounding = half_digit(text)
        return number


def read_results(text: str, where: str) -> MeasuredTimes:
    """Read measured times.

    Units: result in bytes.
    """
    data = _decoded(text, where)
    if isinstance(data, list):
        return _of_flat(data, where)
    if not isinstance(data, Mapping) or not isinstance(data.get("results"), list):
        raise FileFormatError(f"{where} has no list 'results'; expected the JSON that nccl-tests writes with -J")
    rows: list[MeasuredRow] = []
    for number, result in enumerate(data["results"]):
        at = f"{where}, results[{number}]"
        entry = _mapping(result, at)
        by = entry.get("experiment_name")
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            if entry.get(key) is not None:
                reading = _mapping(entry[key], f"{at}.{key}")
                # nccl-tests leaves the name empty where there is nothing to tell apart.
                rows += _row(entry, reading, "nwrong", in_place, by if isinstance(by, str) else "", f"{at}.{key}")
    return MeasuredTimes(where, _collective(data, where), _num_ranks(data), tuple(rows))


def _of_flat(data: Sequence[object], where: str) -> MeasuredTimes:
    rows: list[MeasuredRow] = []
    names: dict[Collective | str | None, None] = {}
    ranks = 0
    for number, result in enumerate(data):
        at = f"{where}, entry {number}"
        entry = _mapping(result, at)
        names[collective_called(str(entry.get("name", "")))] = None
        ranks = max(ranks, _whole(entry.get("ranks", 0), f"{at}: ranks"))
        rows += _row(entry, entry, "wrong", bool(entry.get("inPlace")), "", at)
    if len(names) > 1:
        raise FileFormatError(f"{where} holds {', '.join(map(str, names))}; put each into a file of its own")
    return MeasuredTimes(where, next(iter(names), None), ranks or None, tuple(rows))


def _decoded(text: str, where: str) -> object:
    try:
        return json.loads(text, parse_int=_short_integer, parse_float=_Printed)
    except json.JSONDecodeError as error:
        raise FileFormatError(
            f"{where} is not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); is it cut short?"
        ) from None
    except RecursionError:
        raise FileFormatError(f"{where} is nested too deeply; expected the few levels of nccl-tests") from None
    except ValueError as error:
        raise FileFormatError(f"{where}: {error}") from None


def _row(
    entry: Mapping[str, Any], reading: Mapping[str, Any], wrong: str, in_place: bool, by: str, at: str
) -> list[MeasuredRow]:
    """Return one row, or none where nothing was measured."""
    key = next((key for key in TIMES if key in reading), "time")
    size = _whole(entry.get("size"), f"{at}: size")
    time, count = _number(reading.get(key), f"{at}: {key}"), _number(reading.get(wrong), f"{at}: {wrong}")
    rounding = min(ROUNDING, getattr(reading.get(key), "rounding", ROUNDING))
    return [MeasuredRow(size, time, in_place, by, count, rounding)] if size and time else []


def _mapping(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FileFormatError(f"{at} is {shown(value)}; expected an object")
    return value


def _whole(value: object, at: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**18:
        raise FileFormatError(f"{at} is {shown(value)}; expected a whole number")
    return value


def _number(value: object, at: str) -> float | None:
    """Read a number, or None for null and for what nccl-tests and rccl-tests write instead of one."""
    if value is None or (isinstance(value, str) and value.upper() in ("NAN", "N/A")):
        return None
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise FileFormatError(f"{at} is {shown(value)}; expected a number of at least 0")
    return number


def _collective(data: Mapping[str, Any], where: str) -> Collective | str | None:
    if "collective" in data:
        if name := collective_called(str(data["collective"])):
            return name
        raise FileFormatError(f"{where}: collective is {shown(data['collective'])}; expected one of nccl-tests")
    words = data.get("args")
    program = words[0] if isinstance(words, list) and words else ""
    return collective_called(program.rpartition("/")[2]) if isinstance(program, str) else None


def _num_ranks(data: Mapping[str, Any]) -> int | None:
    devices = data.get("devices")
    count = data.get("num_ranks", len(devices) if isinstance(devices, list) else 0)
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 < count < 10**9 else None


def _short_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits; expected at most {MAX_DIGITS}")
    return int(text)
