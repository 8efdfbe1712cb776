"""Files that make NCCL itself follow a plan: graphs and tuner tables."""
