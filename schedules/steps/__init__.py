"""Schedules in steps and along paths: sends, flows, allreduces, their checks, cost and expansions."""
