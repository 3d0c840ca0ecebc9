"""Attacks runs of the experiment in every way that a machine may.

    python -m tests.chaos.run --rounds=300 --seed=0

`rounds` has the kinds of attack. `oracle`, `words` and `logs` have the promises
that each must leave unbroken. `arena` has the log directory that is attacked,
and `program` the experiment on it. `damage` changes files while nothing runs,
`faults` takes things away while something does, and `snapshot` reads what is
left.
"""
