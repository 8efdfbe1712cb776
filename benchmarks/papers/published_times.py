"""Measured times of collectives that others published, with what ran.

ForestColl, arXiv 2402.06787, tables 2 and 3: algbw in GB/s of 1M, 16M, 128M and 1G on 16+16 and 8+8 MI250 GCDs and on
16 A100.  The paper states neither hops nor line rates; they are:

- hops of the schedule as figures 7 and 9 show it (trees of 8 hops on A100, two chains in boxes of 8; 9 and 6 on MI250;
  TACCL as ForestColl), N - 1 for a ring, 2 (g - 1 + log2 B) for the library's tree on B boxes of g ranks; twice the
  hops of one phase for an allreduce;
- algbw at line rate as our bounds and ring plans have it on `dgx_a100` and `mi250` of two boxes; that of 8+8 GCDs is
  assumed, as their network is not described.
"""

from __future__ import annotations

from typing import NamedTuple

SIZES = (2**20, 2**24, 2**27, 2**30)


class Series(NamedTuple):
    """Times of one collective by one algorithm."""

    platform: str
    algorithm: str
    collective: str
    hops: int
    line_rate: float  # GB/s of algbw
    algbw: tuple[float, ...]  # GB/s, of each size

    @property
    def times(self) -> list[float]:
        """Microseconds."""
        return [size / algbw / 1e3 for size, algbw in zip(SIZES, self.algbw, strict=True)]


SERIES = (
    Series("A100", "forestcoll", "allgather", 8, 346.667, (13.1, 92.6, 201, 247)),
    Series("A100", "forestcoll", "reduce_scatter", 8, 346.667, (9.24, 72.5, 185, 247)),
    Series("A100", "forestcoll", "allreduce", 16, 173.333, (5.75, 41.4, 107, 122)),
    Series("A100", "taccl", "allgather", 8, 346.667, (6.67, 56.4, 150, 213)),
    Series("A100", "ring", "allgather", 15, 213.333, (3.17, 37.6, 152, 187)),
    Series("A100", "ring", "reduce_scatter", 15, 213.333, (3.17, 37.5, 151, 190)),
    Series("A100", "ring", "allreduce", 30, 106.667, (1.75, 20.8, 78.3, 95.3)),
    Series("A100", "tree", "allreduce", 16, 173.333, (4.47, 34.8, 71.9, 96.8)),
    Series("MI250 16+16", "forestcoll", "allgather", 9, 354.133, (9.3, 69.8, 152, 174)),
    Series("MI250 16+16", "forestcoll", "reduce_scatter", 9, 354.133, (9.75, 68.8, 146, 177)),
    Series("MI250 16+16", "forestcoll", "allreduce", 18, 177.067, (5.26, 42.3, 78.3, 87.4)),
    Series("MI250 16+16", "taccl", "allgather", 9, 354.133, (9.73, 54.4, 96.5, 108)),
    Series("MI250 16+16", "ring", "allgather", 31, 264.258, (2.98, 35.2, 111, 165)),
    Series("MI250 16+16", "ring", "reduce_scatter", 31, 264.258, (2.98, 35.9, 114, 163)),
    Series("MI250 16+16", "ring", "allreduce", 62, 132.129, (1.55, 18.3, 56.7, 82.9)),
    Series("MI250 16+16", "blink", "allreduce", 18, 177.067, (5.12, 31.6, 60.5, 75.4)),
    Series("MI250 16+16", "tree", "allreduce", 32, 177.067, (4.69, 33.0, 67.3, 86.5)),
    Series("MI250 8+8", "forestcoll", "allgather", 6, 200, (12.8, 70.8, 111, 121)),
    Series("MI250 8+8", "forestcoll", "reduce_scatter", 6, 200, (12.9, 64.8, 99.5, 109)),
    Series("MI250 8+8", "forestcoll", "allreduce", 12, 100, (7.46, 39.5, 57.7, 61.4)),
    Series("MI250 8+8", "taccl", "allgather", 6, 200, (10.7, 54.9, 78.8, 84.7)),
    Series("MI250 8+8", "ring", "allgather", 15, 136.5, (2.43, 32.1, 44.6, 44.9)),
    Series("MI250 8+8", "ring", "reduce_scatter", 15, 136.5, (2.34, 31.7, 44.9, 45.0)),
    Series("MI250 8+8", "ring", "allreduce", 30, 68.25, (1.23, 16.6, 22.5, 23.0)),
    Series("MI250 8+8", "blink", "allreduce", 12, 100, (5.46, 29.4, 42.5, 45.0)),
    Series("MI250 8+8", "tree", "allreduce", 16, 100, (6.44, 26.8, 36.0, 37.0)),
)
