"""NCCL's and RCCL's topology XML, with PCIe."""
