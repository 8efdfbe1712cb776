"""Ranks: started, launched, joined."""
