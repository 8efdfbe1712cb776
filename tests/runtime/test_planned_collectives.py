"""Real plans of every collective, lowered, checked, interpreted, cut into rounds, and written for every runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import COLLECTIVES
from runtime_rounds import run_in_rounds

import collopt
from collopt.errors import UnsupportedError
from collopt.runtime import interpret_file, lower, read_xml, run_program
from collopt.runtime.msccl.export import export_msccl_xml
from collopt.topologies import Topology, dgx_a100, hypercube, mi250, ring, torus
from sample_sizes import examples
from strategies import eulerian_topologies

TOPOLOGIES = {
    "ring": ring(5, bandwidth=25),
    "one-way ring": ring(4, bidirectional=False),
    "torus": torus(3, 3, bandwidth=10),
    "hypercube": hypercube(3),
    "DGX A100": dgx_a100(boxes=1),
    "two DGX A100": dgx_a100(boxes=2),
    "eight GCDs of two MI250 boxes": mi250(boxes=2).restrict([0, 1, 2, 3, 16, 17, 18, 19]),
}
RUNTIMES = ("msccl", "msccl-executor-nccl", "rccl")


def _plan(topology: Topology, collective: str, **options: Any) -> collopt.Plan:
    if collective in ("broadcast", "reduce"):
        options["root"] = topology.num_ranks - 1
    return collopt.plan(topology, collective, **options)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "two DGX A100" else ()) for name in TOPOLOGIES]
)
def test_plans_run_and_are_written_for_every_runtime(tmp_path: Path, name: str, collective: str) -> None:
    """As a program, in rounds of uneven chunks, and from the file of each runtime."""
    plan = _plan(TOPOLOGIES[name], collective)
    program = lower(plan.schedule, collective)
    run_program(program, interleavings=2)
    run_program(replace(program, in_place=True), interleavings=1)
    run_in_rounds(program, 7 * program.num_ranks, 2)
    for runtime in RUNTIMES:
        path = tmp_path / f"{runtime}.xml"
        export_msccl_xml(plan, path, runtime=runtime)
        assert interpret_file(path, interleavings=2).interleavings == 2
        written = read_xml(path)
        assert (str(written.collective), written.shards) == (collective, program.shards)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
@pytest.mark.parametrize("name", ["ring", "torus", pytest.param("two DGX A100", marks=pytest.mark.slow)])
def test_plans_with_weights_run_and_are_refused_where_shards_are_equal(
    tmp_path: Path, name: str, collective: str
) -> None:
    """Some ranks have nothing; MSCCL has no such collective."""
    topology = TOPOLOGIES[name]
    plan = _plan(topology, collective, weights=[rank % 3 for rank in range(topology.num_ranks)])
    program = lower(plan.schedule, collective)
    run_program(program, interleavings=2)
    run_in_rounds(program, 1001, 2, in_place=True)
    with pytest.raises(UnsupportedError, match=r"run the plan through torch\.distributed"):
        export_msccl_xml(plan, tmp_path / "file.xml")


@pytest.mark.parametrize("planner", ["strength", "allreduce-lp"])
@pytest.mark.parametrize("name", ["chain", "ring", "torus", "boxes of 8 and 4"])
def test_allreduces_with_roots_of_their_own_run_and_are_written(tmp_path: Path, name: str, planner: str) -> None:
    """Some ranks add up much, some nothing: as a program, in rounds apart and in place, and from every file."""
    networks = {
        "chain": ring(4).without_link("gpu0", "gpu3"),
        "boxes of 8 and 4": dgx_a100(boxes=2).restrict(range(12)),
        **TOPOLOGIES,
    }
    plan = collopt.plan(networks[name], "allreduce", planner=planner)
    program = lower(plan.schedule, "allreduce")
    for in_place in (False, True):
        run_program(replace(program, in_place=in_place), interleavings=2)
        for elements in (0, 1, 17, 1000):
            run_in_rounds(program, elements, 2, in_place=in_place)
    for runtime in RUNTIMES:
        path = tmp_path / f"{runtime}.xml"
        export_msccl_xml(plan, path, runtime=runtime)
        interpret_file(path, interleavings=2)


@given(topology=eulerian_topologies(max_ranks=5, max_switches=2, max_bandwidth=4), data=st.data())
@settings(max_examples=examples(40))
def test_plans_on_random_networks_run(topology: Topology, data: st.DataObject) -> None:
    """Switches, odd bandwidths, any collective, shards of any size."""
    collective = data.draw(st.sampled_from(COLLECTIVES))
    options = {}
    if collective in ("allgather", "reduce_scatter"):
        sizes = st.lists(st.integers(0, 3), min_size=topology.num_ranks, max_size=topology.num_ranks)
        options = {"weights": data.draw(sizes.filter(any))} if data.draw(st.booleans()) else {}
    program = lower(_plan(topology, collective, **options).schedule, collective, max_count=data.draw(st.integers(1, 9)))
    run_program(program, interleavings=1)
    run_in_rounds(program, data.draw(st.integers(0, 9)) * topology.num_ranks, 1)
