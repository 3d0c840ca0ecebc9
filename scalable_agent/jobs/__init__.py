"""Actor jobs and replay jobs, and the learner's side of them."""
