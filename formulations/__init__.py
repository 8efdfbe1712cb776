"""Explicit mathematical models, one per module; they know no solver."""
