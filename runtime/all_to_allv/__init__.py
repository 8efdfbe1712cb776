"""Staged all-to-allv of FAST through torch.distributed."""
