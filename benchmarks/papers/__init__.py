"""Tables and figures of the papers, recomputed: what is printed, what we find, and why they differ."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for _folder in (ROOT / "benchmarks", ROOT / "examples", ROOT / "examples" / "direct_connect"):
    # What the items build on is made of scripts, which find each other by name.
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))
