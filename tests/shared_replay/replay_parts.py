"""What the tests of `scalable_agent.shared_replay` are made of."""

import contextlib
import functools
import json
import math
import types

import grpc
import numpy as np
import tree

from scalable_agent import config as config_lib
from scalable_agent.shared_replay import agent_link
from scalable_agent.shared_replay import contents as contents_lib
from scalable_agent.shared_replay import drawn_episodes
from scalable_agent.shared_replay import drawn_unrolls
from scalable_agent.shared_replay import protocol
from scalable_agent.shared_replay import service as service_lib
from scalable_agent.suites import Facts
from scalable_agent.unroll_messages import unroll_message
from tests.remote import remote_parts

FACTS = Facts(remote_parts.NUM_ACTIONS, remote_parts.SPEC)
SETTINGS = dict(
    {name: config_lib.SETTINGS[name].default
     for name in config_lib.names(config_lib.REPLAY)},
    level_name='both', width=2, height=2, unroll_length=3)
METHODS = ('Hello', 'Insert', 'Draw')
EPISODE_METHODS = ('Hello', 'Insert', 'Episode', 'Fetch')


def make_config(**changes):
  return types.SimpleNamespace(**dict(SETTINGS, **changes))


def make_agreement(facts=FACTS, **changes):
  return protocol.agreement(make_config(**changes), facts)


@functools.lru_cache(maxsize=None)  # Layouts do not change.
def layout(num_levels=len(remote_parts.LEVELS), facts=FACTS, **changes):
  return protocol.unroll_layout(make_config(**changes), facts, num_levels)


def make_unroll(seed, level='easy', stream=0):
  """An `ActorOutput` of its own for every seed, with a core state."""
  return remote_parts.make_unroll(seed, seed, level)._replace(stream=stream)


def _arrays(unroll):
  """Those that come back, a list."""
  return tree.flatten((unroll.env_outputs, unroll.agent_outputs))


def same(found, sent):
  """Whether an unroll that was drawn is one that was sent, to the bit."""
  return _is(found, sent, _arrays(sent))


def _is(found, sent, arrays):
  """As `same`, with the arrays of what was sent."""
  if (found.agent_state != () or found.level_name != sent.level_name or
      found.policy_version != sent.policy_version):
    return False
  return all(x.dtype == y.dtype and np.array_equal(x, y)
             for x, y in zip(_arrays(found), arrays, strict=True))


@functools.lru_cache(maxsize=None)
def _unroll_of(seed, level):
  """What `make_unroll` returns, not to be changed, and its arrays."""
  unroll = make_unroll(seed, level)
  arrays = _arrays(unroll)
  for array in arrays:
    array.setflags(write=False)
  return unroll, arrays


def seed_of(found):
  """Returns the seed of an unroll that was drawn, which has to be its."""
  seed = int(found.policy_version)
  assert _is(found, *_unroll_of(seed, found.level_name))
  return seed


class Job:
  """A replay job's service."""

  def __init__(self, capacity=1000, port=0, security=remote_parts.NO_SECURITY,
               max_bytes=math.inf, episodes=False, facts=FACTS, num_agents=0,
               **changes):
    levels = remote_parts.LEVELS
    unroll_layout = layout(len(levels), facts, **changes)
    self.service = service_lib.Service(
        f'127.0.0.1:{port}',
        service_lib.Offer(make_agreement(facts, **changes), levels,
                          unroll_layout, num_agents),
        contents_lib.Contents(
            unroll_layout, capacity, max_bytes, 1,
            make_config(**changes).unroll_length if episodes else 0),
        security)
    self.port = self.service.port
    self.methods = self.service._methods

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self.close()

  @property
  def num_inserted(self):
    return self.service._contents.state.num_inserted

  def close(self):
    self.service.close()


def make_client(port, name='a', batch_size=1 << 20,
                security=remote_parts.NO_SECURITY, facts=FACTS, episodes=False,
                host='host', **changes):
  """What a learner draws; it agrees with `Job`, but for `changes`."""
  link = agent_link.AgentLink(
      f'127.0.0.1:{port}', make_agreement(facts, **changes), name,
      f'{host}:{name}', batch_size,
      lambda num_levels: layout(num_levels, facts, **changes), security)
  if episodes:
    return drawn_episodes.DrawnEpisodes(
        link, make_config(**changes).unroll_length)
  return drawn_unrolls.DrawnUnrolls(link)


@contextlib.contextmanager
def client_of(job, *args, **options):
  client = make_client(job.port, *args, **options)
  try:
    yield client
  finally:
    client.close()


def insert(client, unrolls):
  """Puts unrolls in, and waits until they are."""
  client.extend(unrolls)
  client._link.flush()


class Raw(remote_parts.Raw):
  """Calls a service with whatever bytes."""

  def future(self, method, message):
    return remote_parts._OneAnswer(self.stream(method, [message]))

  def stream(self, method, messages):
    return self.channel.stream_stream(f'/{protocol.SERVICE}/{method}')(
        iter(messages), metadata=self._metadata, timeout=self._timeout)

  def answers(self, method, message):
    """Returns (status code, list of answers or details)."""
    try:
      return grpc.StatusCode.OK, list(self.stream(method, [message]))
    except grpc.RpcError as e:
      return e.code(), e.details()

  def hello(self, **changes):
    """Returns the number of a new session."""
    code, answer = self.answers('Hello', hello_message(**changes))
    assert code == grpc.StatusCode.OK, answer
    return json.loads(answer[0])['session']


def hello_message(**changes):
  return json.dumps(dict(dict(
      agreement=make_agreement(), agent='raw', name='raw', batch_size=1 << 20,
      run='', session=None), **changes)).encode()


def insert_message(session, sequence, seed=0, **changes):
  """The message that inserts `make_unroll(seed)`."""
  unroll = make_unroll(seed)
  return layout().encode(unroll_message.UnrollMessage(
      session=np.uint64(session), sequence=np.int64(sequence),
      level=np.int32(0), policy_version=np.int64(seed), agent_state=(),
      env_outputs=unroll.env_outputs,
      agent_outputs=unroll.agent_outputs)._replace(**changes))
