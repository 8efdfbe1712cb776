"""Reader of NCCL and RCCL topology XML, including PCIe."""
