"""What a model computes, layer by layer: the table that a simulated training iteration starts from.

One row per layer, in the order of the forward pass:

====================  ==================================================================================
column                meaning
====================  ==================================================================================
``name``              for people, and for the timeline
``forward_us``        µs of computation on the way forward
``backward_us``       µs of computation on the way back
``gradient_bytes``    bytes of gradients that all ranks add up; 0 for experts, which no other rank has
``all_to_all_bytes``  bytes that every rank sends to the experts, and that come back, each way; 0 elsewhere
====================  ==================================================================================
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import TYPE_CHECKING, Any, TypeAlias

from collopt.errors import FileFormatError, TopologyError, UnsupportedError
from collopt.support.files import name_of, read_text
from collopt.support.validation import as_list, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "Layer", "TraceTable", "as_exact", "read_compute_trace"]

COLUMNS = ("name", "forward_us", "backward_us", "gradient_bytes", "all_to_all_bytes")

TraceTable: TypeAlias = "str | os.PathLike[str] | pd.DataFrame | Iterable[Layer] | Iterable[Mapping[str, Any]]"
"""A CSV file, a table of pandas, or rows."""

MAX_BYTES = 2**26
"""Of a file: millions of layers."""
LARGEST = 10**18
"""Of µs and of bytes; more is a typing error."""
_NUMBER = re.compile(r"\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,2})?|\d{1,40}/\d{1,40}", re.ASCII)


@dataclass(frozen=True)
class Layer:
    """One row of a compute trace.

    `name`: For people.
    `forward_us`, `backward_us`: µs of computation.
    `gradient_bytes`: What the ranks add up with an allreduce.
    `all_to_all_bytes`: What every rank sends to the experts in all, and gets back.
    """

    name: str
    forward_us: Fraction
    backward_us: Fraction
    gradient_bytes: int
    all_to_all_bytes: int


def read_compute_trace(table: TraceTable) -> tuple[Layer, ...]:
    """Read a compute trace and check every value.

    >>> read_compute_trace([
    ...     {"name": "mlp", "forward_us": 0.1, "backward_us": 2, "gradient_bytes": 8, "all_to_all_bytes": 0}
    ... ])
    (Layer(name='mlp', forward_us=Fraction(1, 10), backward_us=Fraction(2, 1), gradient_bytes=8, all_to_all_bytes=0),)
    """
    if isinstance(table, (str, os.PathLike)):
        return _from_file(table)
    rows = as_records(table)
    if not rows:
        raise UnsupportedError("the compute trace has no rows; expected one per layer")
    return tuple(row if isinstance(row, Layer) else _layer(row, number) for number, row in enumerate(rows, start=1))


def as_records(table: object) -> tuple[Any, ...]:
    """Go through a DataFrame or any other iterable row by row."""
    if hasattr(table, "to_dict") and hasattr(table, "columns"):
        return tuple(table.to_dict("records"))
    try:
        return as_list(table, "the rows of the compute trace")
    except TopologyError as error:
        raise UnsupportedError(f"{error} of mappings, a DataFrame, or the path of a CSV file") from None


def _from_file(path: str | os.PathLike[str]) -> tuple[Layer, ...]:
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path, MAX_BYTES), newline=""), strict=True))
    except csv.Error as error:
        raise FileFormatError(f"{name_of(path)} cannot be read as CSV: {error}") from None
    try:
        return read_compute_trace(rows)
    except UnsupportedError as error:
        raise FileFormatError(f"{name_of(path)}: {error}") from None


def _layer(row: object, number: int) -> Layer:
    if not isinstance(row, Mapping):
        raise UnsupportedError(f"row {number} of the compute trace is {shown(row)}; expected a mapping with {_named()}")
    _check_columns(row, number)
    name = row["name"]
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise UnsupportedError(f"name of row {number} of the compute trace is {shown(name)}; expected printable text")
    where = f"of layer {name!r} (row {number})"
    return Layer(
        name,
        as_exact(row["forward_us"], f"forward_us {where}"),
        as_exact(row["backward_us"], f"backward_us {where}"),
        _whole(row["gradient_bytes"], f"gradient_bytes {where}"),
        _whole(row["all_to_all_bytes"], f"all_to_all_bytes {where}"),
    )


def _check_columns(row: Mapping[str, Any], number: int) -> None:
    missing = [column for column in COLUMNS if row.get(column) is None]
    if missing:
        raise UnsupportedError(f"row {number} of the compute trace has no {missing[0]}; expected {_named()}")
    unknown = [column for column in row if column not in COLUMNS]
    if unknown:
        # csv.DictReader files what a row has too much of under None.
        what = "more values than columns" if unknown[0] is None else f"the unknown column {shown(unknown[0])}"
        raise UnsupportedError(f"row {number} of the compute trace has {what}; expected {_named()}")


def as_exact(value: object, what: str) -> Fraction:
    """Read a number of at least 0 exactly; floats, which may be measured, by their shortest decimal form.

    Unlike the numbers of a topology, it may have any number of decimals.
    """
    refusal = UnsupportedError(f"{what} is {shown(value)}; expected a number of at least 0 and below 10^18")
    if isinstance(value, bool):
        raise refusal
    if isinstance(value, float) and math.isfinite(value):
        value = repr(float(value))
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        try:
            value = Fraction(value.strip())
        except ZeroDivisionError:
            raise refusal from None
    if not isinstance(value, Rational):
        raise refusal
    # Numpy integers would stay inside the fraction and overflow later.
    exact = Fraction(int(value.numerator), int(value.denominator))
    if not 0 <= exact < LARGEST:
        raise refusal
    return exact


def _whole(value: object, what: str) -> int:
    amount = as_exact(value, what)
    if amount.denominator != 1:
        raise UnsupportedError(f"{what} is {shown(value)}; expected a whole number of bytes")
    return amount.numerator


def _named() -> str:
    return "the columns " + ", ".join(COLUMNS)
