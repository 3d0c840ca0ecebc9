"""What any process may need: threads, signals, times, memory, progress."""
