"""Compares the variants of a sweep, and draws the history of a population."""
