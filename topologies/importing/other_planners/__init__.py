"""TACCL, TE-CCL, msccl-tools, ASTRA-sim, ns-3."""
