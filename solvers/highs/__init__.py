"""The HiGHS interface."""
