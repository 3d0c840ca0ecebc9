"""The program, with learners that miss each other sooner than it promises.

    python -m tests.training.soon_missed FLAGS
"""

from scalable_agent import experiment
from scalable_agent.process import binary
from scalable_agent.training import collectives

# For what a busy machine holds up this is still long.
collectives._HEARTBEAT_TIMEOUT_MS = 10_000

if __name__ == '__main__':
  binary.run(experiment.main)
