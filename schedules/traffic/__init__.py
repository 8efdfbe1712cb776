"""Collectives, shard weights, matrices of pairs."""
