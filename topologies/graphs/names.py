"""Names of expanded graphs, in the notation of the direct-connect paper."""

import re
from collections.abc import Sequence
from itertools import accumulate

MAX_OFFSETS = 32  # offsets that a name lists


def operand(name: str, inside: str = "") -> str:
    """Put a name in parentheses if it has an operator outside of parentheses."""
    outside = name
    while (stripped := re.sub(r"\([^()]*\)", "", outside)) != outside:
        outside = stripped
    outside = re.sub(r"^L\^\d+$", "L", outside)  # the ^2 of L^2(...) is not an operator on the result
    return f"({name})" if re.search("[∪]" if inside == "□" else "[□∪*^·]", outside) else name


def line_graph_name(name: str, times: int) -> str:
    """Name the iterated line graph of a graph."""
    match = re.fullmatch(r"L(?:\^(\d+))?\((.*)\)", name)
    if match and _is_balanced(match[2]):
        name, times = match[2], times + int(match[1] or 1)
    return f"L({name})" if times == 1 else f"L^{times}({name})"


def offset_names(offsets: Sequence[int]) -> str:
    """Format the offsets of a circulant graph for its name; of many, the first three and their number."""
    listed = ", ".join(map(str, offsets if len(offsets) <= MAX_OFFSETS else offsets[:3]))
    return f"{{{listed}}}" if len(offsets) <= MAX_OFFSETS else f"{{{listed}, ... {len(offsets)} offsets}}"


def _is_balanced(text: str) -> bool:
    """Return whether the parentheses of a text are balanced."""
    depths = list(accumulate((char == "(") - (char == ")") for char in text))
    return min(depths, default=0) >= 0 and (not depths or depths[-1] == 0)
