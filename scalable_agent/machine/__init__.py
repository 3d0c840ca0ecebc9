"""What this machine has: cores, memory, limits of a container, GPU libraries."""
