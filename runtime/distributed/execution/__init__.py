"""Execution of programs on torch tensors."""
