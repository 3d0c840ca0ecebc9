"""Sources of batches that keep unrolls and draw them again."""
