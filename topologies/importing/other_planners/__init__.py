"""Readers of network files of TACCL, TE-CCL, msccl-tools and ASTRA-sim."""
