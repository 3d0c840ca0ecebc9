"""Population based training: runs that copy each other, and what they evolve.
"""
