"""What a file is that came to the wrong reader."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import collopt
from collopt.planners import find_topologies
from collopt.support.files import PREFIX_BYTES, kind_of
from collopt.topologies import ring, write_topology


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'<algo name="mine" proto="Simple">', "MSCCL XML"),
        (b'<?xml version="1.0"?>\n<!-- by hand -->\n<algo name="mine">', "MSCCL XML"),
        (b'\xef\xbb\xbf{"name": "x", "collective": "allgather", "gpus": []}', "an MSCCL++ execution plan"),
        (b'<system version="1">', "a topology dump of NCCL or RCCL"),
        (b"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-31\n", "the output of nvidia-smi topo -m"),
        (b'<graphs version="1">', "a graph of NCCL"),
        (b"# collective,min,max,...\nallreduce,0,65536,tree,ll,-1,-1,-1\n", "a tuner table of NCCL"),
        (b"NCCL version 2.23\n# nThread 1 nGpus 8 minBytes 8\n", "a benchmark of nccl-tests or collopt"),
        (b"#       size         count      type   redop\n", "a benchmark of nccl-tests or collopt"),
        (b'{"version": 1, "config": {"warmup_iters": 5}, "results": []}', "a benchmark of nccl-tests or collopt"),
        (b"size,count,type,redop,root,actual_iterations\n", "a table of collopt bench"),
        (b"0, 1.5\n3,0\n", "a table of numbers"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "x">\n<svg>', "a picture"),
        (b"%PDF-1.7", "a picture"),
        (b"<!DOCTYPE html>\n<html>", "a web page"),
        (b"\x1f\x8b\x08", "a compressed file"),
        (b"", None),
        (b"dear diary, 1 day\n", None),
        (b"{}", None),
        (b"\0\xff", None),
        (b"<topology>", None),
        (b"<!-- one of many -->\n" * 1000 + b"<system>", "a topology dump of NCCL or RCCL"),
        (b"<!-- one of many -->\n" * 1000 + b"<svg>", "a picture"),
        (b"<!-- one of many -->\n" * 1000 + b"<other>", None),
        (b"\n" * 65536, None),
    ],
)
def test_the_beginning_tells_what_a_file_is(tmp_path: Path, content: bytes, kind: str | None) -> None:
    """Whatever its name."""
    path = tmp_path / "file"
    path.write_bytes(content)
    found = kind_of(path)
    assert (found.name if found else None) == kind


def test_what_collopt_writes_is_recognized(tmp_path: Path) -> None:
    """By its readers too, as none is of two kinds."""
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")
    plan.save(tmp_path / "plan")
    plan.to_msccl_xml(tmp_path / "xml")
    plan.to_mscclpp_json(tmp_path / "mscclpp")
    plan.export("chakra-et", tmp_path / "trace.et", size="1M")
    write_topology(plan.topology, tmp_path / "topology")
    np.save(tmp_path / "traffic.npy", np.eye(2))
    find_topologies(8, 2).to_frame().drop(columns="candidate").to_csv(tmp_path / "found", index=False)
    names = {path.name: kind.name for path in tmp_path.iterdir() if (kind := kind_of(path))}
    traces = {name: names.pop(name) for name in list(names) if name.endswith(".et")}
    assert names == {
        "plan": "a collopt plan",
        "xml": "MSCCL XML",
        "mscclpp": "an MSCCL++ execution plan",
        "topology": "a topology file",
        "traffic.npy": "an array of numpy",
        "found": "a table of collopt find",
    }
    assert set(traces.values()) == {"a Chakra execution trace"}


@pytest.mark.parametrize("text", [" ", "\n", "# a\n", "# ", "1 ", "<!---->", '{"format" '])
def test_texts_that_repeat_are_told_in_linear_time(tmp_path: Path, text: str) -> None:
    """A pattern that tried each of many spaces again took minutes."""
    path = tmp_path / "a.txt"
    path.write_text(text * (PREFIX_BYTES // len(text) - 1) + "x")
    start = time.process_time()
    assert kind_of(path) is None
    assert time.process_time() - start < 1
