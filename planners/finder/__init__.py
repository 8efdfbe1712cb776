"""Topology finder."""
