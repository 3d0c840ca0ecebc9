"""Who may talk to a learner, over real connections."""

import contextlib
import logging as python_logging
import os
import socket
import threading

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric import rsa
import grpc
import pytest

from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import security as security_lib
from tests.remote import authorities
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')

_TOKEN = b'correct-horse-battery'
_PAST, _FUTURE = authorities.PAST, authorities.FUTURE
_tls = authorities.security_of


@pytest.mark.parametrize('host, expected', [
    ('localhost', True), ('127.0.0.1', True), ('127.8.9.1', True),
    ('::1', True), ('0.0.0.0', False), ('::', False), ('10.0.0.1', False),
    ('localhost.example.org', False), ('learner', False)])
def test_is_loopback(host, expected):
  assert security_lib.is_loopback(host) == expected


def test_load_token(tmp_path):
  path = tmp_path / 'token'
  path.write_bytes(_TOKEN + b'\n')
  security = security_lib.load(str(path), '', '', '')
  assert security == security_lib.Security(token=_TOKEN)
  assert _TOKEN.decode() not in repr(security)


@pytest.mark.parametrize('content, what', [
    (None, 'cannot be read'), (b'', 'is empty'), (b' \n\t', 'is empty'),
    (b'only-fifteen-by', 'holds 15 bytes'),
    (b'sixteen bytes or so', 'without spaces'),
    (b'two-lines-of-it-\nare-not-allowed', 'without spaces'),
    ('löng-enough-but-not-ascii'.encode(), 'without spaces')])
def test_load_refuses_token(content, what, tmp_path):
  path = tmp_path / 'token'
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(security_lib.SecurityError) as e:
    security_lib.load(str(path), '', '', '')
  assert what in str(e.value)
  assert f'--auth_token_file={path}' in str(e.value)
  if content and content.strip():
    assert content.decode() not in str(e.value)


_TLS = security_lib.Security(tls_key=b'k', tls_cert=b'c')
_MUTUAL_TLS = security_lib.Security(tls_key=b'k', tls_cert=b'c', tls_ca=b'a')


@pytest.mark.parametrize('address, security, insecure, allowed', [
    ('127.0.0.1:80', security_lib.Security(), False, True),
    ('[::1]:80', security_lib.Security(), False, True),
    ('0.0.0.0:80', security_lib.Security(), False, False),
    ('[::]:80', security_lib.Security(), False, False),
    ('learner:80', security_lib.Security(), False, False),
    ('0.0.0.0:80', security_lib.Security(), True, True),
    ('0.0.0.0:80', security_lib.Security(token=_TOKEN), False, True),
    ('0.0.0.0:80', _TLS, False, True),
    ('0.0.0.0:80', _MUTUAL_TLS, False, True),
    # A CA alone would leave the port open, in plain text.
    ('127.0.0.1:80', security_lib.Security(tls_ca=b'a'), False, False),
    ('0.0.0.0:80', security_lib.Security(_TOKEN, tls_ca=b'a'), False, False),
])
def test_check_exposure(address, security, insecure, allowed):
  if allowed:
    security_lib.check_exposure(address, security, insecure, 'the job')
  else:
    with pytest.raises(security_lib.SecurityError):
      security_lib.check_exposure(address, security, insecure, 'the job')


# -- Tokens -------------------------------------------------------------------

_BAD_METADATA = [
    (), (('authorization', ''),), (('authorization', 'Bearer '),),
    (('authorization', _TOKEN.decode()),),
    (('authorization', 'Bearer ' + _TOKEN.decode()[:-1]),),
    (('authorization', 'Bearer ' + _TOKEN.decode() + 'x'),),
    (('authorization', 'bearer ' + _TOKEN.decode()),),
    (('authorization', 'xBearer ' + _TOKEN.decode()),),
    (('token', 'Bearer ' + _TOKEN.decode()),),
    (('authorization', 'Bearer ' + 'x' * 2000),)]


@pytest.fixture(scope='module')
def guarded():
  with remote_parts.Learner(
      security=security_lib.Security(token=_TOKEN)) as learner:
    yield learner


# Whoever has no token does not learn which methods there are.
@pytest.mark.parametrize('method', [*remote_parts.METHODS, 'NoMethod'])
@pytest.mark.parametrize('metadata', _BAD_METADATA)
def test_every_method_wants_the_token(method, metadata, guarded):
  for message in (b'', remote_parts.hello_message()):
    with remote_parts.Raw(guarded.port, metadata) as raw:
      if method == 'Act':
        outcome = raw.act(1, [message])
      else:
        outcome = raw.unary(method, message)
  code, details = outcome
  assert code == grpc.StatusCode.UNAUTHENTICATED
  assert '--auth_token_file' in details and _TOKEN.decode() not in details
  assert guarded.service.num_jobs == 0


