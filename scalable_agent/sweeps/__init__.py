"""Many runs of the experiment, each a process of its own."""
