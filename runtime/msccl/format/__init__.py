"""MSCCL XML: limits and dialects of the runtimes, reader, writer."""
