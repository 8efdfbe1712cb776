"""The explorer by HTTP: who gets an answer, what answers hold, and that what nobody waits for is stopped."""

from __future__ import annotations

import http.client
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from urllib.parse import unquote

import pytest

pytest.importorskip("tornado", reason="the explorer needs tornado")

from explorer_pages import exploring, request

import collopt
from cli_calls import call
from collopt.report.pages import server, worker
from collopt.report.pages.answers import FILES, Case, Scenario
from collopt.report.pages.server import Explorer
from collopt.topologies import Scaling, dgx_a100, read_topology, ring, write_topology

SLOW = "network=generalized-kautz+--set+n=400+--set+degree=3&collective=all_to_all"  # minutes of work


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    """One server for all requests."""
    with exploring() as running:
        yield running


def test_the_page_and_its_parts_are_served_and_load_nothing_else(explorer: Explorer) -> None:
    """Headers forbid foreign scripts, frames and caches."""
    for path, kind in (("", "text/html"), ("explore.js", "text/javascript"), ("viewer.css", "text/css")):
        reply = request(explorer, path)
        assert (reply.status, reply.headers["Content-Type"].partition(";")[0]) == (200, kind)
        assert b"//" not in reply.body.replace(b"http://www.w3.org/2000/svg", b"") or kind != "text/html"
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert "script-src 'self';" in reply.headers["Content-Security-Policy"]
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert "Server" not in reply.headers
    assert request(explorer, "report.js").status == 404
    assert request(explorer, "nothing/here").status == 404


@pytest.mark.parametrize("path", ["", "facts", "answers?network=ring+--nodes+4", "file/plan.json?network=ring", "x/y"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"token": "wrong"}, "its token is missing or wrong"),
        ({"token": ""}, "its token is missing or wrong"),
        ({"host": "evil.example:80"}, "no name of the machine"),
        ({"host": "127.0.0.1"}, "no name of the machine"),
    ],
)
def test_only_the_right_token_and_host_get_an_answer(
    explorer: Explorer, path: str, changed: dict[str, str], message: str
) -> None:
    """Other users of the machine and pages of other sites get status 403."""
    reply = request(explorer, path, **changed)
    assert reply.status == 403
    assert message in reply.data["error"]


def test_the_entrance_for_browsers_opens_once(explorer: Explorer) -> None:
    """The entrance opens once, and does not hold the token."""
    key = explorer.entrance.rpartition("/")[2]
    assert explorer.token not in explorer.entrance
    assert request(explorer, key, token="once", host="evil.example").status == 403
    first, second = (request(explorer, key, token="once") for _ in range(2))
    assert (first.status, first.headers["Location"]) == (302, explorer.address)
    assert second.status == 403
    assert explorer.entrance.rpartition("/")[2] != key


def test_a_broken_nic_changes_bound_plan_and_picture_as_in_the_library(explorer: Explorer) -> None:
    """Figures are those of the library for the changed network."""
    scenario = Scenario(
        ("dgx-a100", "--boxes", "2"), "allreduce",
        scale=(Scaling.read("box1/gpu0--box1/nic0 x 1/2"),), without=("box0/nic0",),
    )  # fmt: skip
    answers = request(explorer, f"answers?{scenario.to_query()}").answers
    changed = scenario.changed(dgx_a100(boxes=2))
    plan = collopt.plan(changed, "allreduce")
    assert answers["state"] == scenario.to_query()
    assert answers["bound"]["algbw"] == float(collopt.bound(changed, "allreduce").algbw)
    assert answers["plan"]["algbw"] == float(plan.algbw)
    assert answers["plan"]["optimal"] == (plan.gap == 0)
    assert not answers["plan"]["interim"]
    assert answers["network"]["counts"] == "16 ranks, 19 switches, 96 links"
    assert answers["changed"]["counts"] == "16 ranks, 18 switches, 92 links"
    assert "box0/nic0" not in answers["plan"]["scene"]["nodes"]["name"]
    assert shlex.split(answers["commands"]["plan"])[:3] == ["collopt", "plan", "dgx-a100"]


