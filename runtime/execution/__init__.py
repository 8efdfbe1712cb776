"""Execution of plans on ranks, by torch.distributed or JAX: processes, calls, and rounds of messages."""
