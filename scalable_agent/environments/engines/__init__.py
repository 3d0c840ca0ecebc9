"""Atari, DeepMind Lab, Gymnasium and synthetic levels, as environments."""
