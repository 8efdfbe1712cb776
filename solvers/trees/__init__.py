"""ForestColl: bottleneck, tight sets, switch removal, packing, height reduction."""
