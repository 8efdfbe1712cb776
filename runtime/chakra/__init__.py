"""Chakra execution traces: export, files, replay."""
