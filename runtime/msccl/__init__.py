"""MSCCL XML: export, format and lint."""
