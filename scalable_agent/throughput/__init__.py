"""Measures the parts of a run, the whole, and the transport between jobs."""
