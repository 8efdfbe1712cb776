"""Comparison of planners, bounds by linear programs, sensitivity, synthesis."""
