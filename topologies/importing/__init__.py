"""Import of networks: NCCL topology files, output of vendor tools, inputs of other planners and simulators."""
