"""Files that configure NCCL to follow a plan: graphs and tuner tables."""
