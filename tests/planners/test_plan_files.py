"""Plan files: back and forth, and every way in which a file can be damaged, forged, or another file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import Plan, load_plan, plan
from collopt.errors import CertificateError, ColloptError, FileFormatError, TopologyError
from collopt.planners.plans.files import plan_from_json
from collopt.schedules import Bound, Cut, RankCuts
from collopt.schedules.bounds.length_duals import CutDual
from collopt.schedules.bounds.witness import LinkValue
from collopt.topologies import Topology, dgx_a100, dgx_h100, mi250, ring
from looping_star import BELOW
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

ARRAYS = ("roots", "weights", "routes", "path_starts", "path_nodes")


FIELDS = (
    "made_by",
    "collective",
    "planner",
    "options",
    "inverse_rate",
    "bound",
    "topology_digest",
    "topology",
    "link_loads",
    "schedule",
)
"""Of a document, besides its header."""


def small_plan() -> Plan:
    """Three ranks, two of them on a switch, uneven bandwidths, some latency."""
    topology = Topology.from_links(
        [("a", "s", "5/2", "1/3"), ("b", "s", 2), ("a", "b", 1, 1), ("b", "c", 3)],
        compute=["a", "b", "c"],
        switches=["s"],
        bidirectional=True,
        multicast=["s"],
        name="Größe drei",
    )
    return plan(topology, "allgather")


def document() -> dict[str, Any]:
    """The small plan as a decoded document."""
    return json.loads(json.dumps(small_plan().to_json()))  # type: ignore[no-any-return]


def assert_same(one: Plan, other: Plan) -> None:
    """All that a file keeps is equal, types included."""
    for name in ("topology", "collective", "bound", "inverse_rate", "planner", "options"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.topology.digest == other.topology.digest
    assert one.topology.name == other.topology.name
    assert one.schedule.num_ranks == other.schedule.num_ranks
    assert one.schedule.trees_per_root == other.schedule.trees_per_root
    pairs = [(getattr(one.schedule, name), getattr(other.schedule, name)) for name in ARRAYS]
    for mine, its in [*pairs, (one.link_loads, other.link_loads)]:
        assert np.array_equal(mine, its)
        assert mine.dtype == its.dtype


@given(st.one_of(eulerian_topologies(), switch_free_topologies()))
@settings(max_examples=examples(50))
def test_plans_come_back_as_they_were(topology: Topology) -> None:
    """Through JSON text, and proved again."""
    made = plan(topology, "allgather")
    again = plan_from_json(json.loads(json.dumps(made.to_json())), "text")
    assert_same(made, again)
    again.verify(topology)


@pytest.mark.parametrize(
    "make",
    [
        small_plan,
        lambda: plan(mi250(boxes=2), "allgather", trees_per_root=3),
        lambda: plan(dgx_a100(boxes=2), "allgather"),
    ],
    ids=["small", "mi250", "dgx-a100"],
)
def test_saved_plans_come_back_as_they_were(make: Callable[[], Plan], tmp_path: Path) -> None:
    """Through a file, named by a text or a path, with options and names in any script."""
    made = make()
    made.save(tmp_path / "plan.json")
    assert_same(load_plan(tmp_path / "plan.json"), made)
    assert_same(load_plan(str(tmp_path / "plan.json"), made.topology), made)
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_the_fields_are_the_documented_ones() -> None:
    """Header and fields, no more."""
    assert set(document()) == {"format", "version", *FIELDS}


def test_files_of_version_1_are_read(tmp_path: Path) -> None:
    """They have the same fields, fewer kinds of witness, and allreduces with equal shards only."""
    path = tmp_path / "old.json"
    around = plan(ring(4), "allreduce")
    alone = RankCuts(tuple(Cut(frozenset({rank})) for rank in around.topology.compute_nodes))
    around = replace(around, bound=Bound.from_witness(around.topology, "allreduce", alone))
    for made in (small_plan(), plan(mi250(), "reduce_scatter", trees_per_root=1), around):
        old = made.to_json() | {"version": 1}
        path.write_text(json.dumps(old), encoding="utf-8")
        assert load_plan(path, made.topology).to_json() == old | {"version": 10}


def test_a_bound_of_all_schedules_is_no_scoped_one() -> None:
    """It would be shown beside a looser one, by which the plan is not optimal."""
    made = plan(BELOW, "allreduce", planner="steiner")
    with pytest.raises(CertificateError, match="scoped bound is about all schedules; expected it as bound"):
        replace(made, scoped_bound=made.bound).verify()


def test_files_with_a_bound_of_trees_alone_get_one_of_all_schedules(tmp_path: Path) -> None:
    """Before version 9 there was one bound; around a switch that loops back the same parts bound everything."""
    path = tmp_path / "old.json"
    below, box = plan(BELOW, "allreduce", planner="steiner"), plan(dgx_h100(), "allreduce")
    old = below.to_json() | {"version": 8}
    old["bound"] = old.pop("scoped_bound")
    path.write_text(json.dumps(old), encoding="utf-8")
    again = load_plan(path)
    assert again.scoped_bound == below.scoped_bound
    assert (again.bound.algbw, again.bound.scope, again.gap, again.scoped_gap) == (6, "all schedules", below.gap, 0)
    old = box.to_json() | {"version": 8}
    old["bound"]["tree_partition"] = old["bound"].pop("loopback_partition")
    path.write_text(json.dumps(old), encoding="utf-8")
    assert load_plan(path).to_json() == box.to_json()
    old["bound"]["inverse_rate"] = "1/40"
    path.write_text(json.dumps(old), encoding="utf-8")
    with pytest.raises(CertificateError, match="but its witness shows"):
        load_plan(path)


def test_both_bounds_of_a_plan_are_verified(tmp_path: Path) -> None:
    """The one of some schedules comes back from files, proves nothing about others, and must not be beaten either."""
    made = plan(BELOW, "allreduce", planner="steiner")
    made.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").to_json() == made.to_json()
    assert (made.gap, made.scoped_gap) == (Fraction(1, 6), 0)
    narrow = made.scoped_bound
    assert narrow
    with pytest.raises(CertificateError, match=r"is about schedules made of trees .* alone"):
        replace(made, bound=narrow, scoped_bound=None).verify()
    with pytest.raises(CertificateError, match="but its witness shows"):
        replace(made, scoped_bound=replace(narrow, inverse_rate=narrow.inverse_rate / 2)).verify()
    links = tuple(link._replace(bandwidth=link.bandwidth / 2) for link in BELOW.links)
    half = Bound.from_witness(replace(BELOW, links=links), "allreduce", narrow.witness)
    with pytest.raises(CertificateError, match="the plan's bound is for allreduce on"):
        replace(made, scoped_bound=half).verify()


def test_prices_come_back_as_they_were(tmp_path: Path) -> None:
    """On a one-way ring each rank pays for its own incoming link, and that proves the allgather optimal."""
    made = plan(ring(3, bandwidth=10, bidirectional=False), "allgather")
    links = tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in made.topology.links)
    into = tuple(tuple(dual for dual in links if dual.head == rank) for rank in made.topology.compute_nodes)
    priced = replace(made, bound=Bound.from_witness(made.topology, "allgather", CutDual(links, into)))
    priced.save(tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert (again.bound, again.gap) == (priced.bound, 0)


def test_a_plan_is_written_the_same_every_time(tmp_path: Path) -> None:
    """One row per link, path and tree, so that files can be compared; nothing but JSON and a last line end."""
    for name in ("one.json", "two.json"):
        small_plan().save(tmp_path / name)
    text = (tmp_path / "one.json").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.json").read_text(encoding="utf-8")
    load_plan(tmp_path / "one.json").save(tmp_path / "three.json")
    assert (tmp_path / "three.json").read_text(encoding="utf-8") == text
    assert json.loads(text) == document()
    assert '\n["a", "s", "5/2", "1/3"],\n' in text
    assert "Größe drei" in text
    assert text.endswith("}\n")


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    """At every tenth byte, and short of its last brace."""
    small_plan().save(tmp_path / "whole.json")
    content = (tmp_path / "whole.json").read_bytes()
    path = tmp_path / "short.json"
    for length in [*range(0, len(content) - 2, 10), len(content) - 3, len(content) - 2]:
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError) as caught:
            load_plan(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    path.write_bytes(content[:-1])
    load_plan(path)


@given(st.data())
@settings(max_examples=examples(150))
def test_a_file_with_one_byte_changed_never_crashes(data: st.DataObject) -> None:
    """It is refused by one of our own errors, or proves what it says all the same."""
    text = json.dumps(small_plan().to_json(), ensure_ascii=False)
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.sampled_from('0123456789-.eE"[]{},:/x ')) + text[place + 1 :]
    try:
        decoded = json.loads(changed)
        made = plan_from_json(decoded, "text") if isinstance(decoded, dict) else None
    except (json.JSONDecodeError, ColloptError):
        return
    if made is not None:
        try:
            made.verify()
        except CertificateError:
            return
        assert made.topology == small_plan().topology
        assert made.inverse_rate == small_plan().inverse_rate


Change = Callable[[dict[str, Any]], object]


def put(value: object, *place: str | int) -> Change:
    """A change that writes `value` at some place of the document."""

    def change(made: dict[str, Any]) -> None:
        target: Any = made
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = value

    return change


def cases(
    what: str,
    values: list[object],
    message: str,
    *place: str | int,
    value_in: Callable[[object], object] = lambda value: value,
) -> dict[str, tuple[Change, str]]:
    """One case for each value that is written to some place, or in something that is."""
    return {f"{what} {value!r}": (put(value_in(value), *place), message) for value in values}


NO_RATE = [None, 1, 0.5, "", "0", "0/1", "1/0", "-1/2", "1/2 ", "01/2", "1/2/3", "0.5", "1e3", "nan", "½", "1" * 101]
NO_WORD = [None, 3, "", "two words", "line\n", "ümlaut", "x" * 101, ["allgather"]]
BAD: dict[str, tuple[Change, str]] = {
    **{f"no {name}": (lambda made, name=name: made.pop(name), f"field {name} is missing") for name in FIELDS},
    "no format": (lambda made: made.pop("format"), "'format'"),
    "no version": (lambda made: made.pop("version"), "field version"),
    "a topology's format": (put("collopt-topology", "format"), "is a topology file"),
    **cases("format", [None, 1, ["collopt-plan"]], "is of format", "format"),
    "a newer version": (put(11, "version"), "version 11; this release reads versions 1 to 10"),
    **cases("version", [0, -1, True, "1", None, [1], 1.5], "field version", "version"),
    "an unknown field": (put(1, "extra"), "field extra"),
    "an unknown field of the bound": (put(1, "bound", "extra"), "field bound.extra"),
    "an unknown field of the topology": (put(1, "topology", "extra"), "field extra"),
    "no inverse rate of the bound": (lambda made: made["bound"].pop("inverse_rate"), "field bound.inverse_rate"),
    **cases("rate", NO_RATE, "field inverse_rate", "inverse_rate"),
    **cases("bound", NO_RATE[:3], "field bound.inverse_rate", "bound", "inverse_rate"),
    **cases("bound entry", [None, [], "1/2"], "field bound", "bound"),
    **cases("cut", ["a", [1], {"a": 1}, [["a"]]], "field bound.cut", "bound", "cut"),
    **cases("partition", ["a", [1], ["a"], {"a": 1}, [["a", 1]]], "field bound.partition", "bound", "partition"),
    "two witnesses": (put([["a"]], "bound", "partition"), "field bound has cut and partition"),
    "no witness": (lambda made: made["bound"].pop("cut"), "field bound has no witness"),
    **cases("prices", ["a", [], {}, {"links": []}], "field bound.prices", "bound", "prices"),
    **cases(
        "price",
        [None, ["a", "b"], ["a", "b", 1], ["a", "b", "-1"], ["a", "b", "1/0"], ["a", 1, "1"], "abc"],
        r"field bound.prices.links\[0\]",
        "bound",
        "prices",
        value_in=lambda row: {"links": [row], "into": [], "out_of": [], "relays": []},
    ),
    **cases("collective", NO_WORD, "field collective", "collective"),
    **cases("planner", NO_WORD, "field planner", "planner"),
    **cases("made_by", [None, 3], "field made_by", "made_by"),
    **cases("options", [None, [], {"two words": 1}, {"k": 1.5}, {"k": [1]}, {"k": True}], "field options", "options"),
    **cases("digest", [None, 3], "field topology_digest", "topology_digest"),
    "another digest": (put("0" * 64, "topology_digest"), "the file was changed"),
    **cases("topology", [None, [], "ring"], "field topology", "topology"),
    "a faster link": (put(4, "topology", "links", 0, 2), "field topology has digest .* the file was changed"),
    "a link without bandwidth": (put(0, "topology", "links", 0, 2), "field topology: .*bandwidth of link .* is 0"),
    "a rank less": (lambda made: made["topology"]["compute"].pop(), "field topology: .*'c'"),
    **cases("loads", [None, {}, "2", 3], "field link_loads", "link_loads"),
    **cases("load", [None, "2", 2.5, True, [2], {}, 2**63, 10**90], "field link_loads", "link_loads", 1),
    **cases("schedule", [None, [], "forest", 3], "field schedule", "schedule"),
    "a schedule without a kind": (put({}, "schedule"), "field schedule has no kind"),
    "a schedule of another kind": (put("gossip", "schedule", "kind"), "field schedule is not of the kind .forest."),
    "trees for steps": (put("steps", "schedule", "kind"), "field schedule is not of the kind 'steps'"),
    **cases("weight", [2.5, "1", None, True, 2**63, [1]], "weights of schedule.trees", "schedule", "trees", 0, 1),
    **cases("route", [0.5, "1", None, True, 2**31, [1]], "routes of schedule.trees", "schedule", "trees", 0, 2, 1),
    **cases("node", [0.5, "1", None, True, 2**63, [1]], "field schedule.paths", "schedule", "paths", 0, 1),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_plan_is_refused(case: str, tmp_path: Path) -> None:
    """In one line that names the file and the field."""
    change, message = BAD[case]
    made = document()
    change(made)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises(FileFormatError, match=message) as caught:
        load_plan(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


FORGED: dict[str, Change] = {
    "a faster rate": put("1/1000", "inverse_rate"),
    "a slower rate": put("1000", "inverse_rate"),
    "a better bound": put("1000", "bound", "inverse_rate"),
    "an empty cut": put([], "bound", "cut"),
    "a cut of everything": put(["a", "b", "c", "s"], "bound", "cut"),
    "a cut with a stranger": put(["a", "x"], "bound", "cut"),
    "another collective": put("reduce_scatter", "collective"),
    "another load": put(99, "link_loads", 0),
    "a negative load": put(-1, "link_loads", 0),
    "no loads": put([], "link_loads"),
    "other counts": put(77, "schedule", "trees_per_root"),
    "huge counts": put(2**62, "schedule", "trees_per_root"),
    "a huge weight": put(2**63 - 1, "schedule", "trees", 0, 1),
    "a root elsewhere": put(1, "schedule", "trees", 0, 0),
    "a root nowhere": put(3, "schedule", "trees", 0, 0),
    "a route too many": put(0, "schedule", "trees", 0, 2, 0),
    "a route nowhere": put(2**31 - 1, "schedule", "trees", 0, 2, 1),
    "a path nowhere": put([0, 9], "schedule", "paths", 0),
    "a path in a circle": put([0, 3, 0], "schedule", "paths", 0),
    "an empty path": put([], "schedule", "paths", 0),
    "a tree less": lambda made: made["schedule"]["trees"].pop(),
    "a path less": lambda made: made["schedule"]["paths"].pop(),
}


@pytest.mark.parametrize("case", FORGED)
def test_what_proves_nothing_is_refused(case: str, tmp_path: Path) -> None:
    """A well-formed file whose numbers do not add up is not loaded."""
    made = document()
    FORGED[case](made)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises(CertificateError) as caught:
        load_plan(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("weights", [[1, 1, 1], [2, 0, 1], [1], ["1/2", 1, 1], {"a": 1}])
def test_weights_in_the_bound_of_an_allreduce_are_refused(weights: object, tmp_path: Path) -> None:
    """Even if the rate of the bound is stated in the same unit, so that no figure would show them."""
    made = plan(ring(3), "allreduce").to_json()
    total = sum(weights) if isinstance(weights, list) and all(type(each) is int for each in weights) else 3
    rate = str(Fraction(made["bound"]["inverse_rate"]) * Fraction(total, 3))
    made["bound"] |= {"weights": weights, "inverse_rate": rate}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises((CertificateError, FileFormatError), match=r"bound.* has weights|field bound.weights"):
        load_plan(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("[]", r"holds \[\]"),
        ("null", "holds null"),
        ('{"format": "collopt-plan", "version": 1, "version": 1}', "'version' occurs twice"),
        ('{"format": "collopt-plan", "version": NaN}', "NaN"),
        ('{"format": "collopt-plan", "version": 1e999999999999}', "whole number"),
        ('{"format": "collopt-plan", "version": ' + "1" * 200 + "}", "200 digits"),
        ("[" * 100_000, "nested too deeply|not valid JSON"),
        ("\ud800", "not valid JSON|not UTF-8"),
        ("<algo></algo>", "collopt lint .* checks it"),
    ],
)
def test_what_is_no_document_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """Other files, and JSON that other readers would take."""
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(FileFormatError, match=message):
        load_plan(path)


def test_a_plan_for_another_network_is_refused(tmp_path: Path) -> None:
    """By digest: a change of one bandwidth is another network, a change of its name is not."""
    made = small_plan()
    made.save(tmp_path / "plan.json")
    load_plan(tmp_path / "plan.json", replace(made.topology, name="other"))
    for other in (made.topology.derate("a", "b", "1/2"), made.topology.restrict(["b", "a"]), ring(3)):
        with pytest.raises(TopologyError, match=r"the plan was made for .* plan again for this topology"):
            load_plan(tmp_path / "plan.json", other)


@pytest.mark.parametrize("name", ["missing/plan.json", "file/plan.json", "folder"])
def test_what_cannot_be_written_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    """A folder that is not there, a file in its place, a folder in the file's place."""
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r".+"):
        small_plan().save(tmp_path / name)
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_while_writing_leaves_the_old_file(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, for instance; the temporary file is gone too."""
    path = tmp_path / "plan.json"
    small_plan().save(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(step, fail)
    with pytest.raises(OSError, match="no space left"):
        plan(ring(3), "allgather").save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
