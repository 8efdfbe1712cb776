"""Path decomposition of flows, rounding to chunks, list scheduling."""
