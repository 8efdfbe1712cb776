"""Planners of the literature and of libraries: named trees, rings and schedules in steps."""
