"""What an actor job runs whose policy is at the learner: environments alone."""

import numpy as np

from scalable_agent import threads
from scalable_agent.remote import client as client_lib
from scalable_agent.remote import protocol
from scalable_agent.remote import stream as stream_lib
from scalable_agent.remote import wire


class Job:
  """Steps environments as the learner says; needs no network for that."""

  def __init__(self, config, pools, address, security):
    """Starts the threads.

    Args:
      config: A `config.Config`.
      pools: A list of `environments.Pool`s, closed by `close`.
      address: 'host:port' of the learner.
      security: A `security.Security`.
    """
    self._address = address
    self._clients = {
        pool: client_lib.LearnerClient(
            address,
            protocol.agreement(
                config, pool.num_actions, pool.observation_spec),
            config.task, pool.level_names, None, None, security)
        for pool in pools}
    self._threads = threads.ActorThreads(pools, self._step)

  def check(self):
    """Raises what ended a thread, if something did."""
    self._threads.check()

  def close(self):
    """Ends the threads."""
    for client in self._clients.values():
      client.close()
    self._threads.close()

  def _step(self, pool):
    client = self._clients[pool]
    layouts = protocol.StepsLayouts(
        pool.observation_spec, pool.num_environments, pool.num_actions)
    output = pool.recv()
    while True:
      try:
        stream = client.open_stream()
        # To the learner, what a stream has not shown yet has just begun.
        seen = np.zeros([pool.num_environments], bool)
        while True:
          step_output = output.step_output._replace(
              done=output.step_output.done | ~seen[output.ids])
          seen[output.ids] = True
          steps, actions = layouts.of_size(len(output.ids))
          answer = actions.decode(stream.exchange(steps.encode(
              protocol.StepsMessage(
                  output.ids, output.game_over, step_output))))
          pool.send(answer.ids, answer.actions)
          output = pool.recv()
      except stream_lib.Broken:
        # The games that ended here may have been reported before.
        output = output._replace(game_over=np.zeros_like(output.game_over))
      except wire.WireError as e:
        raise client_lib.Refused(
            f'The learner at {self._address} sent other actions than agreed '
            f'on: {e}.') from e
