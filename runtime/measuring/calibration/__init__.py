"""Link figures from measured times."""