@pytest.mark.parametrize('method', remote_parts.METHODS)
def test_refusal_waits_for_no_message(method, guarded):
  """Or calls that never send one would use up the threads."""
  never = threading.Event()
  with remote_parts.Raw(guarded.port) as raw:
    def messages():
      never.wait(60.)
      yield b''
    call = raw.channel.stream_stream(f'/{protocol.SERVICE}/{method}')(
        messages(), timeout=30.)
    assert call.code() == grpc.StatusCode.UNAUTHENTICATED
  never.set()


def test_token_is_compared_in_constant_time(monkeypatch):
  compared = []
  def compare(a, b):
    compared.append({a, b})
    return a == b
  monkeypatch.setattr(security_lib.hmac, 'compare_digest', compare)
  security = security_lib.Security(token=_TOKEN)
  with remote_parts.Learner(security=security) as learner:
    with remote_parts.Raw(learner.port, _BAD_METADATA[4]) as raw:
      raw.unary('GetWeights', b'')
  assert compared == [{b'Bearer ' + _TOKEN, b'Bearer ' + _TOKEN[:-1]}]


def test_token_opens_and_is_not_logged(caplog):
  caplog.set_level(python_logging.DEBUG)
  security = security_lib.Security(token=_TOKEN)
  with remote_parts.Learner(security=security) as learner:
    with remote_parts.client_of(learner, security=security) as client:
      assert client.get_weights(-1)
      version = client.get_weights(-1)[1]
      client.put_unrolls([remote_parts.make_unroll(0, version)])
    with remote_parts.client_of(learner) as client:
      with pytest.raises(client_lib.Refused, match='--auth_token_file') as e:
        client.get_weights(-1)
    wrong = security_lib.Security(token=_TOKEN[::-1])
    with remote_parts.client_of(learner, security=wrong) as client:
      with pytest.raises(client_lib.Refused) as e2:
        client.get_weights(-1)
  everything = caplog.text + str(e.value) + str(e2.value)
  assert 'joined' in everything
  assert _TOKEN.decode() not in everything
  assert _TOKEN[::-1].decode() not in everything


# -- TLS ----------------------------------------------------------------------


@pytest.fixture(scope='module')
def authority():
  return authorities.Authority('ours')


@pytest.fixture(scope='module')
def stranger():
  return authorities.Authority('theirs')


@pytest.fixture
def short_waits(monkeypatch):
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', .05)
  monkeypatch.setattr(link_lib, '_LONGEST_WAIT_SECONDS', .2)


def _works(learner, security):
  with remote_parts.client_of(learner, security=security) as client:
    return client.get_weights(-1) is not None


def _stays_out(learner, security, caplog):
  """Tries for two seconds; returns what was logged."""
  caplog.clear()
  caplog.set_level(python_logging.INFO)
  with remote_parts.client_of(learner, security=security) as client:
    thread = remote_parts.Thread(client.get_weights, -1)
    remote_parts.wait_until(lambda: 'out of reach' in caplog.text)
    thread.join(1.)
    assert thread.is_alive()
    client.close()
    with pytest.raises(client_lib.Closed):
      thread.result()
  assert learner.service.num_jobs == 0
  return caplog.text


def test_tls_admits_who_trusts_it(authority, short_waits):
  with remote_parts.Learner(
      security=_tls(authority, 'learner', b'', _TOKEN)) as learner:
    assert _works(learner, _tls(None, '', authority.pem, _TOKEN))
    # Protected by the token still.
    with pytest.raises(client_lib.Refused):
      _works(learner, _tls(None, '', authority.pem))


def _refusal(learner, security, **options):
  """What an actor says that ends at once."""
  with pytest.raises(client_lib.Refused) as e:
    with remote_parts.client_of(
        learner, security=security, **options) as client:
      client.get_weights(-1)
  assert learner.service.num_jobs == 0
  return str(e.value)


