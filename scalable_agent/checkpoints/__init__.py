"""Checkpoints: which there are, which is the best, and what is in one."""
