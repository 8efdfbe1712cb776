"""ForestColl: tight sets, switch removal, tree packing, height reduction; strength and orientation; tree centers."""
