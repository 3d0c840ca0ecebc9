"""What `transport` measures: our service, and two that do nothing.

'plain' drops the bytes, 'echo' sends them back: they show what gRPC itself
allows. They get the same unrolls, but with all frames of stacks, and in calls
where our service has a stream.
"""

import collections
import concurrent.futures
import contextlib
import functools

import grpc
import numpy as np
import tree

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.learner_service import service as service_lib
from scalable_agent.remote import channels
from scalable_agent.remote import security as security_lib
from scalable_agent.throughput import unrolls
from scalable_agent.unroll_messages import unroll_layouts

_AGREEMENT = dict(protocol=protocol.VERSION)
_SECURITY = security_lib.Security()


class Messages:
  """What is sent in a shape: layouts, an unroll and weights.

  They are made once and passed to the other processes, which then need no
  TensorFlow.
  """

  def __init__(self, shape):
    from scalable_agent import networks  # pylint: disable=g-import-not-at-top

    spec = (environments.ArraySpec(shape.frame, np.dtype(np.uint8)),)
    agent = networks.Agent(
        shape.num_actions, spec, shape.torso, shape.use_lstm,
        channel_multiplier=shape.channel_multiplier)
    # As a plain tuple: its own class is in a module that loads TensorFlow.
    state = tuple(agent.initial_state(1))
    output = actor.initial_output(1, shape.num_actions)
    self.unroll_layout = unroll_layouts.unroll_layout(
        state, output, spec, shape.unroll_length, 1)
    self.weights = agent.initial_params(0)
    self.weights_layout = protocol.weights_layout(self.weights)
    self.unroll = unrolls.random_unroll(shape, state, output)

  def unroll_bytes(self):
    """What the unroll holds, as bytes without names."""
    return b''.join(
        leaf.tobytes() for leaf in tree.flatten(
            (self.unroll.agent_state, self.unroll.env_outputs,
             self.unroll.agent_outputs)))


@contextlib.contextmanager
def _bare_server(answer, messages):
  """A service that does nothing with unrolls.

  Args:
    answer: A function of an unroll's message that returns the answer's.
    messages: A `Messages`.
  """
  weights = messages.weights_layout.encode(
      protocol.WeightsMessage(np.int64(0), messages.weights))
  unary = grpc.unary_unary_rpc_method_handler
  server = grpc.server(
      concurrent.futures.ThreadPoolExecutor(256),
      options=channels.channel_options(1 << 30))
  server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
      protocol.SERVICE, dict(
          PutUnroll=unary(lambda message, context: answer(message)),
          GetWeights=unary(lambda message, context: weights)))])
  port = server.add_insecure_port('localhost:0')
  server.start()
  yield port
  server.stop(None).wait()


@contextlib.contextmanager
def _our_server(messages):
  service = service_lib.Service(
      'localhost:0', service_lib.Offer(
          _AGREEMENT, [unrolls.LEVEL], messages.unroll_layout,
          messages.weights_layout, lambda unroll, wait: True,
          lambda *unused_episode: None), _SECURITY)
  service.update(messages.weights, 0)
  yield service.port
  service.close()


def serve(name, messages, connection):
  """Runs a server in a process of its own until the connection ends."""
  with SIDES[name].make_server(messages) as port:
    connection.send(port)
    with contextlib.suppress(EOFError):
      connection.recv()


def _bare_caller(messages, port, unrolls_per_call):
  """Returns functions that send an unroll and get weights, and a closer.

  The first two take whether to return only once everything has been answered.
  """
  channel = grpc.insecure_channel(
      f'localhost:{port}', channels.channel_options(1 << 30))
  put, get = (channel.unary_unary(f'/{protocol.SERVICE}/{name}')
              for name in ('PutUnroll', 'GetWeights'))
  message = messages.unroll_bytes() * unrolls_per_call
  return (lambda unused_wait: put(message), lambda unused_wait: get(bytes(16)),
          channel.close)


def _our_caller(messages, port, unrolls_per_call):
  client = client_lib.LearnerClient(
      functools.partial(
          client_lib.make_link, f'localhost:{port}', _SECURITY, 0, _AGREEMENT,
          [unrolls.LEVEL]),
      lambda unused_num_levels: messages.unroll_layout, messages.weights_layout)
  _, version = client.get_weights(-1)
  batch = [messages.unroll._replace(
      policy_version=version)] * unrolls_per_call
  return (lambda wait: client.put_unrolls(batch, wait),
          lambda unused_wait: client.get_weights(-1), client.close)


Side = collections.namedtuple('Side', 'make_server make_caller')
SIDES = dict(
    plain=Side(functools.partial(_bare_server, lambda message: b''),
               _bare_caller),
    echo=Side(functools.partial(_bare_server, lambda message: message),
              _bare_caller),
    ours=Side(_our_server, _our_caller))
