"""Chakra execution traces: written, read and replayed."""
