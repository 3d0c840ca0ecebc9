"""Decides who may talk to a service: addresses, tokens, TLS."""

import dataclasses
import hmac
import ipaddress
import os
import shlex
import ssl
import stat

from absl import logging
import grpc

from scalable_agent.process import errors
from scalable_agent.remote import certificates

TOKEN_KEY = 'authorization'
_SCHEME = b'Bearer '
_MINIMUM_TOKEN_BYTES = 16
# What gRPC says of a connection that cannot be made, and what that means. Some
# versions of gRPC do not say why a certificate cannot be verified.
_FINAL_FAILURES = (
    ('certificate has expired',
     'its certificate, or one that signed it, has expired'),
    ('certificate is not yet valid',
     'its certificate, or one that signed it, is not valid yet, or the clock '
     'of this machine is wrong'),
    ('certificate signature failure',
     'its certificate is not signed by --tls_ca'),
    ('CERTIFICATE_VERIFY_FAILED: ',
     'its certificate is not signed by --tls_ca'),
    ('CERTIFICATE_VERIFY_FAILED',
     'its certificate is not signed by --tls_ca, or has expired'),
    ('Hostname Verification', 'its certificate is for another host'),
    ('WRONG_VERSION_NUMBER', 'it does not use TLS, and this job does'))
_DOUBTFUL_FAILURE = 'Socket closed'
_DOUBT = (' (If it is running: do both ends use TLS, and is the --tls_cert of '
          'this job signed by its --tls_ca, and not expired?)')


@dataclasses.dataclass(frozen=True)
class Security:
  """What both ends know; every field is bytes, empty if unset.

  Attributes:
    token: The shared secret.
    tls_key: This end's private key, PEM. A service with one speaks TLS only.
    tls_cert: The certificate chain that belongs to it, PEM.
    tls_ca: Certificates that the other end's has to be signed by, PEM. A
      service with one accepts only callers that have a certificate.
  """
  # Secrets are in no repr, so that printing one does not show them.
  token: bytes = dataclasses.field(default=b'', repr=False)
  tls_key: bytes = dataclasses.field(default=b'', repr=False)
  tls_cert: bytes = dataclasses.field(default=b'', repr=False)
  tls_ca: bytes = dataclasses.field(default=b'', repr=False)


class SecurityError(ValueError):
  """The settings do not protect what they should; the text says which."""


def is_loopback(host):
  """Whether a host's name or address never leaves this machine."""
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return host == 'localhost'


def _read(flag, path):
  if not path:
    return b''
  try:
    with open(path, 'rb') as f:
      content = f.read()
  except OSError as e:
    raise SecurityError(
        f'--{flag}={path} cannot be read: {errors.first_line(e)}') from e
  if not content.strip():
    raise SecurityError(f'--{flag}={path} is empty')
  return content


def _read_secret(flag, path):
  """As `_read`, with a warning if others may read or write the file too."""
  content = _read(flag, path)
  if path:
    status = os.stat(path)
    # Kubernetes gives its secrets to a group, through which this user reads.
    others = 0o077 if status.st_uid == os.geteuid() else 0o027
    mode = stat.S_IMODE(status.st_mode)
    if mode & others:
      logging.warning(
          '--%s=%s is a secret that others on this machine may read or write '
          '(mode %03o). Keep it to yourself: chmod 600 %s', flag, path, mode,
          shlex.quote(path))
  return content


def _check_validity(flag, path, periods):
  """Refuses certificates if none of them is valid today."""
  complaint = certificates.complaint(periods)
  if complaint:
    raise SecurityError(
        f'--{flag}={path} {complaint}, by the clock of this machine')


