"""Failures of networks: what can fail, and which failures are alike by symmetry."""
