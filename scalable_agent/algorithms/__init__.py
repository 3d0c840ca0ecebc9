"""Loss functions of (params, target params, Batch), one file an algorithm."""
