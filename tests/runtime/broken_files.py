"""Files that are broken on purpose, by rules: every attribute, and everything that the parsers read between them."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["WHOLE", "broken_files"]


def _step(
    number: int, kind: str, source: str, target: str, wait: str = "-1 -1", signals: int = 0, count: int = 1
) -> str:
    ends = f'srcbuf="{source[0]}" srcoff="{source[1:]}" dstbuf="{target[0]}" dstoff="{target[1:]}"'
    block, step = wait.split()
    waits = f'depid="{block}" deps="{step}" hasdep="{signals}"'
    return f'      <step s="{number}" type="{kind}" {ends} cnt="{count}" {waits}/>\n'


def _block(number: int, peer: int, *steps: str) -> str:
    return f'    <tb id="{number}" send="{peer}" recv="{peer}" chan="0">\n{"".join(steps)}    </tb>\n'


_LEAVES = "".join(
    f'  <gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="0">\n'
    f"{_block(0, 0, _step(0, 's', 'i0', 'o0'), _step(1, 'r', 'i0', 'o0'))}  </gpu>\n"
    for rank in (1, 2)
)
WHOLE = f"""<algo name="star" proto="LL" nchannels="1" nchunksperloop="1" ngpus="3" coll="allreduce" \
inplace="0" outofplace="1" minBytes="0" maxBytes="65536">
  <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="2">
{_block(0, 1, _step(0, "r", "i0", "s0", signals=1), _step(1, "s", "o0", "o0", "2 3"))}\
{_block(1, 2, _step(0, "r", "i0", "s1", signals=1), _step(1, "s", "o0", "o0", "2 3"))}\
{
    _block(
        2,
        -1,
        _step(0, "cpy", "i0", "o0"),
        _step(1, "nop", "i-1", "o-1", "0 0", count=0),
        _step(2, "re", "s0", "o0", "1 0"),
        _step(3, "re", "s1", "o0", signals=1),
    )
}\
  </gpu>
{_LEAVES}</algo>
"""
"""An allreduce of three ranks, which all three runtimes load and run."""

NUMBERS = (None, "-1", "-2", "0", "1", "2", "3", "64", "72", "256", "32768", "65536", "2147483648", "4294967296",
           "x", "0x1", "01", " 1", "1x", "\t1", "", "9" * 20, "1" * 256)  # fmt: skip
WORDS = {
    "proto": ("Simple", "LL128", "simple", "", "LL "),
    "coll": (
        "allgather",
        "reduce",
        "broadcast",
        "alltoall",
        "reduce_scatter",
        "reducescatter",
        "custom",
        "send",
        "gossip",
    ),
    "type": ("s", "r", "cpy", "re", "rrc", "rrs", "rcs", "rrcs", "nop", "ra", "copy", ""),
    "srcbuf": ("i", "o", "s", "input", ""),
    "dstbuf": ("i", "o", "s", "x"),
    "name": ("", "a" * 64, "a" * 255, "<>&amp;", "a\nb"),
}
TEXTS = {
    "<algo": ("<?xml version='1.0'?>\n<algo", '<?xml version="1.0"?><algo', "<!DOCTYPE algo>\n<algo", "\n \r\n<algo",
        "\t<algo", "x<algo", "\ufeff<algo", "< algo", "<!-- one -->\n<!----><algo", "<!--one=two--><algo",
        "<!-- one=two --><algo", "<!--> <algo", "<!-- one -- ><algo", "<!--" + "x" * 252 + "--><algo",
        "<!-- " + "x" * 300 + "--><algo", "<note/><algo", "<note></other><algo", "</algo><algo",),
    "<algo ": ("<algo\n", "<algo  ", "<algo\t", "<ALGO ", "<algo/ ", "<algo one two ",
        '<algo one="1" two="2" three="3" four="4" five="5" six="6" ',
        '<algo one="1" two="2" three="3" four="4" five="5" six="6" seven="7" ', "<algo " + "x" * 254 + '="1" ',
        "<algo " + "x" * 255 + '="1" ', "<algo " + "x" * 253 + " ", "<algo " + "x" * 254 + " ",),
    "<gpu id": ("<gpu\nid", "<gpu \nid", "<gpu id1 id",),
    "<gpu id=": ("<gpu id =", "<gpu id= ",),
    '<gpu id="0"': ("<gpu id='0'", '<gpu id=\'0"', '<gpu id="0', "<gpu id=0", '<gpu id=0"', '<gpu id="0" id="1"',),
    '<gpu id="0" ': ('<gpu id="0"', '<gpu id="0"\n',),
    's_chunks="2">': ('s_chunks="2" >', 's_chunks="2"  >', 's_chunks="2"\n>', 's_chunks="2"/>', 's_chunks="2">text',
        's_chunks="2"><!-- x -->', 's_chunks="2"><note>', 's_chunks="2"><note><more></a></b>', 's_chunks="2">>',
        's_chunks="2"></tb>', 's_chunks="2"' + " " * 12 + ">", 's_chunks="2"' + " " * 14 + ">",),
    's_chunks="2"': (" " * 13 + 's_chunks="2"', " " * 14 + 's_chunks="2"',),
    "/>": (" />", "/ >", "/x>", "></step>", "></other>", "><note/></step>", ">text</step>", ">",
        "><!-- x --></step>", " \n/>", "//>", "/>/>",),
    "</tb>": ("</tb >", "</ tb>", "</tb/>", "<tb/>", "</gpu>", "</tb>\t", "", "</tb></tb>", "</tb><step/>",
        "<note></tb></tb>",),
    "</gpu>": ("</GPU>", "</>", "", "</gpu></gpu>", "</gpu><tb/>", "</gpu><gpu/>",
        '</gpu><gpu id="9"><tb></other></gpu>', '</gpu><gpu id="9"></tb>',
        '</gpu><gpu id="9"><tb><step><note/></step></tb></gpu>',
        '</gpu><gpu id="9"/>',
        '</gpu><gpu id="9"><tb><step/></tb></gpu>', '</gpu><note x=\'1">',),
    "</algo>": ("", "</algo", "</gpu>", "</algo><algo></algo>", "</algo><algo>", "</algo>text", "</algo></algo>",
        "</algo></a></b>", "</algo><note/>", "</algo>\n\n", "</algo><!-- x", "</algo>\t",),
}  # fmt: skip
"""What is replaced once, and by what."""
LINES = (0, 1, 2, 3, 4, 11, 12, 13, 14, 17, 18)
"""Lines of `WHOLE` whose attributes are changed: one of each kind, and of each kind of step."""


def broken_files() -> Iterator[tuple[str, str]]:
    """How each file is broken, and its text; always in the same order."""
    lines = WHOLE.splitlines(keepends=True)
    for number in LINES:
        for name, value in re.findall(r' (\w+)="([^"]*)"', lines[number]):
            for other in WORDS[name] + (None,) if name in WORDS else NUMBERS:
                if other != value:
                    new = "" if other is None else f' {name}="{other}"'
                    changed = lines[number].replace(f' {name}="{value}"', new, 1)
                    yield (
                        f"line {number + 1}: {name} {other!r}",
                        "".join([*lines[:number], changed, *lines[number + 1 :]]),
                    )
    for old, new in ((old, new) for old, news in TEXTS.items() for new in news):
        yield f"{old!r} to {new!r}", WHOLE.replace(old, new, 1)
    for part in range(40):
        yield f"{part}/40 of the file", WHOLE[: len(WHOLE) * part // 40]
    yield from _large_files()
    for number, line in enumerate(lines):
        yield f"line {number + 1} left out", "".join([*lines[:number], *lines[number + 1 :]])
        yield f"line {number + 1} twice", "".join([*lines[: number + 1], line, *lines[number + 1 :]])
        yield (
            f"line {number + 1} and the next change places",
            "".join([*lines[:number], *lines[number + 1 : number + 2], line, *lines[number + 2 :]]),
        )


def _large_files() -> Iterator[tuple[str, str]]:
    """Files at the limits of the runtimes and one beyond: steps, thread blocks, connections, elements and chunks."""

    def with_leaf(how: str, *blocks: str, sizes: str = 's_chunks="0"') -> tuple[str, str]:
        leaf = _LEAVES[: _LEAVES.index("  </gpu>")]
        return how, WHOLE.replace(leaf, leaf.replace('s_chunks="0"', sizes) + "".join(blocks))

    def copies(number: int, count: int, last: int | None = None) -> str:
        steps = [_step(index if last is None else min(index, last), "cpy", "i0", "o0") for index in range(count)]
        return _block(number, -1, *steps)

    for count in (64, 65, 256, 257):
        yield with_leaf(f"{count} steps", copies(1, count))
        yield with_leaf(f"{count} steps with the numbers up to 63", copies(1, count, 63))
    for count in (64, 65, 216, 217):
        yield with_leaf(f"{count} thread blocks", *(_block(number, -1) for number in range(1, count)))
    for count in (32, 33):
        blocks = [_block(number, 0, _step(0, "s", "i0", "o0")) for number in range(1, count)]
        yield with_leaf(f"{count} sends on a channel", *blocks)
    for count in (4025, 4026):
        blocks = [copies(1 + first // 64, min(64, count - first)) for first in range(0, count, 64)]
        yield with_leaf(f"{count} more steps in all", *blocks)
    for chunk in (32767, 32768, 65535, 65536):
        copy = _step(0, "cpy", f"s{chunk}", "o0")
        yield with_leaf(f"chunk {chunk} of 40000", _block(1, -1, copy), sizes='s_chunks="40000"')
    for count, waits in ((16, "-1 -1"), (17, "-1 -1"), (17, "0 0")):
        chain = (_step(index, "re", "i0", "o0", waits if index == 3 else "-1 -1") for index in range(count))
        yield with_leaf(f"{count} reductions into one chunk, {waits}", _block(1, -1, *chain))
