"""What this machine has: cores, memory, bounds of a container, CUDA."""
