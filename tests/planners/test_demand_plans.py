"""Plans of demands: against all trees on small networks, other collectives, counterexamples, files and damage."""

import copy
import json
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_demands

import collopt
from collopt import Demands, Item, Topology
from collopt.errors import BoundError, CertificateError, FileFormatError, UnsupportedError
from collopt.formulations import multicast
from collopt.planners import compare, survive
from collopt.planners.demands import cuts
from collopt.planners.demands.folding import folded
from collopt.schedules import Cut, ItemCut, ItemCuts
from collopt.schedules.bounds.bound import Bound
from collopt.schedules.collective import DEMANDS
from collopt.topologies import SwitchLimits, dgx_a100, dgx_h100, ring
from oracles.multicast_trees import best_tree_rate

LINKS = [("s", "a"), ("s", "b"), ("a", "t1"), ("b", "t2"), ("a", "m"), ("b", "m"), ("m", "n"), ("n", "t1"), ("n", "t2")]
BUTTERFLY = Topology.from_links([(*link, 1) for link in LINKS], compute=["s", "a", "b", "m", "n", "t1", "t2"])


def drawn_network(draw: random.Random, *, able: bool) -> Topology:
    """Draw a small network, with one-way links, of ranks, and switches that all multicast, or none does."""
    ranks = [f"r{number}" for number in range(draw.randint(3, 5))]
    switches = [f"s{number}" for number in range(draw.randint(0, 1))]
    nodes = ranks + switches
    draw.shuffle(nodes)
    ends = {*zip(nodes, nodes[1:] + nodes[:1], strict=True)}
    ends |= {(tail, head) for tail, head in (draw.sample(nodes, 2) for _ in range(4))}
    links = [(tail, head, draw.randint(1, 9)) for tail, head in sorted(ends)]
    return Topology.from_links(links, compute=ranks, switches=switches, multicast=switches if able else [])


def drawn_star(draw: random.Random) -> Topology:
    """Draw three or four ranks around a switch with loopback, some with links of their own."""
    ranks = [f"r{number}" for number in range(draw.randint(3, 4))]
    links = [(*pair, draw.randint(1, 9)) for rank in ranks for pair in ((rank, "s"), ("s", rank))]
    direct = {(tail, head) for tail, head in (draw.sample(ranks, 2) for _ in range(draw.randint(0, 3)))}
    links += [(tail, head, draw.randint(1, 9)) for tail, head in sorted(direct)]
    limits = [SwitchLimits("s", loopback=True)]
    return Topology.from_links(links, compute=ranks, switches="s", multicast="s", limits=limits)


def drawn_demands(draw: random.Random, topology: Topology) -> Demands:
    """Draw up to three items with one or two sources."""
    items = []
    for number in range(draw.randint(1, 3)):
        ranks = draw.sample(topology.compute_nodes, topology.num_ranks)
        sources, rest = ranks[: draw.randint(1, 2)], ranks[2:]
        items.append((f"i{number}", draw.randint(1, 5), sources, rest[: draw.randint(1, 3)]))
    return Demands(items)


