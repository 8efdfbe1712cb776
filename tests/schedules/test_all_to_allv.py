"""All-to-allv schedules: what they say of themselves, what checks find, and what the cost model makes of them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collopt.errors import CapacityOverflowError, CertificateError, TopologyError, UnsupportedError
from collopt.planners.all_to_all.fast import schedule_all_to_allv
from collopt.schedules.stages.schedule import AllToAllvSchedule
from collopt.schedules.stages.segments import ARRAYS
from collopt.schedules.stages.two_tier_cost import H200, MI300X, PIPELINES, TwoTierModel
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]


def random_schedule(seed: int = 0, n: int = 4, m: int = 3, most: int = 1000) -> AllToAllvSchedule:
    """Even traffic with some empty cells."""
    random = np.random.default_rng(seed)
    traffic = random.integers(0, most, (n * m, n * m)) * (random.random((n * m, n * m)) < 0.7)
    return schedule_all_to_allv(traffic, servers=n, gpus_per_server=m)


def executed(schedule: AllToAllvSchedule) -> IntArray:
    """What arrives where, by running the frame's phases on counts and the pieces on bytes."""
    arrived = np.zeros_like(schedule.traffic)
    for server in range(schedule.servers):
        for _, origin, proxy, peer, final, first, length, _ in zip(*schedule.pieces(server), strict=True):
            assert origin // schedule.gpus_per_server == proxy // schedule.gpus_per_server == server
            assert proxy % schedule.gpus_per_server == peer % schedule.gpus_per_server
            assert peer // schedule.gpus_per_server == final // schedule.gpus_per_server != server
            assert first + length <= schedule.traffic[origin, final]
            arrived[origin, final] += length
    return arrived


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.sampled_from([3, 50, 10**7]))
@settings(max_examples=examples(60))
def test_every_byte_arrives_once(seed: int, n: int, m: int, most: int) -> None:
    """The verification and a walk along the pieces agree that every byte arrives."""
    schedule = random_schedule(seed, n, m, most)
    schedule.verify()
    server = np.arange(n * m) // m
    assert np.array_equal(executed(schedule), np.where(server[:, None] == server, 0, schedule.traffic))


@given(st.integers(0, 10**6))
@settings(max_examples=examples(20))
def test_pieces_follow_streams_and_stages(seed: int) -> None:
    """Pieces of one stream lie end to end, in ascending stages, and inside their stage's interval."""
    schedule = random_schedule(seed)
    for server in range(schedule.servers):
        pieces = schedule.pieces(server)
        for peer in range(schedule.num_ranks):
            here = pieces.peer == peer
            offsets, lengths, stages = pieces.offset[here], pieces.length[here], pieces.stage[here]
            assert np.array_equal(offsets, np.cumsum(lengths) - lengths)
            assert (np.diff(stages) >= 0).all()
            assert (schedule.partners[stages, server] == peer // schedule.gpus_per_server).all()
            assert (offsets >= schedule.begins[stages, server]).all()
            assert (offsets + lengths <= schedule.ends[stages, server]).all()


def test_the_frame_moves_all_traffic() -> None:
    """Each rank gets by local and redistributed bytes, or keeps as a peer, what the matrix says; none sends itself."""
    schedule = random_schedule(3)
    frame = schedule.to_frame()
    assert list(frame.columns) == ["phase", "stage", "source", "destination", "bytes"]
    assert (frame["source"] != frame["destination"]).all()
    assert (frame["bytes"] > 0).all()
    held = np.diag(schedule.traffic).astype(np.int64)
    sent = frame.groupby("source")["bytes"].sum().reindex(range(12), fill_value=0)
    got = frame.groupby("destination")["bytes"].sum().reindex(range(12), fill_value=0)
    assert np.array_equal(schedule.traffic.sum(axis=1) - held + got - sent, schedule.traffic.sum(axis=0) - held)
    for _, stage in frame[frame["phase"] == "stage"].groupby("stage"):
        assert stage["source"].is_unique
        assert stage["destination"].is_unique


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "traffic"])
def test_a_change_of_any_array_is_found(name: str) -> None:
    """One entry more or less by one, anywhere."""
    schedule = random_schedule(5, n=3, m=2, most=20)
    array = getattr(schedule, name)
    for place in np.ndindex(array.shape):
        for change in (-1, 1):
            changed = array.copy()
            changed[place] += change
            idle = name in {"begins", "ends"} and schedule.partners[place] == -1
            if not idle:
                with pytest.raises(CertificateError):
                    replace(schedule, **{name: changed}).verify()


def test_a_change_of_traffic_between_servers_is_found() -> None:
    """But what stays inside a server is no part of the stored arrays."""
    schedule = random_schedule(5, n=3, m=2, most=20)
    for place in np.ndindex(schedule.traffic.shape):
        changed = schedule.traffic.copy()
        changed[place] += 1
        if place[0] // 2 != place[1] // 2:
            with pytest.raises(CertificateError, match=f"from rank {place[0]} to {place[1]}; expected"):
                replace(schedule, traffic=changed).verify()