def test_tls_keeps_out_who_does_not(authority, stranger, short_waits, caplog):
  with remote_parts.Learner(
      host='0.0.0.0', security=_tls(authority, 'learner', b'')) as learner:
    assert '--tls_ca' in _refusal(learner, _tls(None, '', stranger.pem))
    # Within the certificate's network, and not in the certificate.
    assert 'another host' in _refusal(
        learner, _tls(None, '', authority.pem), host='127.0.0.2')
    # This looks the same as a learner that is just going down.
    text = _stays_out(learner, security_lib.Security(), caplog)
    assert 'do both ends use TLS' in text


def test_mutual_tls(authority, stranger, short_waits, caplog):
  with remote_parts.Learner(
      security=_tls(authority, 'learner', authority.pem)) as learner:
    for actor in (_tls(None, '', authority.pem),
                  _tls(stranger, 'actor', authority.pem)):
      assert '--tls_cert' in _stays_out(learner, actor, caplog)
    for actor in (_tls(authority, 'actor', stranger.pem),
                  _tls(stranger, 'actor', stranger.pem)):
      assert '--tls_ca' in _refusal(learner, actor)
    assert _works(learner, _tls(authority, 'actor', authority.pem))


def test_an_actor_with_tls_does_not_talk_in_plain_text(authority, short_waits):
  with remote_parts.Learner() as learner:
    text = _refusal(learner, _tls(None, '', authority.pem))
    assert 'does not use TLS' in text


@pytest.mark.parametrize('hours, expected', [
    (_PAST, 'its certificate, or one that signed it, has expired'),
    (_FUTURE, 'is not valid yet, or the clock of this machine is wrong')])
def test_an_actor_says_that_the_learners_certificate_is_not_valid_today(
    hours, expected, authority, short_waits):
  with remote_parts.Learner(
      security=_tls(authority, 'learner', b'', hours=hours)) as learner:
    text = _refusal(learner, _tls(None, '', authority.pem))
  assert expected in text and 'not signed' not in text


def test_an_actor_says_that_another_authority_of_this_name_signed(
    authority, short_waits):
  impostor = authorities.Authority('ours')
  with remote_parts.Learner(
      security=_tls(impostor, 'learner', b'')) as learner:
    text = _refusal(learner, _tls(None, '', authority.pem))
  assert 'not signed by --tls_ca' in text


def test_a_failure_without_a_reason_is_explained_too():
  """As some versions of gRPC report it."""
  explain = security_lib.explain_failure
  text = 'Ssl handshake failed: OPENSSL_internal:CERTIFICATE_VERIFY_FAILED'
  assert explain(text) == (
      'its certificate is not signed by --tls_ca, or has expired', '')
  assert explain(text + ': unable to get local issuer certificate') == (
      'its certificate is not signed by --tls_ca', '')
  assert explain('connection refused') == ('', '')


def _write(tmp_path, name, content):
  path = tmp_path / name
  path.write_bytes(content)
  return str(path)


def test_load_tls(authority, tmp_path):
  key, cert = authority.issue('learner')
  paths = [_write(tmp_path, *pair) for pair in (
      ('cert', cert), ('key', key), ('ca', authority.pem))]
  assert security_lib.load('', *paths) == security_lib.Security(
      b'', key, cert, authority.pem)


def test_load_refuses_tls(authority, tmp_path):
  key, cert = authority.issue('learner')
  other_key, _ = authority.issue('other')
  locked = serialization.load_pem_private_key(key, None).private_bytes(
      serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
      serialization.BestAvailableEncryption(b'secret'))
  key, cert, other_key, locked, junk, empty = [
      _write(tmp_path, *pair) for pair in (
          ('key', key), ('cert', cert), ('other_key', other_key),
          ('locked', locked), ('junk', b'no PEM'), ('empty', b''))]
  for arguments, what in (
      ((cert, '', ''), 'need each other'),
      (('', key, ''), 'need each other'),
      ((cert, other_key, ''), f'--tls_key={other_key}'),
      ((cert, locked, ''), 'password'),
      ((junk, key, ''), f'--tls_cert={junk}'),
      ((cert, junk, ''), f'--tls_key={junk}'),
      ((cert, empty, ''), f'--tls_key={empty} is empty'),
      ((cert, key, junk), f'--tls_ca={junk}'),
      ((cert, key, str(tmp_path / 'gone')), 'cannot be read')):
    with pytest.raises(security_lib.SecurityError) as e:
      security_lib.load('', *arguments)
    assert what in str(e.value)
    assert '\n' not in str(e.value)


