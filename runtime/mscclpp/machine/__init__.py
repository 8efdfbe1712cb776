"""Interpreter with race check."""
