"""Programs on real tensors, through torch.distributed."""
