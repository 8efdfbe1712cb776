"""Bounds of the rate and the time of every schedule, and plans of given schedules."""
