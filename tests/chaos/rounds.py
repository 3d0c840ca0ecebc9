"""The kinds of round: what is done to a log directory and to a run on it.

Each is a function of an `arena.Arena` and a `random.Random`. It returns a few
words on what it did, and leaves the violations that it found with the arena.
"""

from tests.chaos import damages
from tests.chaos import directories
from tests.chaos import endings
from tests.chaos import jobs
from tests.chaos import shortages
from tests.chaos import tested

# Name, function, and weight: the higher, the more often.
KINDS = (
    ('kill', endings.kill, 3),
    ('kill_in_save', endings.kill_in_save, 4),
    ('kill_and_restart', endings.kill_and_restart, 1),
    ('signal_twice', endings.signal_twice, 4),
    ('signal_often', endings.signal_often, 2),
    ('insist', endings.insist, 2),
    ('signal_early', endings.signal_early, 1),
    ('fresh', directories.fresh, 2),
    ('finish', directories.finish, 2),
    ('second', directories.second, 2),
    ('odd_name', directories.odd_name, 1),
    ('state_file', damages.state_file, 4),
    ('newest', damages.newest, 4),
    ('all_damaged', damages.all_damaged, 3),
    ('cut_logs', damages.cut_logs, 2),
    ('leftovers', damages.leftovers, 2),
    ('no_file', damages.no_file, 1),
    ('test_signals', tested.signals, 2),
    ('test_damaged', tested.damaged, 2),
    ('disk_full', shortages.disk_full, 3),
    ('descriptors', shortages.descriptors, 2),
    ('few_descriptors', shortages.few_descriptors, 2),
    ('unwritable', shortages.unwritable, 1),
    ('away', shortages.away, 2),
    ('failed_saves', shortages.failed_saves, 2),
    ('connections', jobs.connections, 1),
    ('replay_job', jobs.replay_job, 2),
    ('learners_differ', jobs.learners_differ, 1))
