"""Plan, bound, compare, family, find."""
