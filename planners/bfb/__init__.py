"""Breadth-first broadcast."""
