"""Interface to the HiGHS solver: options, sessions, solutions, certificates and diagnosis."""
