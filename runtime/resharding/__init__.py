"""Resharding: tensors that move from one mesh of ranks to another."""
