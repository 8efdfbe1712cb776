"""Families of direct-connect networks, their expansions, and bounds for all of them."""
