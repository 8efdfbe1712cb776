"""Dialects, limits, reader, writer."""
