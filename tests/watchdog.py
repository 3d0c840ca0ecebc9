"""How long a test may take before it counts as one that hangs."""

# The whole run ends then, so this is far beyond what a busy machine needs, and
# beyond all deadlines within tests, which say more.
SECONDS = 900.0
