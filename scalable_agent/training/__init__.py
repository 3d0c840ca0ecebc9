"""A training run: its loop, its actors, its peers, and what it writes."""
