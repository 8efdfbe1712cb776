"""A model made of blocks, open to more constraints and other objectives like those in Pyomo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .block_input import Numbers, in_one_row
from .blocks import BlockProgram, Blocks

__all__ = ["BlockModel", "Terms"]

Terms = Sequence[tuple[npt.ArrayLike, Numbers]]
"""``(columns, coefficients)`` pairs that broadcast against each other; their products are added up."""


@dataclass(frozen=True, eq=False, repr=False)
class BlockModel:
    """A linear program in blocks, open to more constraints and to other objectives.

    `blocks`: For whole blocks of variables or constraints; what is added counts from the next solve on.
    """

    blocks: Blocks

    def constrain(self, name: str, terms: Terms, *, lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add a constraint."""
        self.blocks.constraint(name, (), in_one_row(terms, f"constraint {name!r}"), lower=lower, upper=upper)

    def maximize(self, terms: Terms) -> None:
        """Replace the objective by the greatest sum of the terms; `UnsupportedError` as for `constrain`."""
        self.blocks.maximize(terms)

    def minimize(self, terms: Terms) -> None:
        """Replace the objective by the least sum of the terms; `UnsupportedError` as for `constrain`."""
        self.blocks.minimize(terms)

    def __repr__(self) -> str:
        """One line in angle brackets."""
        return f"<{type(self).__name__} {self.blocks.name}>"

    def linear_program(self) -> BlockProgram:
        """Return the program as it stands, as the arrays that `collopt.solve` reads."""
        return self.blocks.linear_program()