def load(auth_token_file, tls_cert, tls_key, tls_ca):
  """Reads the files that the flags of these names point to.

  Returns:
    A `Security`.

  Raises:
    SecurityError: A file cannot be read, the settings do not fit together, or
      a certificate is not valid today or has a key that gRPC cannot use.
  """
  if bool(tls_cert) != bool(tls_key):
    raise SecurityError('--tls_cert and --tls_key need each other')
  token = _read_secret('auth_token_file', auth_token_file).strip()
  if token and len(token) < _MINIMUM_TOKEN_BYTES:
    raise SecurityError(
        f'--auth_token_file={auth_token_file} holds {len(token)} bytes, a '
        f'token has {_MINIMUM_TOKEN_BYTES} or more')
  if not all(33 <= byte < 127 for byte in token):
    raise SecurityError(
        f'--auth_token_file={auth_token_file} has to hold one line of ASCII '
        'without spaces')
  security = Security(
      token, _read_secret('tls_key', tls_key), _read('tls_cert', tls_cert),
      _read('tls_ca', tls_ca))
  # gRPC would only say that it cannot listen, or connect.
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  try:
    if tls_cert:
      context.load_cert_chain(tls_cert, tls_key, password='')
  except (ssl.SSLError, ValueError) as e:
    raise SecurityError(
        f'--tls_cert={tls_cert} and --tls_key={tls_key} are no certificate '
        f'(PEM) and the key to it, without a password: {e}') from e
  try:
    if tls_ca:
      context.load_verify_locations(tls_ca)
  except (ssl.SSLError, ValueError) as e:
    raise SecurityError(
        f'--tls_ca={tls_ca} holds no certificates (PEM): {e}') from e
  if tls_cert and not certificates.has_usable_key(security.tls_cert):
    raise SecurityError(
        f'--tls_cert={tls_cert} has a kind of key that gRPC cannot use. Make '
        'it with an RSA key, or an EC key on P-256 or P-384')
  # After the first one come those that signed it.
  _check_validity('tls_cert', tls_cert,
                  certificates.periods(security.tls_cert)[:1])
  _check_validity('tls_ca', tls_ca, certificates.periods(security.tls_ca))
  return security


def check_exposure(address, security, insecure_network, who):
  """Refuses to listen without the protection asked for, or with too little.

  Args:
    address: Of `addresses.join`, to listen on.
    security: A `Security`.
    insecure_network: Whether the network itself keeps others out.
    who: Who would listen.

  Raises:
    SecurityError: Anybody on the network could call it, or the settings look as
      though they kept others out and do not.
  """
  if security.tls_ca and not security.tls_key:
    raise SecurityError(
        f'--tls_ca protects {who} only together with --tls_cert and --tls_key')
  host = address.rpartition(':')[0].strip('[]')
  if is_loopback(host) or insecure_network or security.token:
    return
  if not security.tls_key:
    raise SecurityError(
        f'{who} would listen on {address} for anybody. Give '
        '--auth_token_file, or --tls_cert, --tls_key and --tls_ca, or '
        '--insecure_network where the network itself keeps others out')
  if not security.tls_ca:
    logging.warning(
        'TLS hides what is sent to %s, but without --tls_ca or '
        '--auth_token_file whoever reaches it may send.', address)


def server_credentials(security):
  """Returns gRPC's server credentials, None for no TLS."""
  if not security.tls_key:
    return None
  return grpc.ssl_server_credentials(
      [(security.tls_key, security.tls_cert)], security.tls_ca or None,
      require_client_auth=bool(security.tls_ca))


def channel_credentials(security):
  """Returns gRPC's channel credentials, None for no TLS."""
  if not (security.tls_ca or security.tls_key):
    return None
  return grpc.ssl_channel_credentials(
      security.tls_ca or None, security.tls_key or None,
      security.tls_cert or None)


def explain_failure(details):
  """Explains gRPC's details of a connection that failed.

  Returns:
    A pair of strings: why trying again is of no use, '' if it may be; and a
    hint to add to the details.
  """
  for sign, meaning in _FINAL_FAILURES:
    if sign in details:
      return meaning, ''
  return '', _DOUBT if _DOUBTFUL_FAILURE in details else ''


def metadata(security):
  """Returns the metadata that every call has to send."""
  if not security.token:
    return ()
  return ((TOKEN_KEY, (_SCHEME + security.token).decode()),)


class Authenticator(grpc.aio.ServerInterceptor):
  """Turns away calls without the token, whatever they hold."""

  def __init__(self, token, on_refused):
    """Initializes the interceptor.

    Args:
      token: Bytes; empty admits all.
      on_refused: A function to call with gRPC's name of whoever was turned
        away.
    """
    self._expected = _SCHEME + token if token else None

    async def refuse(unused_requests, context):
      on_refused(context.peer())
      await context.abort(grpc.StatusCode.UNAUTHENTICATED,
                          'the token is missing or wrong (--auth_token_file)')

    # A stream, whatever the method is: only a stream can be refused before its
    # first message has come.
    self._refusal = grpc.stream_stream_rpc_method_handler(refuse)

  async def intercept_service(self, continuation, handler_call_details):
    """See base class."""
    handler = await continuation(handler_call_details)
    if self._expected is None:
      return handler
    given = b''
    for key, value in handler_call_details.invocation_metadata:
      if key == TOKEN_KEY:
        given = value.encode() if isinstance(value, str) else value
    if hmac.compare_digest(given, self._expected):
      return handler
    return self._refusal
