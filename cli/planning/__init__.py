"""Commands that plan: plan, bound, compare, family, find."""
