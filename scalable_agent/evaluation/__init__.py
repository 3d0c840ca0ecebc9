"""What is done with trained weights: tests, evaluations, exports."""
