"""Tree planners: ForestColl, strength, allreduce LP."""
