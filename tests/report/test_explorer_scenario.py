"""States of the explorer as addresses and as command lines."""

from __future__ import annotations

import shlex
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.cli import main
from collopt.errors import ColloptError, TopologyError
from collopt.report.pages import server
from collopt.report.pages.answers import Scenario
from collopt.topologies import Scaling, build
from sample_sizes import examples

WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(
    lambda word: word[0] != "-"
)
NETWORKS = st.one_of(
    st.tuples(WORDS.filter(lambda word: not word.startswith("-"))),
    st.sampled_from(
        [
            ("dgx-h100", "--boxes", "8"),
            ("my cluster's.json", "--set", "gpu=h100"),
            ("torus", "--shape", "4x4", "--ranks", "0-7", "--relay"),
        ]
    ),
)
SCENARIOS = st.builds(
    Scenario,
    NETWORKS,
    st.sampled_from(["allgather", "allreduce", "all_to_all", "broadcast"]),
    st.none() | WORDS,
    st.none() | st.sampled_from(["64K", "1G", "1000"]),
    st.sampled_from(["auto", "ring", "forestcoll"]),
    st.lists(st.builds(Scaling, WORDS, st.fractions(Fraction(1, 99), 99, max_denominator=999)), max_size=3).map(tuple),
    st.lists(WORDS, max_size=3).map(tuple),
)


@settings(max_examples=examples(100))
@given(SCENARIOS)
def test_an_address_is_read_back(scenario: Scenario) -> None:
    """Names may have any letters."""
    assert Scenario.from_query(scenario.to_query()) == scenario


@settings(max_examples=examples(60), deadline=None)
@given(SCENARIOS)
def test_the_shown_command_opens_the_same_state(scenario: Scenario) -> None:
    """The command line reads the shown command as the same state."""
    opened: list[Scenario] = []

    class SeenError(ColloptError):
        pass

    def refuse(find: object, first: Scenario, *, port: int) -> None:
        opened.append(first)
        raise SeenError("seen")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(server, "Explorer", refuse)
        patched.setattr("collopt.cli.commands.explore.find", lambda words, uploads: (None, []))
        patched.setattr(Scenario, "changed", lambda scenario, network: network)
        words = shlex.split(scenario.command("explore"))
        assert words[0] == "collopt"
        assert main(words[1:]) == 2
    assert opened == [scenario]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "the network has no name"),
        ("network=--boxes+2", "the network has no name"),
        ("network=%22ring", "close the quotes"),
        ("network=ring&netwrk=x", "did you mean network"),
        ("network=ring&size=1M&size=2M", "size twice"),
        ("network=ring&scale=fast", "expected LINKS x FACTOR"),
    ],
)
def test_a_broken_address_is_refused(address: str, message: str) -> None:
    """The error names the faulty part."""
    with pytest.raises(ColloptError, match=message):
        Scenario.from_query(address)


def test_changes_are_applied_together() -> None:
    """Bandwidths are scaled first, then links and nodes are removed."""
    network = build("dgx-a100", boxes=2)
    scale = (Scaling.read("gpu-nic x 2"),)
    scenario = Scenario(
        ("dgx-a100",), scale=scale, without=("box0/nic0", "box0/nic0--ib", "box1/gpu0--box1/nic0 x 1/2")
    )
    changed = scenario.changed(network)
    assert "box0/nic0" not in changed.nodes
    assert changed.link("box1/gpu0", "box1/nic0").bandwidth == network.link("box1/gpu0", "box1/nic0").bandwidth
    assert changed.link("box1/gpu1", "box1/nic1").bandwidth == 2 * network.link("box1/gpu1", "box1/nic1").bandwidth
    with pytest.raises(TopologyError, match="not a node"):
        Scenario(("dgx-a100",), without=("box9/nic0",)).changed(network)
