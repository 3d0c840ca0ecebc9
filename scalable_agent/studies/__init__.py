"""Compares the variants of a sweep."""