def test_wrong_arrays_are_found() -> None:
    """Other shapes and types, reordered stages, and two senders to one server are refused."""
    schedule = random_schedule(1)
    for change, problem in (
        ({"segments": schedule.segments[:, :3]}, "shape"),
        ({"partners": schedule.partners.astype(np.int32)}, "int32"),
        ({"segments": schedule.segments[:-1]}, "streams do not cover the segments in order"),
        ({"stage_bytes": schedule.stage_bytes[::-1]}, "more than its stage|ascending"),
        ({"servers": 3}, "shape"),
    ):
        with pytest.raises(CertificateError, match=problem):
            replace(schedule, **change).verify()
    partners = schedule.partners.copy()
    partners[0, 0] = partners[0, 1] if partners[0, 1] > 0 else partners[0, 2]
    with pytest.raises(CertificateError):
        replace(schedule, partners=partners).verify()
    stages = np.bincount(np.nonzero(schedule.partners != -1)[0])
    stage = int(np.flatnonzero(stages > 1)[0])
    first, second = np.flatnonzero(schedule.partners[stage] != -1)[:2]
    both = schedule.partners.copy()
    both[stage, first] = next(server for server in range(4) if server not in (first, second))
    both[stage, second] = both[stage, first]
    with pytest.raises(CertificateError, match=f"in stage {stage} two servers send to the same one"):
        replace(schedule, partners=both).verify()
    partners[0, 0] = schedule.servers
    with pytest.raises(CertificateError, match="a partner is not another server"):
        replace(schedule, partners=partners).verify()


def test_negative_traffic_inside_a_server_is_found() -> None:
    """Negative traffic is refused even where no stream carries it."""
    schedule = random_schedule(5, n=3, m=2, most=20)
    traffic = schedule.traffic.copy()
    traffic[0, 1] = -1
    with pytest.raises(CertificateError, match="the traffic has negative entries"):
        replace(schedule, traffic=traffic).verify()


def test_streams_of_other_servers_are_found() -> None:
    """Two streams of as many bytes that have changed places: all bytes are carried, and every length is right."""
    schedule = schedule_all_to_allv(np.full((3, 3), 5), servers=3, gpus_per_server=1)
    schedule.verify()
    assert len(schedule.segments) == 6
    segments = schedule.segments[[1, 0, 2, 3, 4, 5]]
    with pytest.raises(CertificateError, match="segment 0, from rank 0 to 2, is in a stream of other servers"):
        replace(schedule, segments=segments).verify()


def test_a_transfer_that_its_stage_does_not_hold_is_found() -> None:
    """Stages that add up to what they should, and ascend, the first one too short."""
    schedule = random_schedule(1)
    sizes = schedule.stage_bytes.copy()
    assert sizes[0] > 1
    sizes[0] -= 1
    sizes[-1] += 1
    with pytest.raises(CertificateError, match=f"stage 0 has a size of {sizes[0]} bytes, and its longest"):
        replace(schedule, stage_bytes=sizes).verify()


def test_streams_that_stages_do_not_finish_are_named() -> None:
    """The last transfer of a pair of servers is a byte short."""
    schedule = random_schedule(1)
    stage, sender = np.argwhere((schedule.partners != -1) & (schedule.ends - schedule.begins > 1))[-1]
    receiver, ends = schedule.partners[stage, sender], schedule.ends.copy()
    assert receiver not in schedule.partners[stage + 1 :, sender]
    ends[stage, sender] -= 1
    with pytest.raises(CertificateError, match=f"bytes of streams from server {sender} to {receiver}; expected"):
        replace(schedule, ends=ends).verify()


def test_schedules_are_read_only_and_survive_pickling() -> None:
    """A verified schedule cannot change, and the user's matrix stays theirs."""
    traffic = np.arange(16).reshape(4, 4)
    schedule = schedule_all_to_allv(traffic, servers=2, gpus_per_server=2)
    traffic[:] = 0
    schedule.verify()
    copy = pickle.loads(pickle.dumps(schedule))
    copy.verify()
    for name in ARRAYS:
        assert np.array_equal(getattr(copy, name), getattr(schedule, name))
        assert not getattr(copy, name).flags.writeable
        assert not getattr(schedule, name).flags.writeable


