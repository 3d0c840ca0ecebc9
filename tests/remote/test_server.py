"""What a service reports of its event loop."""

import asyncio

import grpc
import pytest

from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import server as server_lib
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')


class _Service:
  """Answers the messages of method 'M' once it may."""

  def __init__(self):
    self.num_calls = 0
    self.may_answer = False
    self.server = server_lib.Server('the test', 1, .1)
    self.server.start(
        '127.0.0.1:0', 'S', {'M': server_lib.each(self._answer)}, 1000,
        security_lib.Security(), lambda: None)

  async def _answer(self, unused_call, message):
    self.num_calls += 1
    while not self.may_answer:
      await asyncio.sleep(.01)
    return message

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self.server.close(
        lambda: calls_lib.Rejected(grpc.StatusCode.UNAVAILABLE, 'over'))


def test_what_grpc_has_for_a_closed_event_loop_is_no_error(caplog):
  async def call(port):
    channel = grpc.aio.insecure_channel(f'127.0.0.1:{port}')
    stream = channel.stream_stream('/S/M')()
    await stream.write(b'message')
    return channel, stream

  with _Service() as service:
    other = asyncio.new_event_loop()
    # Neither may go before what the closed loop waits for has come.
    unused_channel, unused_stream = other.run_until_complete(
        call(service.server.port))
    remote_parts.wait_until(lambda: service.num_calls)
    errors = []
    report = service.server.loop.get_exception_handler()
    service.server.loop.set_exception_handler(
        lambda loop, context: (errors.append(context), report(loop, context)))
    other.close()
    service.may_answer = True
    remote_parts.wait_until(lambda: errors)
  assert str(errors[0]['exception']) == 'Event loop is closed'
  assert not caplog.records


@pytest.mark.parametrize('error', [
    ValueError('of a callback'), RuntimeError('Event loop is closed'),
    BlockingIOError()])
def test_errors_of_other_callbacks_are_reported(error, caplog):
  def fail():
    raise error

  with _Service() as service:
    service.server.loop.call_soon_threadsafe(fail)
    service.server._run(asyncio.sleep(0))  # Comes after it.
  assert [record.exc_info[1] for record in caplog.records] == [error]
