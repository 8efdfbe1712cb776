"""Judge of MSCCL++ execution plans: MSCCL++'s own executor runs them on GPUs, and numpy says what is right."""
