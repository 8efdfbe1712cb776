"""Vendor boxes and switched fabrics, boxes composed."""
