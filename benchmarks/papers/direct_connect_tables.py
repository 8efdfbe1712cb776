"""Rows of tables 4, 7 and 8 of the direct-connect paper, as it prints them, with our constructions of the graphs."""

from __future__ import annotations

from typing import NamedTuple

from collopt.planners.direct_connect.constructions import (
    Base,
    CartesianPower,
    CartesianProduct,
    Construction,
    LineGraph,
)

K44 = Base("complete_bipartite", (4,), "K(4, 4)")
DIST_REG = Base("distance_regular", (32,), "DistReg(4, 32)")
DIAMOND = Base("diamond", (), "Diamond")
DBJ_MOD_2_4 = Base("modified_de_bruijn", (2, 4), "DBJMod(2, 4)")
DBJ_MOD_4_2 = Base("modified_de_bruijn", (4, 2), "DBJMod(4, 2)")


def kautz_like(nodes: int) -> Base:
    """The paper's Pi_{4, nodes}."""
    return Base("generalized_kautz", (4, nodes), f"Π(4, {nodes})")


def one_way_ring(nodes: int) -> Base:
    """The paper's UniRing(1, nodes)."""
    return Base("unidirectional_ring", (1, nodes), f"UniRing(1, {nodes})")


def lines(base: Construction, times: int) -> Construction:
    """L^times(base)."""
    for _ in range(times):
        base = LineGraph(base)
    return base


class Printed(NamedTuple):
    """A row of Table 4 or 7: T_L in alpha, T_B in M/B to three decimals, diameter, and f of all-to-all."""

    nodes: int
    construction: Construction
    steps: int
    decimals: str
    diameter: int
    rate: str


TABLES_4_AND_7 = [
    Printed(32, lines(K44, 1), 3, "1.000", 3, "5.71e-2"),
    Printed(32, DIST_REG, 4, "0.969", 4, "5.26e-2"),
    Printed(64, kautz_like(64), 3, "1.312", 3, "2.17e-2"),
    Printed(64, lines(DBJ_MOD_4_2, 1), 4, "1.000", 4, "2.21e-2"),
    Printed(64, CartesianPower(DIAMOND, 2), 6, "0.984", 6, "1.87e-2"),
    Printed(128, lines(K44, 2), 4, "1.031", 4, "9.89e-3"),
    Printed(128, lines(DIST_REG, 1), 5, "1.000", 5, "9.26e-3"),
    Printed(
        128,
        CartesianProduct((Base("bidirectional_ring", (2, 8), "BiRing(2, 8)"), one_way_ring(4), one_way_ring(4))),
        10,
        "0.992",
        10,
        "5.21e-3",
    ),
    Printed(256, Base("de_bruijn", (4, 4), "DBJ(4, 4)"), 4, "1.328", 4, "4.04e-3"),
    Printed(256, lines(DBJ_MOD_4_2, 2), 5, "1.016", 5, "4.10e-3"),
    Printed(256, lines(CartesianPower(DIAMOND, 2), 1), 7, "1.000", 7, "3.62e-3"),
    Printed(256, CartesianPower(DBJ_MOD_2_4, 2), 10, "0.996", 8, "2.94e-3"),
    Printed(512, lines(K44, 3), 5, "1.039", 5, "1.88e-3"),
    Printed(512, lines(DIST_REG, 2), 6, "1.008", 6, "1.78e-3"),
    # Printed with BiRing(1, 4), which has an odd degree; the row's figures are those of UniRing(1, 4).
    Printed(
        512,
        lines(CartesianProduct((one_way_ring(4), one_way_ring(4), one_way_ring(4), one_way_ring(2))), 1),
        11,
        "1.000",
        11,
        "1.12e-3",
    ),
    Printed(
        512,
        CartesianProduct((one_way_ring(4), one_way_ring(4), one_way_ring(4), one_way_ring(8))),
        16,
        "0.998",
        16,
        "5.58e-4",
    ),
    Printed(1024, kautz_like(1024), 5, "1.332", 5, "8.01e-4"),
    Printed(1024, lines(Base("circulant", (16, (3, 4)), "C(16, {3, 4})"), 3), 6, "1.020", 6, "8.12e-4"),
    Printed(1024, lines(CartesianPower(DIAMOND, 2), 2), 8, "1.004", 8, "7.34e-4"),
    Printed(1024, lines(CartesianPower(DBJ_MOD_2_4, 2), 1), 11, "1.000", 9, "6.18e-4"),
    Printed(
        1024,
        CartesianProduct((one_way_ring(4), one_way_ring(4), one_way_ring(8), one_way_ring(8))),
        20,
        "0.999",
        20,
        "2.79e-4",
    ),
]
TABLE_8 = [
    (6, 2, 2, 2),
    (9, 2, 2, 2),
    (10, 3, 2, 2),
    (14, 3, 2, 2),
    (15, 3, 2, 2),
    (16, 4, 2, 2),
    (21, 3, 2, 3),
    (26, 3, 3, 3),
    (32, 4, 3, 3),
    (35, 3, 3, 3),
    (45, 4, 3, 3),
    (70, 7, 3, 4),
    (80, 4, 3, 4),
    (189, 6, 4, 5),
    (728, 6, 5, 6),
]
