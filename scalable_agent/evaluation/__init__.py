"""Test mode: plays whole episodes, scores and records them."""
