"""Collopt bench."""
