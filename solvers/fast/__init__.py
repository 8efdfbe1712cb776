"""FAST all-to-allv: tile balancing, Birkhoff decomposition and stages."""
