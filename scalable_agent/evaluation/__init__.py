"""Tests, evaluations and exports of trained weights, and checks of levels."""