def test_the_time_of_a_small_case_is_what_a_hand_works_out() -> None:
    """8 bytes go from GPU 0 to GPU 0 of the other server: 4 by each peer; 1 and 4 ns per byte, and 1 µs per step."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 2], traffic[0, 1] = 8000, 3000
    schedule = schedule_all_to_allv(traffic, servers=2, gpus_per_server=2)
    times = schedule.times(TwoTierModel(1, "0.25", wake_up=1))
    assert times == (1 + 4, 1 + 16, 1 + 4, 1 + 3)
    assert schedule.completion_time(TwoTierModel(1, "0.25", wake_up=1)) == 5 + 17 + 5
    assert schedule.optimum(TwoTierModel(1, "0.25")) == 16


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, 1, 3]))
@example(290318, 1, 4, None)  # one GPU receives more than twice what any sends
@settings(max_examples=examples(40))
def test_steps_are_those_of_the_frame(seed: int, n: int, m: int, cuts: int | None) -> None:
    """Each as long as its stage or its busiest GPU inside a server; scratch is what two stages by turns hold."""
    random = np.random.default_rng(seed)
    traffic = random.integers(0, 10**6, (n * m, n * m)) * (random.random((n * m, n * m)) < random.random())
    most = cuts and int(traffic.max()) // cuts + 1
    schedule = schedule_all_to_allv(traffic, servers=n, gpus_per_server=m, max_stage_bytes=most)
    stages, frame = schedule.num_stages, schedule.to_frame()
    inside, held = np.zeros((2, stages + 2, n * m), dtype=np.int64), np.zeros((2, 2, n * m), dtype=np.int64)
    for phase, lag, kept in (("balance", 0, "destination"), ("redistribute", 2, "source")):
        rows = frame[frame["phase"] == phase]
        np.add.at(inside[0], (rows["stage"] + lag, rows["source"]), rows["bytes"])
        np.add.at(inside[1], (rows["stage"] + lag, rows["destination"]), rows["bytes"])
        for (stage, rank), total in rows.groupby(["stage", kept])["bytes"].sum().items():
            held[lag // 2, stage % 2, rank] = max(held[lag // 2, stage % 2, rank], total)
    assert np.array_equal(schedule.scratch_bytes, held.sum(axis=(0, 1)))
    busiest = inside.max(axis=(0, 2))
    more = schedule.step_loads.busiest - busiest
    local = frame[frame["phase"] == "local"]
    assert (more >= 0).all()
    # What stays inside a server counts where it is sent and where it arrives.
    most_local = max(
        (local.groupby(end)["bytes"].sum().max() for end in ("source", "destination") if len(local)), default=0
    )
    assert more.sum() <= 2 * most_local
    model = TwoTierModel(3, 1, wake_up=0)
    bytes_out = np.pad(schedule.stage_bytes, 1)
    wanted = np.maximum(bytes_out * 3, schedule.step_loads.busiest).sum()
    assert schedule.completion_time(model) * 3000 == wanted


def test_balancing_by_stage_hides_all_but_the_first() -> None:
    """Two stages of the same bytes: the second one's balancing and the first one's redistribution take no time."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 2] = 8000
    schedule = schedule_all_to_allv(traffic, servers=2, gpus_per_server=2, max_stage_bytes=2000)
    model = TwoTierModel(1, "0.25", wake_up=0)
    assert schedule.times(model) == schedule.times(model, "by stage") == (2, 16, 2, 0)
    assert schedule.times(model, "balance first") == (4, 16, 2, 0)


@pytest.mark.parametrize(("link", "inside", "local"), [(None, 6, Fraction("0.6")), ("0.25", 12, Fraction("2.4"))])
def test_a_mesh_is_as_slow_as_its_busiest_link(link: str | None, inside: int, local: Fraction) -> None:
    """GPU 0 hands 3 of 9 KB to each neighbor, at 1 GB/s by a switch or 0.25 by links; local bytes move beside."""
    traffic = np.zeros((6, 6), dtype=np.int64)
    traffic[0, 3], traffic[1, 2] = 9000, 600
    schedule = schedule_all_to_allv(traffic, servers=2, gpus_per_server=3, max_stage_bytes=2**62)
    assert schedule.step_loads.busiest.tolist() == [6000, 600, 6000]
    assert schedule.step_loads.busiest_link.tolist() == [3000, 600, 3000]
    model = TwoTierModel(1, "0.1", wake_up=0, scale_up_link=link)
    for pipeline in PIPELINES:
        assert schedule.times(model, pipeline) == (inside, 30, inside, local)
    with pytest.raises(TopologyError, match="a scale-up link is 0"):
        TwoTierModel(1, 1, scale_up_link=0)


def test_models_read_and_refuse_numbers() -> None:
    """Presets are the paper's testbeds."""
    assert (H200.scale_up, H200.scale_out) == (450, 50)
    assert (MI300X.scale_up, MI300X.scale_out) == (448, Fraction(25, 2))
    for wrong in ((0, 50), (450, float("nan")), (450, 50, -1)):
        with pytest.raises(TopologyError):
            TwoTierModel(*wrong)
    schedule = random_schedule()
    with pytest.raises(UnsupportedError, match="no such"):
        schedule.times(H200, "no such")
    huge = schedule_all_to_allv(np.full((2, 2), 2**59), servers=2, gpus_per_server=1)
    with pytest.raises(CapacityOverflowError):
        huge.times(H200)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
def test_one_server_and_one_gpu_per_server_have_times_and_frames(shape: tuple[int, int]) -> None:
    """The smallest shapes have times and frames, with and without traffic."""
    n, m = shape
    for most in (1, 10**6):
        schedule = random_schedule(7, n, m, most)
        schedule.verify()
        frame = schedule.to_frame()
        assert schedule.completion_time(H200) >= schedule.optimum(H200) * (frame["phase"] == "stage").any()
        assert len(frame) == 0 or (n, m) != (1, 1)
