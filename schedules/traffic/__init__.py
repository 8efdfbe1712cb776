"""Collectives, shard weights, traffic matrices."""
