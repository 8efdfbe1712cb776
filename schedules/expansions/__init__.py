"""Schedules of expanded graphs, reversal."""
