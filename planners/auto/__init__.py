"""The planner ``auto``: a portfolio of all planners, ordered by bounds of their times and limited by an effort."""
