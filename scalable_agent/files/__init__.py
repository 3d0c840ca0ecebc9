"""Files that others may read, damage or lock: names, whole writes, limits."""
