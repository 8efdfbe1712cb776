"""Building topologies by name, and the package as a whole."""

from __future__ import annotations

import inspect
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import topologies
from collopt.errors import ColloptError, TopologyError
from collopt.topologies import (
    Topology,
    build,
    catalogue,
    circulant,
    dragonfly,
    fat_tree,
    leaf_spine,
    rail,
    ring,
    torus,
    twisted_torus,
)
from collopt.topologies.builders import REQUIRED
from sample_sizes import examples

EXAMPLES: dict[str, dict[str, Any]] = {
    "tpu-v4": {"shape": (4, 4, 4)},
    "tpu-v5p": {"shape": (2, 2, 1)},
    "tpu-v5e": {"shape": (2, 4)},
    "tpu-v6e": {"shape": (4, 16)},
    "leaf-spine": {"leaves": 2, "spines": 1, "hosts_per_leaf": 2},
    "rail": {"boxes": 2},
    "fat-tree": {"k": 2},
    "dragonfly": {"routers_per_group": 2, "hosts_per_router": 1, "global_links_per_router": 1},
    "ring": {"n": 3},
    "unidirectional-ring": {"degree": 2, "n": 3},
    "bidirectional-ring": {"degree": 2, "n": 3},
    "shifted-ring": {"n": 5},
    "double-binary-tree": {"n": 4},
    "circulant": {"n": 8, "offsets": [1, 3]},
    "low-diameter-circulant": {"n": 9, "degree": 4},
    "circulant-digraph": {"n": 7, "offsets": [1, 2, 4]},
    "directed-circulant": {"degree": 2},
    "metacirculant-digraph": {"m": 3, "k": 2, "r": 2, "elements": [1, 2]},
    "kautz": {"degree": 2, "length": 1},
    "generalized-kautz": {"degree": 2, "n": 5},
    "de-bruijn": {"degree": 2, "length": 2},
    "modified-de-bruijn": {"degree": 2, "length": 3},
    "distance-regular": {"n": 6},
    "torus": {"shape": (3, 2)},
    "twisted-torus": {"shape": (2, 4)},
    "complete-bipartite": {"degree": 2},
    "hamming": {"dimension": 1, "size": 3},
    "twisted-hypercube": {"dimension": 3},
    "hypercube": {"dimension": 2},
    "complete": {"n": 3},
}


def test_the_catalogue_lists_every_builder_of_the_room() -> None:
    """Every exported function that returns a topology from sizes, under its own name in kebab case."""
    builders = {
        name.replace("_", "-"): function
        for name, function in vars(topologies).items()
        if inspect.isfunction(function)
        and inspect.signature(function).return_annotation in (topologies.Topology, "Topology")
        and name not in ("build", "compose", "reached_network", "read_topology", "scaled_links", "topology")
    }
    assert {entry.name: entry.function for entry in catalogue()} == builders


def test_entries_have_a_summary_and_parameters() -> None:
    """Every entry has one line of summary, and parameters with kinds and defaults."""
    for entry in catalogue():
        assert entry.summary.endswith(".")
        assert "\n" not in entry.summary
        assert entry.parameters
    entries = {entry.name: entry for entry in catalogue()}
    described = [(p.name, p.kind, p.default, p.optional) for p in entries["dragonfly"].parameters]
    assert described[0] == ("routers_per_group", "integer", REQUIRED, False)
    assert described[3:5] == [("groups", "integer", None, True), ("bandwidth", "number", 25, False)]
    (shape, *_) = entries["torus"].parameters
    assert (shape.name, shape.kind, shape.required) == ("shape", "shape", True)
    assert [p.default for p in entries["dgx-a100"].parameters] == [1]
    assert entries["circulant"].parameters[1].kind == "integers"
    assert {p.name: p for p in entries["rail"].parameters}["oversubscription"].expected.endswith("or none")
    assert [(p.name, p.kind) for p in entries["dgx-h100"].parameters] == [("boxes", "integer"), ("loopback", "flag")]


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.name)
def test_every_entry_can_be_built_from_values_and_from_text(entry: topologies.CatalogueEntry) -> None:
    """Text as it comes from a command line means the same; direct networks have the given bandwidth and latency."""
    options = EXAMPLES.get(entry.name, {})
    written = {name.replace("_", "-"): _written(value) for name, value in options.items()}
    topology = build(entry.name, **options)
    assert isinstance(topology, Topology)
    assert build(entry.name.replace("-", "_"), **written) == topology
    names = {parameter.name for parameter in entry.parameters}
    assert set(options) == {parameter.name for parameter in entry.parameters if parameter.required} | (
        {"boxes"} if entry.name == "rail" else set()
    )
    if topology.graph is not None and {"bandwidth", "latency"} <= names:
        fast = build(entry.name, **options, bandwidth="25/3", latency="0.5")
        assert [link.bandwidth * 3 for link in fast.links] == [link.bandwidth * 25 for link in topology.links]
        assert {2 * link.latency for link in fast.links} == {1}


