"""Steps the environments of an actor job whose policy is at the learner."""

import numpy as np

from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.process import threads
from scalable_agent.remote import stream as stream_lib
from scalable_agent.remote import wire


class Actors:
  """The threads of an actor job whose policy is at the learner.

  They send step outputs and get actions, for which they need no TensorFlow.
  """

  def __init__(self, config, pools, make_link):
    """Starts the threads.

    Args:
      config: A `config.Config`.
      pools: A list of `environments.Pool`s, closed by `close`.
      make_link: As `client.make_link`, from its agreement on.
    """
    self._links = {
        pool: make_link(protocol.agreement(config, pool), pool.level_names)
        for pool in pools}
    self._threads = threads.CheckedThreads(pools, self._step)

  def check(self):
    """Raises what ended a thread, if something did."""
    self._threads.check()

  def close(self):
    """Ends the threads."""
    for link in self._links.values():
      link.close()
    self._threads.close()

  def _step(self, pool):
    link = self._links[pool]
    layouts = protocol.StepsLayouts(
        pool.observation_spec, pool.num_environments, pool.num_actions)
    output = pool.recv()
    while True:
      try:
        stream = link.open_stream('Act')
        # To the learner, an environment begins with its first output over this
        # stream.
        seen = np.zeros([pool.num_environments], bool)
        while True:
          is_new = ~seen[output.ids]
          seen[output.ids] = True
          step_output = output.step_output._replace(
              done=output.step_output.done | is_new)
          steps, actions = layouts.of_size(len(output.ids))
          answer = actions.decode(stream.exchange(steps.encode(
              protocol.StepsMessage(
                  output.ids, step_output, output.is_first | is_new,
                  output.is_last))))
          pool.send(answer.ids, answer.actions)
          output = pool.recv()
      except stream_lib.Broken:
        # The learner may have counted the episodes that ended here.
        output = output._replace(is_last=np.zeros_like(output.is_last))
      except wire.WireError as e:
        raise client_lib.Refused(
            f'The learner at {link.address} sent other actions than agreed on: '
            f'{e}.') from e
