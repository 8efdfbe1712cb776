"""Scores of schedules in any file: data, loads of links, bandwidth against the bound, and times."""