def resharding(boxes: int) -> Demands:
    """Eight shards of trainers in the first half of the boxes, for engines of four GPUs in the other half."""
    return Demands(
        [
            Item(
                f"shard{shard}",
                1,
                [f"box{box}/gpu{shard}" for box in range(boxes // 2)],
                [f"box{box}/gpu{first + shard // 2}" for box in range(boxes // 2, boxes) for first in (0, 4)],
            )
            for shard in range(8)
        ]
    )


@pytest.mark.parametrize("seed", range(12))
def test_plans_are_as_fast_as_all_trees_allow_and_never_beat_the_bound(seed: int) -> None:
    """Plan, optimum over all trees, program and bound agree where trees reach the program."""
    draw = random.Random(seed)
    topology = drawn_network(draw, able=True)
    demands = drawn_demands(draw, topology)
    plan = collopt.plan(topology, demands)
    assert float(1 / plan.inverse_rate) == pytest.approx(best_tree_rate(topology, demands))
    program = collopt.solve(multicast.build(topology, demands)).exact.objective
    assert plan.bound.inverse_rate <= 1 / program <= plan.inverse_rate
    assert plan.gap == 0


@pytest.mark.parametrize("seed", range(6))
def test_bounds_around_switches_that_pass_data_are_those_of_the_program(seed: int) -> None:
    """A switch that cannot copy takes a hop's bandwidth for every receiver."""
    draw = random.Random(100 + seed)
    topology = drawn_network(draw, able=False)
    demands = drawn_demands(draw, topology)
    plan = collopt.plan(topology, demands)
    assert float(1 / plan.inverse_rate) == pytest.approx(best_tree_rate(topology, demands))
    assert plan.bound.inverse_rate == 1 / collopt.solve(multicast.build(topology, demands)).exact.objective
    assert plan.gap == 0


@pytest.mark.parametrize("seed", range(8))
def test_plans_around_a_looping_switch_are_the_best_of_all_trees(seed: int) -> None:
    """Copies that come back to their sender take its links; the bound takes them as free and stays above."""
    draw = random.Random(seed)
    topology = drawn_star(draw)
    demands = drawn_demands(draw, topology)
    plan = collopt.plan(topology, demands)
    assert float(1 / plan.inverse_rate) == pytest.approx(best_tree_rate(topology, demands))
    assert plan.bound.inverse_rate <= plan.inverse_rate


def test_the_bound_around_a_looping_switch_may_be_out_of_reach() -> None:
    """An allgather of three ranks loses 1 in 39 to what comes back to the senders."""
    names = ["r0", "r1", "r2"]
    widths = {"s": [(6, 6), (2, 8), (5, 7)], "t": [(9, 9), (7, 6), (6, 6)]}
    links = [
        link
        for switch, rows in widths.items()
        for rank, (up, down) in zip(names, rows, strict=True)
        for link in ((rank, switch, up), (switch, rank, down))
    ]
    limits = [SwitchLimits("s", loopback=True)]
    network = Topology.from_links(links, compute=names, switches="st", multicast="st", limits=limits)
    demands = Demands([(rank, 1, [rank], [other for other in names if other != rank]) for rank in names])
    plan = collopt.plan(network, demands)
    assert plan.gap == Fraction(1, 39)
    assert float(1 / plan.inverse_rate) == pytest.approx(best_tree_rate(network, demands))


def test_random_demands_meet_the_bound() -> None:
    """The example's networks, with one-way links and some switches that multicast, have no gap."""
    planned = list(random_demands.plans(range(8)))
    assert len(planned) > 4
    assert all(plan.gap == 0 for plan in planned)


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [
        (5, [832876160, 635733915, 872361936, 877032307]),
        (20, [860076809, 584460277]),
        (14, [1, 2**48 - 59, 1021]),
        (8, [3, 2**52 - 7, 5, 2]),
    ],
)
def test_sizes_of_any_number_of_bytes_have_no_gap(seed: int, sizes: list[int]) -> None:
    """Large sizes without a common factor, and tiny items beside huge ones, are planned as exactly as small sizes."""
    draw = random.Random(seed)
    topology = random_demands.random_network(draw)
    items = random_demands.random_items(draw, topology).items
    plan = collopt.plan(topology, Demands(replace(item, size=size) for item, size in zip(items, sizes, strict=False)))
    # Units are whole, up to 2^50 of all trees.
    assert plan.gap <= (0 if sum(sizes) < 2**49 else Fraction(2, sum(sizes)))
    assert plan.schedule.trees_per_root < 100


def test_the_program_bounds_sizes_of_any_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cut is used, dual values of the program prove the same bound at large sizes as cuts do."""
    draw = random.Random(15)
    topology = random_demands.random_network(draw)
    items = random_demands.random_items(draw, topology).items
    demands = Demands(replace(item, size=2**30 - 35 * place) for place, item in enumerate(items))
    cut = collopt.bound(topology, demands)
    low = replace(cut, inverse_rate=cut.inverse_rate / 2)
    monkeypatch.setattr(cuts, "best_cut", lambda *_: low)
    monkeypatch.setattr(cuts, "_by_ascent", lambda *_: [])
    bound = collopt.bound(topology, demands)
    assert isinstance(bound.witness, ItemCuts)
    assert bound.inverse_rate == cut.inverse_rate


def test_layers_of_any_number_of_bytes_come_as_early_as_possible() -> None:
    """A tiny layer after a huge one changes nothing for that, nor is it lost."""
    network, ranks = ring(4, bandwidth=10), ["gpu1", "gpu2", "gpu3"]
    items = [Item("huge", 2**45 - 27, ["gpu0"], ranks), Item("tiny", 5, ["gpu0"], ranks[1:2], 1)]
    plan = collopt.plan(network, Demands(items), order="layers")
    first, last = plan.schedule.prefixes(network)
    assert first.time == first.share / 20
    assert last.time == Fraction(1, 20)


def test_collectives_are_special_cases() -> None:
    """Allgather, broadcast and all-to-all have the bound of the demands that they are."""
    topology = dgx_a100(boxes=2).without_node("box0/gpu7")
    ranks = topology.compute_nodes
    others = {rank: [other for other in ranks if other != rank] for rank in ranks}
    everything = Demands([(rank, 1, [rank], others[rank]) for rank in ranks])
    assert collopt.bound(topology, everything).inverse_rate == collopt.bound(topology, "allgather").inverse_rate
    one = Demands([("data", 1, [ranks[3]], others[ranks[3]])])
    assert collopt.bound(topology, one).inverse_rate == collopt.bound(topology, "broadcast", root=3).inverse_rate
    network = ring(4, bandwidth=6)
    pairs = [(f"{a}{b}", 1, [a], [b]) for a in network.compute_nodes for b in network.compute_nodes if a != b]
    expected = collopt.bound(network, "all_to_all").inverse_rate
    assert collopt.bound(network, Demands(pairs)).inverse_rate == expected


def test_trees_miss_the_bound_of_the_butterfly() -> None:
    """Coding would reach 2 GB/s where trees reach 3/2."""
    demands = Demands([("item", 1, ["s"], ["t1", "t2"])])
    plan = collopt.plan(BUTTERFLY, demands)
    assert (plan.algbw, plan.bound.algbw, plan.gap) == (Fraction(3, 2), 2, Fraction(1, 4))
    assert float(plan.algbw) == pytest.approx(best_tree_rate(BUTTERFLY, demands))


def test_a_tree_may_begin_at_several_sources() -> None:
    """Ranks on two islands get an item from the source on theirs."""
    islands = Topology.from_links([("a", "b", 1), ("c", "d", 1)], compute="abcd", name="islands")
    plan = collopt.plan(islands, Demands([("item", 1, ["a", "c"], ["b", "d"])]))
    assert plan.algbw == 1
    assert [edge[:2] for edge in plan.trees[0].edges] == [(0, 1), (2, 3)]
    assert plan.simulate(1000) == 1
    assert len(plan.to_frame("trees")) == 2


def test_reshardings_between_boxes_are_folded_and_optimal() -> None:
    """Eight items are one by symmetry, and reach what the network allows: twice the copies."""
    topology, demands = dgx_a100(boxes=4), resharding(4)
    folding = folded(topology, demands)
    assert folding.counts.tolist() == [8]
    assert len(folding.images) > 8
    plan = collopt.plan(topology, demands)
    assert (plan.algbw, plan.gap) == (200, 0)
    assert collopt.plan(topology, demands, planner="item-copies").algbw == 100
    table = compare(topology, demands, sizes=["1M"]).set_index("planner")
    assert set(table.index) == {"steiner-trees", "item-copies", "item-chains", "item-binary-trees"}
    assert (table["status"] == "ok").all()


def test_switches_copy_where_they_can_and_loops_count() -> None:
    """In a box with NVLink SHARP one send reaches seven GPUs; a looped copy comes back on the sender's links."""
    ranks = [f"box0/gpu{number}" for number in range(8)]
    demands = Demands([(rank, 1, [rank], [other for other in ranks if other != rank]) for rank in ranks])
    for loopback in (False, True):
        box = dgx_h100(boxes=1, loopback=loopback)
        plan = collopt.plan(box, demands)
        assert plan.gap == 0 or loopback
        assert plan.algbw <= collopt.plan(box, "allgather").bound.algbw
        plan.verify()
    one = Demands([("x", 1, ranks[:1], ranks[1:])])
    assert collopt.plan(dgx_h100(boxes=1), one).algbw == 450


def test_layers_come_in_their_order() -> None:
    """Each layer is complete as early as those before it allow, in the same time in all."""
    network = ring(4, bandwidth=10)
    items = [Item(f"l{layer}", 1 + layer, ["gpu0"], ["gpu1", "gpu2", "gpu3"], layer) for layer in range(3)]
    plan = collopt.plan(network, Demands(items), order="layers")
    assert plan.gap == 0
    assert [(prefix.share, prefix.time) for prefix in plan.schedule.prefixes(network)] == [
        (Fraction(part, 6), Fraction(part, 6) / plan.algbw) for part in (1, 3, 6)
    ]


def test_fixed_chunks_state_their_gap() -> None:
    """One chunk cannot take both ways round a ring."""
    network, demands = ring(4, bandwidth=10), Demands([("x", 1, ["gpu0"], ["gpu1", "gpu2", "gpu3"])])
    gaps = [collopt.plan(network, demands, chunks=chunks).gap for chunks in (1, 2, 3)]
    assert gaps[1] == 0
    assert gaps[0] == Fraction(1, 2)
    assert 0 < gaps[2] < gaps[0]


def test_failures_leave_what_is_left_to_move() -> None:
    """Lost destinations need nothing, lost sources are replaced, and an item without source has no plan."""
    topology = dgx_a100(boxes=2)
    demands = Demands(
        [("a", 1, ["box0/gpu0", "box0/gpu1"], ["box1/gpu0"]), ("b", 1, ["box0/gpu2"], ["box1/gpu0", "box1/gpu1"])]
    )
    table = survive(topology, demands, failures=["gpu"], baselines=[], jobs=1).set_index("failure")
    assert len(table) == 17
    assert table.loc["box0/gpu2", "status"] == "disconnected"
    assert table.loc["box0/gpu0", "status"] == table.loc["box1/gpu1", "status"] == "ok"
    with pytest.raises(UnsupportedError, match="folder"):
        survive(topology, demands, folder="plans", jobs=1)


def test_times_at_a_size_are_bounded() -> None:
    """No predicted time is below the bound at that size."""
    topology, demands = dgx_a100(boxes=2), Demands([("a", 1, ["box0/gpu0"], ["box1/gpu0", "box1/gpu5"])])
    plan = collopt.plan(topology, demands)
    for size in ("1K", "1M", "1G"):
        bound = collopt.bound(topology, demands, size=size)
        bound.verify()
        assert float(bound.time) <= plan.simulate(size)
        sized = collopt.plan(topology, demands, size=size)
        assert sized.simulate(size) <= plan.simulate(size)
        assert sized.provenance["predicted_us"] == pytest.approx(sized.simulate(size))


def test_plan_files_hold_the_demands(tmp_path: Path) -> None:
    """A plan is read back with its items, and damage of any part is noticed."""
    draw = random.Random(5)
    topology = drawn_network(draw, able=True)
    plan = collopt.plan(topology, drawn_demands(draw, topology))
    plan.save(tmp_path / "plan.json")
    again = collopt.load_plan(tmp_path / "plan.json")
    assert again.collective == plan.collective
    assert np.array_equal(again.link_loads, plan.link_loads)
    for damage in (
        lambda data: data["schedule"]["items"][0].update(size="7"),
        lambda data: data["schedule"]["items"][0].update(destinations=[]),
        lambda data: data["schedule"]["items"][0].update(sources=["nobody"]),
        lambda data: data["schedule"]["trees"][0].__setitem__(1, 99),
        lambda data: data["schedule"]["trees"][0].__setitem__(3, 99),
        lambda data: data["schedule"]["trees"][0].__setitem__(2, [-1] * len(data["schedule"]["trees"][0][2])),
        lambda data: data["schedule"].pop("items"),
        lambda data: data["schedule"].update(switches=[99]),
        lambda data: data["schedule"].update(switches=[*range(99)]),
        lambda data: data.update(collective="allgather"),
    ):
        data: dict[str, Any] = json.loads((tmp_path / "plan.json").read_text())
        damage(data)
        (tmp_path / "damaged.json").write_text(json.dumps(data))
        with pytest.raises((CertificateError, FileFormatError, UnsupportedError, BoundError)):
            collopt.load_plan(tmp_path / "damaged.json")


def test_trees_are_counted_by_groups_of_items() -> None:
    """Items have no one root."""
    demands = Demands([("x", 1, ["gpu0"], ["gpu2"]), ("y", 1, ["gpu0"], ["gpu1"])])
    plan = collopt.plan(ring(4), demands, planner="item-copies")
    assert plan.schedule.rows(plan.topology, {})["trees per group"] == "1 distinct tree"


def test_a_rank_that_sends_what_it_never_got_is_noticed() -> None:
    """Trees begin at sources of their items only."""
    demands = Demands([("x", 1, ["gpu0"], ["gpu2"])])
    plan = collopt.plan(ring(4), demands)
    with pytest.raises(CertificateError, match=r"root|source|deliver"):
        replace(plan, schedule=replace(plan.schedule, roots=plan.schedule.roots + 1)).verify()
    with pytest.raises(CertificateError, match="expected 'broadcast'"):
        replace(plan.schedule, direction="reduce").verified_loads(plan.topology)
    for collective in ("allgather", "broadcast"):
        bound = collopt.bound(ring(4), collective, root=0 if collective == "broadcast" else None)
        with pytest.raises(CertificateError, match="items"):
            replace(plan, collective=collective, bound=bound).verify()
        with pytest.raises(UnsupportedError):
            collopt.planners.plan_of_schedule(ring(4), collective, plan.schedule)
    other = Demands([("x", 1, ["gpu1"], ["gpu2"])])
    with pytest.raises(CertificateError):
        replace(plan, schedule=replace(plan.schedule, demands=other)).verify()


def test_item_cuts_prove_no_more_than_they_hold() -> None:
    """Cuts with a source, without a destination, or heavier than a hop is long are refused."""
    network, demands = ring(4, bandwidth=10), Demands([("x", 1, ["gpu0"], ["gpu2"])])
    lengths = tuple(collopt.schedules.LinkValue(link.tail, link.head, Fraction(1)) for link in network.links)
    near, far = frozenset({"gpu2"}), frozenset({"gpu1", "gpu2", "gpu3"})
    good = ItemCuts(lengths, ((ItemCut(Fraction(1), near), ItemCut(Fraction(1), far)),))
    bound = Bound.from_witness(network, demands, good)
    bound.verify()
    assert bound.algbw == 40
    assert ItemCuts.from_json(json.loads(json.dumps(good.to_json()))) == good
    for rows in (
        ((ItemCut(Fraction(3, 2), near),),),
        ((ItemCut(Fraction(1), near), ItemCut(Fraction(1), frozenset({"gpu2", "gpu3"}))),),
        ((ItemCut(Fraction(1), frozenset({"gpu0", "gpu2"})),),),
        ((ItemCut(Fraction(1), frozenset({"gpu1"})),),),
        ((ItemCut(Fraction(1), frozenset({"gpu9", "gpu2"})),),),
        ((), ()),
    ):
        with pytest.raises(CertificateError):
            Bound.from_witness(network, demands, ItemCuts(lengths, rows))
    with pytest.raises(CertificateError):
        Bound.from_witness(network, "allgather", good)
    with pytest.raises(CertificateError):
        replace(bound, inverse_rate=bound.inverse_rate * 2).verify()
    assert copy.deepcopy(good) == good
    assert Bound.from_witness(network, demands, Cut(frozenset({"gpu0"}))).algbw == 20


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"chunks": 0}, "chunks"),
        ({"order": "random"}, "order"),
        ({"root": 0}, "root"),
        ({"weights": [1, 1]}, "weights"),
        ({"traffic": [[1]]}, "traffic"),
        ({"planner": "ring"}, "ring"),
        ({"size": "many"}, "size"),
    ],
)
def test_unusable_options_are_refused(options: dict[str, Any], named: str) -> None:
    """Demands take no shards, and only their own planners."""
    with pytest.raises(UnsupportedError, match=named):
        collopt.plan(ring(4), Demands([("x", 1, ["gpu0"], ["gpu2"])]), **options)


@pytest.mark.parametrize("function", [collopt.plan, collopt.bound, collopt.sensitivity, collopt.compare])
def test_demands_without_items_are_refused(function: Any) -> None:
    """The record that all demands have in common is no collective by itself."""
    with pytest.raises(UnsupportedError, match="demands need their items"):
        function(ring(4), DEMANDS)


def test_other_planners_refuse_demands_and_theirs_refuse_collectives() -> None:
    """A planner of demands needs items."""
    with pytest.raises(UnsupportedError):
        collopt.plan(ring(4), "allgather", planner="steiner-trees")
    line = Topology.from_links([("a", "b", 1)], compute="ab")
    with pytest.raises(BoundError, match="'a'"):
        collopt.bound(line, Demands([("x", 1, ["b"], ["a"])]))
