"""Networks from files that engineers have: dumps of NCCL, tables of vendors' tools, inputs of other planners."""