@pytest.mark.parametrize('key, is_usable', [
    (rsa.generate_private_key(65537, 2048), True),
    (ec.generate_private_key(ec.SECP256R1()), True),
    (ec.generate_private_key(ec.SECP384R1()), True),
    (ec.generate_private_key(ec.SECP521R1()), False),
    (ec.generate_private_key(ec.SECP256K1()), False),
    (ed25519.Ed25519PrivateKey.generate(), False)])
def test_keys_that_load_are_those_with_which_others_connect(
    key, is_usable, authority, short_waits, tmp_path):
  """gRPC listens with some others, and then nobody can connect."""
  key, cert = authority.issue('learner', key=key)
  paths = [_write(tmp_path, *pair) for pair in (('cert', cert), ('key', key))]
  security = security_lib.Security(tls_key=key, tls_cert=cert)
  if is_usable:
    assert security_lib.load('', *paths, '') == security
    with remote_parts.Learner(security=security) as learner:
      assert _works(learner, _tls(None, '', authority.pem))
  else:
    with pytest.raises(security_lib.SecurityError) as e:
      security_lib.load('', *paths, '')
    assert str(e.value).startswith(f'--tls_cert={paths[0]} has a kind of key')


@pytest.mark.parametrize('hours, expected', [
    (_PAST, ' expired on '), (_FUTURE, ' is not valid before ')])
def test_load_refuses_certificates_that_are_not_valid_today(
    hours, expected, authority, tmp_path):
  """Of learner and actor; one valid authority is enough."""
  past = authorities.Authority('ours', hours)
  cert, key, ca, both = [
      _write(tmp_path, name, content) for name, content in zip(
          ('cert', 'key', 'ca', 'both'),
          (*reversed(authority.issue('learner', hours)), past.pem,
           past.pem + authority.pem))]
  for arguments, flag in (((cert, key, ''), f'--tls_cert={cert}'),
                          (('', '', ca), f'--tls_ca={ca}')):
    with pytest.raises(security_lib.SecurityError) as e:
      security_lib.load('', *arguments)
    assert str(e.value).startswith(flag + expected)
    assert '\n' not in str(e.value)
  security_lib.load('', '', '', both)


@pytest.mark.parametrize('mode, is_private', [
    (0o600, True), (0o400, True), (0o700, True), (0o640, False),
    (0o604, False), (0o620, False), (0o602, False), (0o666, False)])
def test_load_warns_of_secrets_that_others_can_read(
    mode, is_private, authority, tmp_path, caplog):
  directory = tmp_path / 'with space'
  directory.mkdir()
  key, cert = authority.issue('learner')
  token, key, cert = [_write(directory, *pair) for pair in (
      ('token', _TOKEN), ('key', key), ('cert', cert))]
  for path in (token, key):
    os.chmod(path, mode)
  os.chmod(cert, 0o644)
  assert security_lib.load(token, cert, key, '').token == _TOKEN
  expected = [] if is_private else [
      f'--{flag}={path} is a secret that others on this machine may read or '
      f"write (mode {mode:o}). Keep it to yourself: chmod 600 '{path}'"
      for flag, path in (('auth_token_file', token), ('tls_key', key))]
  assert caplog.messages == expected
  assert _TOKEN.decode() not in caplog.text


@pytest.mark.parametrize('mode, is_private', [
    (0o440, True), (0o640, True), (0o460, False), (0o444, False)])
def test_a_group_may_read_what_another_user_gave_it(
    mode, is_private, tmp_path, monkeypatch, caplog):
  """As Kubernetes hands out its secrets, owned by root."""
  path = _write(tmp_path, 'token', _TOKEN)
  os.chmod(path, mode)
  monkeypatch.setattr(os, 'geteuid', lambda: os.stat(path).st_uid + 1)
  assert security_lib.load(path, '', '', '').token == _TOKEN
  assert bool(caplog.messages) != is_private


def test_garbage_on_the_port_hurts_nobody():
  with remote_parts.Learner() as learner:
    for garbage in (b'', b'GET / HTTP/1.1\r\n\r\n', bytes(range(256)) * 100,
                    b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + b'\xff' * 1000):
      with socket.create_connection(('127.0.0.1', learner.port)) as s:
        s.settimeout(30.)
        # It may hang up at any time, and has to in the end.
        with contextlib.suppress(ConnectionError):
          s.sendall(garbage)
          with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_WR)
          while s.recv(4096):
            pass
    # One that never says anything.
    with socket.create_connection(('127.0.0.1', learner.port)):
      assert _works(learner, security_lib.Security())
