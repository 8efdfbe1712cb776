"""Symmetries of networks and graphs: isomorphism, translations, nested groups, failures alike by symmetry."""
