"""Actor jobs, and the learner's side of them."""
