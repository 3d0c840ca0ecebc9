"""Attacks runs of the experiment in every way that a machine may.

    python -m tests.chaos.run --rounds=300 --seed=0

`rounds` has the kinds of attack, `oracle` the promises that each must leave
unbroken. `program` starts and watches the experiment, `damage` changes files
while nothing runs, `faults` takes things away while it runs, and `snapshot`
reads what it leaves.
"""
