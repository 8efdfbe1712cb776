"""A checker of plan files that stands alone, the format's schema, and plans that every checker has to agree on."""
