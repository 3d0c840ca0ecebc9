"""Pools of environments: their processes, what is replaced, what is shown."""
