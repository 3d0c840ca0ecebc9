"""Two learners in processes of their own.

    python -m tests.training.learner_pair DIR

Each writes what it found to DIR/<task>.npz, for test_collectives.py.
"""

import os
import sys
import time
import traceback

from absl import flags
import numpy as np
import tree

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import weights_hash
from scalable_agent.config import flags as config_flags
from scalable_agent.training import collectives as collectives_lib
from scalable_agent.training import peers as peers_lib
from tests import learners
from tests import ports as ports_lib

NUM_STEPS = 20
# So that some gradients are clipped, and some are not.
OPTIMIZER = learners.OPTIMIZER._replace(gradient_norm_clip=20.)


def make_batch(i):
  """The batch of step i; a few of its words are in one half alone."""
  ids = np.random.default_rng(i).integers(-1, 30, [learners.B, learners.WORDS])
  return learners.with_words(learners.make_batch(i), ids)


def _half(batch, task):
  rows = slice(task * learners.B // 2, (task + 1) * learners.B // 2)
  unrolls = batch.unrolls
  along_time = lambda nest: tree.map_structure(lambda a: a[:, rows], nest)
  return batch._replace(
      unrolls=unrolls._replace(
          level_name=unrolls.level_name[rows],
          policy_version=unrolls.policy_version[rows],
          env_outputs=along_time(unrolls.env_outputs),
          agent_outputs=along_time(unrolls.agent_outputs)),
      is_replayed=batch.is_replayed[rows], weights=batch.weights[rows],
      keys=batch.keys[rows])


def _bytes(learner):
  return np.frombuffer(
      b''.join(v.numpy().tobytes() for v in learner.variables()), np.uint8)


def _share_any_state(peers, learner, rng):
  """Bytes before and after; no bit pattern is spared, NaNs included."""
  saved = [variable.numpy() for variable in learner.variables()]
  for variable, value in zip(learner.variables(), saved):
    variable.assign(np.frombuffer(
        rng.bytes(value.nbytes), value.dtype).reshape(value.shape))
  before = _bytes(learner)
  peers.share_state(learner)
  after = _bytes(learner)
  for variable, value in zip(learner.variables(), saved):
    variable.assign(value)
  return before, after


def _settings_error(peers, task):
  flags.FLAGS(['experiment', '--level_name=gym:CartPole-v1',
               f'--learning_rate={[.001, .002][task]}'])
  try:
    peers.check_settings(config_lib.resolve(config_flags.given()), {})
  except config_lib.ConfigError as e:
    return str(e)
  return ''


def _learn(task, ports, directory):
  collectives = collectives_lib.Collectives(
      [f'localhost:{port}' for port in ports], task, ['/cpu:0'])
  peers = peers_lib.Peers(collectives)
  # Their own seeds would give them different weights.
  learner = learners.make_learner(
      learners.make_language_agent(), strategy=peers.strategy,
      optimizer=OPTIMIZER, seed=1 + task, target_update_period=NUM_STEPS)
  before, after = _share_any_state(
      peers, learner, np.random.default_rng(task))
  settings_error = _settings_error(peers, task)
  logs = []
  for i in range(NUM_STEPS):
    batch = _half(make_batch(i), task)
    logs.append(learner.step(learner.place(batch))[0])
  found = {name: value.numpy() for name, value in learner.weights().items()}
  state = _bytes(learner)
  hashes = [weights_hash.of(learner.weights())]
  if task:
    learner.variables()[0].assign_add(
        np.full(learner.variables()[0].shape, 1e-3, np.float32))
  hashes.append(weights_hash.of(learner.weights()))
  peers.compare(learner)
  hashes.append(weights_hash.of(learner.weights()))
  start = time.time()
  for _ in range(100):
    collectives.sum(np.arange(5))
  np.savez(
      os.path.join(directory, f'{task}.npz'), state=state, before=before,
      after=after, settings_error=settings_error, hashes=hashes,
      num_weight_bytes=sum(value.nbytes for value in found.values()),
      gathered=collectives.gather(b'abcdefghi'[:9 * task]),
      seconds_per_sum=(time.time() - start) / 100,
      **{f'logs/{name}': [entry[name] for entry in logs] for name in logs[0]},
      **{f'weights/{name}': value for name, value in found.items()})
  peers.finish()


def main(directory):
  """Runs both; forks, so that TensorFlow is loaded only once."""
  ports = ports_lib.free_ports(2)
  child = os.fork()
  code = 0
  try:
    _learn(0 if child else 1, ports, directory)
  except BaseException:
    traceback.print_exc()
    code = 1
  if child:
    code = code or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)  # Not to wait for TensorFlow's goodbye.


if __name__ == '__main__':
  main(sys.argv[1])
