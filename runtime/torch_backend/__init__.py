"""What `collopt.runtime.backend` consists of: groups, plans and settings of a torch.distributed backend."""
