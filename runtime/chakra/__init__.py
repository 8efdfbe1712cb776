"""Chakra traces."""