def _written(value: Any) -> str:
    separators = {tuple: "x", list: ", "}
    return separators[type(value)].join(map(str, value)) if type(value) in separators else str(value)


def test_text_is_converted_by_what_the_option_is() -> None:
    """Whole numbers, one or several, exact numbers, flags, shapes, none."""
    assert build("circulant", n="15", offsets="1,4,5") == circulant(15, [1, 4, 5])
    assert build("twisted-torus", shape="3x5", twist="2") == twisted_torus(3, 5, twist=2)
    assert build("torus", shape="2x3", bandwidth="65/3") == torus(2, 3, bandwidth=Fraction(65, 3))
    assert build("torus", shape=" 2,3 ") == torus(2, 3)
    assert build("torus", shape=[4]) == torus(4)
    assert build("ring", n=" 4 ", bidirectional="No") == ring(4, bidirectional=False)
    assert build("ring", n="4", bidirectional="true", latency="0.5") == ring(4, latency=0.5)
    assert build("rail", boxes="2", oversubscription="none") == rail(2, oversubscription=None)
    assert build("rail", boxes="2", oversubscription="3/2") == rail(2, oversubscription="1.5")
    assert build(
        "dragonfly", routers_per_group="2", hosts_per_router="1", global_links_per_router="1", groups="None"
    ) == (dragonfly(2, 1, 1))
    assert build("leaf-spine", leaves="2", spines="2", hosts_per_leaf="2", host_bandwidth="12.5") == (
        leaf_spine(2, 2, 2, "12.5")
    )
    assert build("fat-tree", k="4", oversubscription=2) == fat_tree(4, oversubscription=2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "dgx-a10",
            {},
            "there is no topology called 'dgx-a10' \\(did you mean dgx-a100 or dgx-h100\\?\\); expected one of dgx",
        ),
        ("zzz", {}, "there is no topology called 'zzz'; expected one of"),
        ("dgx-a100", {"box": 2}, "there is no option of dgx-a100 called 'box' \\(did you mean boxes"),
        ("rail", {"boxes": 2, "nic-bandwidth": 1, "nic_bandwidth": 2}, "option 'nic_bandwidth' of rail is given twice"),
        ("torus", {}, "torus needs the option 'shape': sizes such as 4x4"),
        ("ring", {"n": "four"}, "option 'n' of ring is 'four'; expected a whole number"),
        ("ring", {"n": "9" * 5000}, "option 'n' of ring is '999"),
        ("ring", {"n": 4.0}, "n is 4.0; expected a whole number"),
        (
            "ring",
            {"n": "4", "bidirectional": "maybe"},
            "option 'bidirectional' of ring is 'maybe'; expected true or false",
        ),
        ("circulant", {"n": 9, "offsets": "1,a"}, "is '1,a'; expected whole numbers such as 1,4,5"),
        ("torus", {"shape": "4x"}, "option 'shape' of torus is '4x'; expected sizes such as 4x4"),
        (
            "dragonfly",
            {"routers_per_group": 1, "hosts_per_router": 1, "global_links_per_router": 1, "groups": "x"},
            "or none",
        ),
    ],
)
def test_unknown_names_and_wrong_values_are_refused(name: Any, options: dict[str, Any], message: str) -> None:
    """With a suggestion where one is close, and with what is accepted."""
    with pytest.raises(TopologyError, match=message):
        build(name, **options)


@settings(max_examples=examples(100))
@given(
    st.sampled_from([entry.name for entry in catalogue()]) | st.text(max_size=12),
    st.dictionaries(
        st.sampled_from(["n", "k", "boxes", "shape", "dimension", "bandwidth", "bidirectional", "x"]),
        st.text(max_size=6) | st.sampled_from(["2", "3", "2x2", "yes", "none", "1/2", "0"]),
        max_size=3,
    ),
)
def test_any_command_line_gives_a_topology_or_our_own_error(name: str, options: dict[str, str]) -> None:
    """No other exception escapes."""
    problem = ""
    try:
        assert isinstance(build(name, **options), Topology)
    except ColloptError as error:
        problem = str(error)
    assert "\n" not in problem


HEAVY = ("cvxpy", "matplotlib", "networkx", "numba", "pandas", "pydantic", "pyomo", "scipy", "torch")


def test_importing_and_building_stays_light() -> None:
    """Heavy packages are imported only by the functions that need them."""
    program = (
        "import sys, collopt.topologies as t; t.dgx_a100(2); t.catalogue();"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    # -P: not the folder we happen to be in, which may hold the package under its own name.
    result = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
