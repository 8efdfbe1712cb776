"""Vendor boxes, switched fabrics, and boxes joined by a scale-out network."""
