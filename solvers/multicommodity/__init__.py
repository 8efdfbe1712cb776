"""Maximum concurrent flow with a certified gap, exact rates; paths of flows, rounding to chunks, list scheduling."""
