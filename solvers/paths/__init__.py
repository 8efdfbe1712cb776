"""Path decomposition, rounding to chunks, list scheduling."""
