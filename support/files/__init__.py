"""Kinds of files by their content."""
