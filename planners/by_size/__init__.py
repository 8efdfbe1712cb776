"""Schedules in few steps for data of a given size, found from the groups of ranks of a network."""
