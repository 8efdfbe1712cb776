"""Programs of thread blocks and steps: types, layout, order, channels, transformations."""
