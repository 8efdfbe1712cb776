"""FAST's all-to-allv in stages: data, checks and the two-tier model of its time."""
