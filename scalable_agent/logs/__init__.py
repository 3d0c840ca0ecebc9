"""What a run says: to its terminal, to its log files, to TensorBoard."""
