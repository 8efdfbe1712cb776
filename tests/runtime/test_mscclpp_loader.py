"""Numbers are read as MSCCL++'s loader reads them, up to the limits of their types."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from mscclpp_mutants import BASES
from mscclpp_plans import TWO_BOXES, Document, operations, small_document

from collopt.errors import FileFormatError
from collopt.runtime.mscclpp.executor import VERSION
from collopt.runtime.mscclpp.lint import lint_plan
from collopt.runtime.mscclpp.loader import load
from collopt.runtime.mscclpp.reader import parse_document


@pytest.fixture(scope="module")
def good() -> Document:
    """Two boxes, so with memory and port channels, pipelines and semaphores."""
    return small_document("allreduce", boxes=TWO_BOXES, slice_bytes=4096)


def operation(document: Document, key: str) -> Document:
    """First operation with a key."""
    return next(held[at] for held, at in operations(document) if key in held[at])


@pytest.mark.parametrize(("given", "read"), [(0, 0), (2**31 - 1, 2**31 - 1), (2**32 + 5, 5), (2**31, None), (-1, None)])
def test_the_smallest_size_has_32_bits_of_which_one_is_its_sign(good: Document, given: int, read: int | None) -> None:
    """What is above them is lost; what would be negative is refused."""
    document = good | {"min_message_size": given}
    if read is None:
        with pytest.raises(FileFormatError, match="min_message_size is not from 0 to"):
            load(document, "main", set())
    else:
        assert load(document, "main", set())["min_message_size"] == read


def test_the_largest_size_has_64_bits(good: Document) -> None:
    """All of which are set without one; those above are lost."""
    assert load(good | {"max_message_size": 2**64 + 5}, "main", set())["max_message_size"] == 5
    document = {key: value for key, value in good.items() if key != "max_message_size"}
    assert load(document, "main", set())["max_message_size"] == 2**64 - 1
    assert parse_document(good | {"max_message_size": 2**64 - 1}, "plan").max_bytes == 2**64 - 1
    with pytest.raises(FileFormatError, match="max_message_size"):
        parse_document(good | {"max_message_size": 2**64}, "plan")


def test_what_a_plan_may_leave_out_is_not_set(good: Document) -> None:
    """Such as the second half of scratch."""
    keys = ("reuse_resources", "use_double_scratch_buffer")
    read = load({key: value for key, value in good.items() if key not in keys}, "main", set())
    assert [read[key] for key in keys] == [False, False]


@pytest.mark.parametrize(("version", "loads"), [("0.8.0", False), ("0.9.0", False), ("0.10.0", False), ("main", True)])
def test_all_but_the_main_branch_divide_by_the_size(good: Document, version: str, loads: bool) -> None:
    """So that 0 is undefined."""
    document = copy.deepcopy(good)
    operation(document, "src_buff")["src_buff"][0]["size"] = 0
    if loads:
        assert load(document, version, set())
    else:
        with pytest.raises(FileFormatError, match=f"has size 0, by which MSCCL.. {version} divides"):
            load(document, version, set())


def test_numbers_of_channels_have_8_bits(good: Document) -> None:
    """Those above are lost."""
    document = copy.deepcopy(good)
    wait = operation(document, "channel_ids")
    given = wait["channel_ids"]
    wait["channel_ids"] = [number + 512 for number in given]
    assert operation(load(document, "main", set()), "channel_ids")["channel_ids"] == given
    assert given[0] >= 0
    wait["channel_ids"] = [255]
    assert operation(load(document, "main", set()), "channel_ids")["channel_ids"] == [255]


def refused(document: Document, message: str) -> None:
    """Check that a plan is, in these words."""
    with pytest.raises(FileFormatError, match=message):
        parse_document(document, "plan")


def test_limits_of_operations_are_named(good: Document) -> None:
    """Each of them by one that is just beyond it."""
    document = copy.deepcopy(good)
    pipeline = operation(document, "iter_context")
    pipeline["iter_context"]["unit_size"] = 2**32
    refused(document, "unit_size of .* is 4294967296; expected a whole number from 1 to 4294967295")
    pipeline["ops"] = []
    refused(document, "ops of .* is ..; expected a list with entries")
    document = copy.deepcopy(BASES["box"])
    block = next(each for each in document["gpus"][0]["threadblocks"] if each["remote_buffer_refs"])
    number = sum(len(each["remote_buffer_ids"]) for each in block["remote_buffer_refs"])
    next(each for each in block["ops"] if each["name"] == "put")["dst_buff"][0]["buffer_id"] = number
    refused(document, f"buffer_id of .* is {number}; expected a whole number from 0 to {number - 1}")


def test_without_a_version_the_first_one_that_knows_all_operations_counts(tmp_path: Path, good: Document) -> None:
    """Not the first that stores to switches, where nothing does."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(good))
    assert lint_plan(path).version == VERSION


def test_what_sizes_are_divided_by_is_above_0(good: Document) -> None:
    """The alignment, and the chunks of either buffer."""
    assert load(good | {"buffer_alignment": 1}, "main", set())["buffer_alignment"] == 1
    for wrong in (0, -1):
        with pytest.raises(FileFormatError, match="buffer_alignment is not above 0"):
            load(good | {"buffer_alignment": wrong}, "main", set())
    for key in ("input_chunks", "output_chunks"):
        first, *others = good["gpus"]
        with pytest.raises(FileFormatError, match=r"gpu 0 has .* input chunks and"):
            load(good | {"gpus": [first | {key: 0}, *others]}, "main", set())


def test_a_copy_reads_its_first_source_and_a_reduction_all(good: Document) -> None:
    """Of the targets both write the first, all of as many chunks as the first source has."""
    end = {"type": "i", "index": 0, "size": 1}
    for name, sources in (("copy", 1), ("re", 3)):
        document = copy.deepcopy(good)
        operation(document, "src_buff").update(name=name, src_buff=[end] * 3, dst_buff=[end | {"size": 2}] * 2)
        read = operation(load(document, "main", set()), "src_buff")
        assert (read["src_buff"], read["dst_buff"]) == ([end] * sources, [end])
