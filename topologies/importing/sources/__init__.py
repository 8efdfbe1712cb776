"""Shared by all readers: documents, options, GPU models, JSON fields, text matrices."""
