"""What runs have come to: read, compared with published scores, and shown."""
