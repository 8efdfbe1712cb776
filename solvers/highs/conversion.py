"""Programs, bases and values in HiGHS's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...support.arrays import FloatArray, IntArray
from ..lp.program import LinearProgram

__all__ = ["entries", "highs_basis", "highs_model", "highspy_module", "kinds", "spread"]


def highspy_module() -> Any:
    """Import HiGHS, whose type information is incomplete."""
    import highspy

    return highspy


def entries(part: Any) -> tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int32], FloatArray]:
    """The entries of compressed rows or columns, as HiGHS takes them."""
    return part.nnz, part.indptr[:-1].astype(np.int32), part.indices.astype(np.int32), part.data


def kinds() -> tuple[Any, Any]:
    """HiGHS's kinds of columns: continuous and whole."""
    types = highspy_module().HighsVarType
    return types.kContinuous, types.kInteger


def spread(program: LinearProgram, values: Mapping[str, Any]) -> tuple[IntArray, FloatArray]:
    """Columns that are given, and their values."""
    columns, numbers = [], []
    for name, given in values.items():
        if name not in program.variables:
            known = ", ".join(program.variables)
            raise UnsupportedError(f"the start names variable {name!r}, which {program.name} has not; it has {known}")
        block = program.variables[name]
        columns.append(block.positions.ravel())
        numbers.append(np.ravel(block.spread(given)))
    return np.concatenate([np.empty(0, dtype=np.int64), *columns]), np.concatenate([np.empty(0), *numbers])


def highs_basis(columns: IntArray, rows: IntArray) -> Any:
    """States of columns and rows, by the numbers of `collopt.solvers.lp.basis`, as HiGHS takes them."""
    highspy = highspy_module()
    states = [highspy.HighsBasisStatus(number) for number in range(5)]
    basis = highspy.HighsBasis()
    basis.col_status, basis.row_status = [states[at] for at in columns], [states[at] for at in rows]
    # Blocks that came or went can leave too many or too few basic: HiGHS mends an alien basis.
    basis.valid = basis.alien = True
    return basis


def highs_model(program: LinearProgram, sign: float) -> Any:
    """A program as HiGHS takes it, with its costs and offset multiplied by a sign."""
    highspy = highspy_module()
    rows, columns = program.matrix.shape
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, rows
    model.col_cost_, model.offset_ = sign * program.costs, sign * program.offset
    model.col_lower_, model.col_upper_ = program.column_bounds
    model.row_lower_, model.row_upper_ = program.row_bounds
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = program.matrix.indptr
    model.a_matrix_.index_ = program.matrix.indices
    model.a_matrix_.value_ = program.matrix.data
    if program.whole.any():
        model.integrality_ = [kinds()[int(whole)] for whole in program.whole]
    return model
