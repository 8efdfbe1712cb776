"""Families: tori, circulants, Kautz, distance-regular …."""
