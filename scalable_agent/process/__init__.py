"""What any process may need: threads, signals, times, progress."""
