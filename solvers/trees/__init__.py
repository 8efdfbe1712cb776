"""ForestColl: bottleneck cut, tight sets, switch removal, tree packing, height reduction."""
