"""The first of two learners, which ends if the other one comes.

    python -m tests.training.first_learner HOST:PORT HOST:PORT [nohup]
"""

import signal
import sys

from scalable_agent.process import signals
from scalable_agent.training import collectives

if __name__ == '__main__':
  if sys.argv[3:] == ['nohup']:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As `nohup` leaves it.
  with signals.stop_on_signals():
    collectives.Collectives(sys.argv[1:3], 0, ['/cpu:0'])
