"""Comparisons of planners, sensitivity to bandwidths, plans after failures and for groups of ranks."""
