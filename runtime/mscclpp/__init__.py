"""MSCCL++ execution plans: written, read back, checked and run."""
