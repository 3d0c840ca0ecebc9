"""What any process may need: threads, signals, times, limits, progress."""
