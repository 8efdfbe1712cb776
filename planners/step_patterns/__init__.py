"""Collective algorithms in steps by their names in the literature, to compare with."""
