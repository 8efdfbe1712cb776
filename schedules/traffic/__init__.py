"""Shard weights, matrices of pairs."""
