"""Lint of MSCCL XML files."""
