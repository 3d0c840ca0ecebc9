"""Runs a replay job: keeps the unrolls of several agents until stopped."""

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.jobs import addresses
from scalable_agent.process import allocator
from scalable_agent.process import signals
from scalable_agent.shared_replay import contents as contents_lib
from scalable_agent.shared_replay import protocol
from scalable_agent.shared_replay import service as service_lib


def run(config, stop):
  """Serves learners until told to stop, and then drops what was kept.

  Args:
    config: A `config.Config` of a replay job.
    stop: A `signals.Stop`.

  Raises:
    config.ConfigError: The configuration cannot work, or it takes more memory
      than there is.
    environments.PoolError: There are no such environments.
  """
  allocator.keep_freed_memory()
  security = addresses.load_security(config)
  address = addresses.replay_listen_address(config, security)
  try:
    # An environment may take minutes to start.
    with stop.interrupting():
      facts = suites.find_facts(config)
  except signals.Interrupted:
    return
  memory_assembly.check(config, None, facts)
  levels = suites.level_names(config)
  layout = protocol.unroll_layout(config, facts, len(levels))
  contents = contents_lib.Contents(
      layout, config.replay_capacity, memory_assembly.room(config), config.seed,
      config.unroll_length if config.replay_state == 'recomputed' else 0)
  offer = service_lib.Offer(
      protocol.agreement(config, facts), levels, layout, config.replay_agents)
  try:
    service = service_lib.Service(address, offer, contents, security)
  except service_lib.ServiceError as e:
    raise config_lib.ConfigError(
        f'--replay_host={config.replay_host}: {e}') from e
  try:
    logging.info('Replay job: %s, listening for learners on %s',
                 config.level_name, address)
    last = None
    while not stop.wait(config.log_interval_secs):
      gauges = service.take_gauges()
      text = _describe(config, gauges)
      # While nothing happens, one line is enough.
      if gauges['learners'] or text != last:
        logging.info('%s', text)
      last = text
  finally:
    service.close()


def _describe(config, gauges):
  """Says in a line what the buffer holds, and what passes."""
  text = (
      '%d of %d unrolls, %.1f MB; %d learners; %.1f MB/s in, %.1f MB/s out' % (
          gauges['replay_unrolls'], config.replay_capacity,
          gauges['replay_mb'], gauges['learners'],
          gauges['inserted_mb_per_second'], gauges['replay_mb_per_second']))
  if gauges['replay_mb_per_second']:
    text += ', %.0f inserts old' % gauges['replay_age_mean']
  if gauges['lacks_memory']:
    text += '; more would not fit into memory'
  return text
