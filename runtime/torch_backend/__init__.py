"""Process groups of the ``collopt`` backend of torch.distributed."""
