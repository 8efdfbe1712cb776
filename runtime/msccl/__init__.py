"""MSCCL XML: written, read, and judged as each runtime would."""
