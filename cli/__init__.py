"""The command line: what a person types, and nothing that a library user would miss."""

from __future__ import annotations

from .app import main

__all__ = ["main"]