@pytest.mark.parametrize(
    ("query", "message", "known"),
    [
        ("", "the network has no name", set()),
        ("network=nowhere.json", "nowhere.json does not exist", set()),
        (f"network={'x' * 256}", "there is no topology", set()),
        (f"network={'x' * 256}.json", "File name too long", set()),
        ("network=dgx-a100+--boxes+none", "--boxes", set()),
        ("network=dgx-a100+--bxes+2", "No such option", set()),
        ("network=dgx-a100+--size+1M", "No such option", set()),
        ("network=dgx-a100+--help", "No such option", set()),
        ("network=dgx-b100000", "did you mean", set()),
        ("network=dgx-a100&collective=allgater", "did you mean", {"network", "changed"}),
        ("network=dgx-a100&collective=broadcast", "needs a root", {"network", "changed"}),
        ("network=dgx-a100&collective=allgather&size=64X", "is not understood", {"network", "changed"}),
        ("network=dgx-a100&collective=allgather&planner=rung", "did you mean ring", {"network", "changed", "bound"}),
        ("network=dgx-a100&collective=allgather&planner=bfb", "switches", {"network", "changed", "bound"}),
        ("network=dgx-a100&without=gpu99", "is not a node", {"network"}),
        ("network=ring+--nodes+3&without=gpu0&without=gpu1--gpu2", "there is no path", {"network", "changed"}),
        ("network=ring+--nodes+2&without=gpu0", "needs at least 2", {"network"}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_message_after_what_is_known(
    explorer: Explorer, query: str, message: str, known: set[str]
) -> None:
    """An error is one message, after all that could be answered."""
    reply = request(explorer, f"answers?{query}")
    answers = reply.answers
    assert reply.status == 200
    assert message in answers["error"]
    assert "Traceback" not in answers["error"]
    assert "\n" not in answers["error"]
    assert answers.keys() - {"state", "commands", "error", "progress", "share"} == known


def test_a_dropped_file_is_known_by_its_name(explorer: Explorer, tmp_path: Path) -> None:
    """The last file of a name counts, and errors name it."""
    path = tmp_path / "net.json"
    for bandwidth in (10, 30):
        write_topology(ring(4, bandwidth=bandwidth), path)
        reply = request(explorer, "upload/my%20net.json", "PUT", body=path.read_bytes())
        assert reply.data == {"network": "'my net.json'"}
        answers = request(explorer, "answers?network=%27my+net.json%27").answers
        assert answers["bound"]["algbw"] == float(collopt.bound(ring(4, bandwidth=bandwidth), "allgather").algbw)
    assert answers["commands"]["plan"] == "collopt plan 'my net.json' allgather"
    request(explorer, "upload/broken.json", "PUT", body=b'{"format": "collopt-topology"')
    error = request(explorer, "answers?network=broken.json").answers["error"]
    assert error.startswith("broken.json")
    assert gettempdir() not in error
    told = request(explorer, "answers?network=broken.json+--nodes+4").answers["error"]
    assert "--nodes does not go with broken.json, which" in told
    for name in ("..%2Fnet.json", "..", ".", "-o", "--help"):
        assert "without folders" in request(explorer, f"upload/{name}", "PUT", body=b"").data["error"]
    assert "another name" in request(explorer, f"upload/{'x' * 300}", "PUT", body=b"").data["error"]


def test_files_of_those_without_the_token_are_not_even_read(explorer: Explorer) -> None:
    """The refusal precedes the file."""
    with socket.create_connection(("127.0.0.1", explorer.port), timeout=60) as line:
        head = (
            f"PUT /wrong/upload/net.json HTTP/1.1\r\nHost: 127.0.0.1:{explorer.port}\r\nContent-Length: {2**27}\r\n\r\n"
        )
        line.sendall(head.encode())
        assert line.recv(12) == b"HTTP/1.1 403"
    large = b" " * 2**20 + b"{"
    assert request(explorer, "upload/large.json", "PUT", body=large).status == 200
    assert explorer.uploads["large.json"] == large


@pytest.mark.parametrize("form", FILES)
def test_files_are_those_that_the_command_line_writes(
    explorer: Explorer, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files equal those of the command line, and the network reads back as the changed one."""
    scenario = Scenario(("dgx1-v100",), "allgather", planner="ring", without=("gpu0--gpu1",))
    reply = request(explorer, f"file/{form}?{scenario.to_query()}")
    assert reply.status == 200
    path, mine = tmp_path / form, tmp_path / "mine"
    path.write_bytes(reply.body)
    if form == "topology.json":
        assert read_topology(path) == scenario.changed(collopt.topologies.dgx1_v100())
        return
    flag = {"plan.json": "-o", "msccl.xml": "--xml", "mscclpp.json": "--mscclpp"}[form]
    assert call(capsys, "plan", *scenario.words(), flag, mine).status == 0
    assert mine.read_bytes() == reply.body


def test_a_file_without_the_plans_switches_has_a_note(explorer: Explorer) -> None:
    """MSCCL XML has none, and MSCCL++ has."""
    replies = [
        request(explorer, f"file/{form}?network=dgx-h100&collective=allreduce")
        for form in ("msccl.xml", "mscclpp.json")
    ]
    notes = [unquote(reply.headers["Collopt-Note"]) for reply in replies]
    assert "257.14 GB/s (1800/7) instead of 400.00 GB/s" in notes[0]
    assert notes[1] == ""


def test_what_nobody_waits_for_is_stopped(explorer: Explorer) -> None:
    """An endless question ends with its connection, and the next is answered."""
    before = explorer.workers._idle[-1]
    connection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=60)
    connection.request("GET", f"/{explorer.token}/answers?{SLOW}")
    assert connection.getresponse().readline()
    connection.close()
    answers = request(explorer, "answers?network=ring+--nodes+4").answers
    assert answers["plan"]["optimal"]
    assert before not in explorer.workers._idle
    assert not before._process.is_alive()


def test_a_process_that_ends_is_replaced(explorer: Explorer) -> None:
    """The question of a killed process is an error, and the next is answered."""
    explorer.workers._idle[-1]._process.kill()
    assert "has ended" in request(explorer, "answers?network=ring+--nodes+4").answers["error"]
    assert request(explorer, "answers?network=ring+--nodes+4").answers["plan"]["optimal"]


def test_errors_of_our_own_are_messages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unexpected exceptions are messages and end no process."""
    ours, theirs = worker.multiprocessing.Pipe()

    def broken(case: Case) -> None:
        raise ZeroDivisionError("division by zero")

    worker._answer(theirs, broken, Case(Scenario(("ring",)), ring(4)))
    assert "bug of collopt" in ours.recv()["error"]
    assert ours.recv() is None


def test_connections_that_ask_nothing_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are those that stop within a request, and in its body."""
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(server, "UPLOAD_SECONDS", 0.2)
    with exploring() as explorer:
        head = (
            f"PUT /{explorer.token}/upload/a HTTP/1.1\r\nHost: 127.0.0.1:{explorer.port}\r\nContent-Length: 9\r\n\r\n"
        )
        for sent in ("", "GET / HT", head):
            with socket.create_connection(("127.0.0.1", explorer.port), timeout=20) as connection:
                connection.sendall(sent.encode())
                assert not connection.recv(1)
