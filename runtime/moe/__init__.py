"""Dispatch and combine of a mixture of experts through torch.distributed."""
