"""Reader of collopt's own files of boxes; ``docs/reference/box-json.md`` describes them."""

from dataclasses import replace

from ....support.json_files import parse_json
from ...switched.box_files import BOX_FORMAT, BOX_VERSION, box_from_json
from ...switched.nic_shares import with_port_bandwidth
from ...switched.scale_out import Box
from .document import Document
from .options import BoxOptions


def matches(document: Document) -> bool:
    """Return whether the text names this format; never raises."""
    return document.text.lstrip().startswith("{") and f'"{BOX_FORMAT}"' in document.text


def read_box(document: Document, options: BoxOptions) -> Box:
    """Read the box."""
    data = parse_json(document.text, document.where, BOX_FORMAT, BOX_VERSION)
    box = box_from_json(data, document.where)
    speed = options.nic_bandwidth
    return box if speed is None else replace(box, nics=with_port_bandwidth(box, speed))
