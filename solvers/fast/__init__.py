"""Birkhoff decomposition, tile balance, stages."""
