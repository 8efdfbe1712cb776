"""The ``collopt`` backend of torch.distributed."""
