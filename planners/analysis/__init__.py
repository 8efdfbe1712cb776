"""Compare, bounds by LP, sensitivity, synthesis."""
