"""Loss functions of (params, target params, PlacedBatch), and their parts."""
