"""Acts as a worker of A3C, and sends the gradient of each unroll."""

from scalable_agent import a3c
from scalable_agent import actor
from scalable_agent import policy as policy_lib
from scalable_agent.assembly import loss as loss_assembly
from scalable_agent.config import seeds
from scalable_agent.jobs import learner_link


class Actors(learner_link.Actors):
  """The threads of an actor job that is a worker of A3C; it has one pool."""

  _SENDS = 'gradients'

  def __init__(self, config, pools, address, security):
    """Starts the threads; see base class."""
    super().__init__(config, pools, address, security)
    self._start(pools)

  def _make_actor(self, pool):
    config, devices = self._config, self._devices
    policy = policy_lib.Policy(
        self._agent, *self._client.get_weights(-1),
        # Unlike any other actor's, and unlike its own before a restart.
        seed=seeds.derive(config.seed, seeds.ACTIONS, self._client.session),
        device=devices.inference, jit_compile=devices.jit_compile)
    worker = a3c.Worker(
        policy, loss_assembly.create_gradient_fn(
            config, self._agent, devices.inference, devices.jit_compile),
        self._client.get_weights, self._send)
    return actor.Actor(
        pool.level_names, pool.num_actions, worker.policy,
        self._agent.initial_state(1), config.unroll_length,
        config.num_action_repeats, worker.put, self._reports.put,
        self._times, refresh=worker.refresh)

  def _send(self, unroll):
    # The learner needs no more of the unroll.
    self._client.put_unrolls([unroll._replace(
        agent_state=(),
        env_outputs=unroll.env_outputs._replace(observation=()))])
