"""Who turns a topology and a collective into a certified plan."""

