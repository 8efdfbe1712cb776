"""Linear programs with alike columns and rows folded into one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import collopt
from collopt import Topology
from collopt.errors import CertificateError
from collopt.formulations import all_to_all, throughput
from collopt.solvers.lp import folding
from collopt.topologies import ring, torus
from sample_sizes import examples
from strategies import eulerian_topologies


@given(eulerian_topologies(max_ranks=5))
@settings(max_examples=examples(20))
def test_folding_keeps_the_optimum(topology: Topology) -> None:
    """The exact optimum, its values and dual values are those of the whole program."""
    model = throughput.build(topology)
    answer = folding.solve_folded(model)
    answer.verify()
    assert answer.objective == collopt.solve(model).exact.objective


def test_symmetric_networks_fold_to_a_few_columns() -> None:
    """All ranks of a torus are alike, and all of a ring; what is left does not grow with a program of either way."""
    sizes = []
    for sides in ((4, 4), (6, 6)):
        rows, columns = folding.equitable_classes(throughput.build(torus(*sides)).linear_program())
        sizes.append((rows.max() + 1, columns.max() + 1))
    assert max(sizes[-1]) < 40
    rows, columns = folding.equitable_classes(throughput.build(ring(3)).linear_program().linear_program())
    assert (rows.max() + 1, columns.max() + 1) == (6, 5)


def test_wrong_classes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are not alike but folded, as by a collision of hashes, fail the check on the whole program."""
    model = throughput.build(Topology.from_links([("a", "b", 1), ("b", "a", 3)], compute="ab"))
    program = model.linear_program()
    rows, columns = folding.equitable_classes(program)
    rows = np.where(np.arange(len(rows)) < 2, rows[1], rows)
    rows = np.unique(rows, return_inverse=True)[1]
    monkeypatch.setattr(folding, "equitable_classes", lambda _: (rows, columns))
    with pytest.raises(CertificateError):
        folding.solve_folded(model)


@given(eulerian_topologies(max_ranks=5))
@settings(max_examples=examples(20))
def test_both_programs_of_an_all_to_all_agree(topology: Topology) -> None:
    """Flows by destination and shares have the rate of flows by source."""
    found = folding.solve_folded(throughput.build_all_to_all(topology)).objective
    assert found == collopt.solve(all_to_all.build(topology)).exact.objective
