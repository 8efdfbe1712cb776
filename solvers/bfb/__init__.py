"""Breadth-first broadcast (BFB): load balancing per step, exact costs of circulant and Kautz graphs."""
