"""Readers of network files of TACCL, TE-CCL, msccl-tools, ASTRA-sim and ns-3."""
