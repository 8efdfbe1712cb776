"""Plans as functions of JAX: rounds of messages as permutations of ranks."""
