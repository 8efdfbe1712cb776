"""Explicit mathematical models, one per module; none exists yet."""
