"""Acts as a worker of A3C, and sends the gradient of each unroll."""

from scalable_agent import a3c
from scalable_agent.assembly import impala as impala_assembly
from scalable_agent.jobs import learner_link


def start(config, pools, make_link):
  """Starts to act with weights of the learner's, and to send it gradients.

  Args:
    config: A `config.Config`.
    pools: A list of one `environments.Pool`.
    make_link: As `client.make_link`, from its agreement on.

  Returns:
    A `learner_link.Actors`.
  """
  link = learner_link.LearnerLink(config, pools, make_link)

  def make_actor(pool):
    worker = _make_worker(link)
    return link.create_actor(pool, worker.policy, worker.put, worker.refresh)

  return learner_link.Actors(link, pools, make_actor, noun='gradients')


def _make_worker(link):
  client, devices = link.client, link.devices

  def send(unroll):
    # The learner needs no more of the unroll.
    client.put_unrolls([unroll._replace(
        agent_state=(),
        env_outputs=unroll.env_outputs._replace(observation=()))])

  return a3c.Worker(
      link.create_policy(*client.get_weights(-1)),
      impala_assembly.create_gradient_fn(
          link.config, link.agent, devices.inference, devices.jit_compile),
      client.get_weights, send)
