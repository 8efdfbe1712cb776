"""Processes of the ranks: local ones, and those of a launcher."""
