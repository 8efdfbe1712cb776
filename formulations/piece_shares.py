"""Shares of a pattern of hops in each step: uneven pieces that keep rails and boxes busy at the same time.

A pattern has kinds of hops, such as those along rails and those inside boxes; hops of one kind are made with all of a
shard, piece by piece.  What rails bring in one step can be spread in boxes in the next; pieces of unequal sizes, as in
lot streaming (Potts and Baker, Operations Research Letters 8(6), 1989), keep both busy.

==================  =========================================================  =================================
name                meaning                                                    equation
==================  =========================================================  =================================
variables
``share``           part of each shard that hops of a kind carry in a step     x(c, i), c a kind, i a step
``time``            ns per byte of a shard                                     t(i)
constraints
``whole``           hops of each kind carry all                                sum of x(c, i) over i = 1
``arrived``         no hop carries what did not come by the hop before it      sum to i of x(c) <= to i-1 of x(p(c))
``link_time``       a step lasts as long as its busiest link                   sum of load(c, e) x(c, i) <= b(e) t(i)
==================  =========================================================  =================================

The objective is the sum of t(i), to be minimized; load(c, e) counts the shards that hops of kind c put on link e, and
hops of kind c go on from those of kind p(c), or start at the sources.  Stated in `Blocks`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..support.arrays import FloatArray
from ..support.validation import as_whole, shown
from .blocks import BlockModel, Blocks, as_floats

__all__ = ["HopKind", "build"]

MAX_STEPS = 1000


class HopKind(NamedTuple):
    """A kind of hops: their `loads`, shards on each link, and the kind `before` them, by its place in the list.

    None is before hops that start at the sources.
    """

    loads: npt.ArrayLike
    before: int | None = None


def build(kinds: Sequence[HopKind], bandwidths: npt.ArrayLike, steps: int) -> BlockModel:
    """State the least time of a pattern of hops in a number of steps.

    Raises `UnsupportedError` if the arguments are not of the form below, or the steps are fewer than the hops in a row.

    Parameters
    ----------
    kinds : sequence of HopKind
        Each after the one that it goes on from.
    bandwidths : array_like, shape (links,)
        Of the links that loads are given for, in GB/s.
    steps : int
        At least as many as hops in a row.
    """
    if not kinds:
        raise UnsupportedError("there are no kinds of hops; expected at least one")
    widths = as_floats(bandwidths, "a bandwidth")
    loads = np.stack([_checked_loads(kind, place, widths) for place, kind in enumerate(kinds)])
    count, depths = as_whole(steps, "steps", high=MAX_STEPS), _depths(kinds)
    if count < max(depths):
        raise UnsupportedError(f"steps is {count}, but hops follow each other {max(depths)} times; ask for as many")
    blocks = Blocks(f"shares of {len(kinds)} kinds of hops in {count} steps")
    share = blocks.variables("share", (len(kinds), count))
    time = blocks.variables("time", count)
    model = BlockModel(blocks)
    blocks.constraint("whole", len(kinds), [(np.arange(len(kinds))[:, None], share, 1.0)], lower=1.0, upper=1.0)
    _arrived(model, kinds)
    _link_time(model, loads, widths)
    model.minimize([(time, 1.0)])
    return model


def _arrived(model: BlockModel, kinds: Sequence[HopKind]) -> None:
    """Sum of x(c, j) over j <= i is at most that of x(p(c), j) over j < i, for kinds that go on from others."""
    later = [place for place, kind in enumerate(kinds) if kind.before is not None]
    earlier = [kind.before for kind in kinds if kind.before is not None]
    share = model.variables.share
    steps = share.shape[1]
    through, step = np.tril_indices(steps)  # of steps j <= i
    before = through > step
    rows = np.arange(len(later))[:, None] * steps
    terms = [
        (rows + through, share[later][:, step], 1.0),
        (rows + through[before], share[earlier][:, step[before]], -1.0),
    ]
    model.blocks.constraint("arrived", (len(later), steps), terms, upper=0.0)


def _link_time(model: BlockModel, loads: FloatArray, widths: FloatArray) -> None:
    """Sum of load(c, e) x(c, i) is at most b(e) t(i), for each step and link."""
    share, time = model.variables.share, model.variables.time
    steps, links = len(time), len(widths)
    rows = np.arange(steps)[:, None] * links + np.arange(links)
    terms = [(rows, time[:, None], -widths)]
    terms += [(rows, share[place][:, None], kind) for place, kind in enumerate(loads)]
    model.blocks.constraint("link_time", (steps, links), terms, upper=0.0)


def _checked_loads(kind: HopKind, place: int, widths: FloatArray) -> FloatArray:
    loads = as_floats(kind.loads, f"a load of kind {place}")
    if widths.ndim != 1 or loads.shape != widths.shape or not (loads >= 0).all() or not (widths > 0).all():
        raise UnsupportedError(
            f"kind {place} has loads {shown(kind.loads)}; expected one of at least 0 for each of the links, whose "
            "bandwidths are positive"
        )
    return loads


def _depths(kinds: Sequence[HopKind]) -> list[int]:
    """Hops in a row up to each kind."""
    depths: list[int] = []
    for place, kind in enumerate(kinds):
        if kind.before is not None and not 0 <= kind.before < place:
            raise UnsupportedError(f"kind {place} goes on from {shown(kind.before)}; expected one listed before")
        depths.append(1 if kind.before is None else depths[kind.before] + 1)
    return depths
