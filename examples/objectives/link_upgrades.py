"""Which links to widen: prices from the cut of the bound, confirmed by bounding again.

One box has lost half of its network cards' speed.  The cut says what each link is worth; widening a whole group of
equal links shows what an upgrade would really gain.
"""

from __future__ import annotations

import collopt
from collopt.topologies import Link


def kind(link: Link) -> str:
    """Group links by box and by what they join, both directions together."""
    box = next(node.split("/")[0] for node in link[:2] if "/" in node)
    return f"{box} {'network' if 'ib' in link[:2] else 'inside'}"


def main() -> None:
    """Print what each group of links is worth and what widening it by a tenth gains."""
    topology = collopt.topologies.dgx_a100(boxes=2)
    for card in range(8):
        topology = topology.derate(f"box1/nic{card}", "ib", "1/2")
    print(f"now           {float(collopt.bound(topology, 'allgather').algbw):7.2f} GB/s")
    frame = collopt.sensitivity(topology, "allgather", together=kind)
    print("links           worth    gain   (GB/s of allgather)")
    for group, rows in frame.groupby("group", sort=True):
        print(f"{group}  {float(rows['worth'].iloc[0]):7.2f} {float(rows['gain'].iloc[0]):7.2f}")


if __name__ == "__main__":
    main()
