"""Finds out when certificates are valid, and whose keys gRPC can use."""

import contextlib
import datetime
import re
import ssl

_PEM = re.compile(
    '-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----', re.DOTALL)
# RFC 5280: two times in a row. The year has two digits or, from 2050 on, four.
_TIME = rb'(?:\x17\x0d(\d{12})|\x18\x0f(\d{14}))Z'
_VALIDITY = re.compile(rb'\x30[\x1e\x20\x22]' + 2 * _TIME)
# Object identifiers, DER, of the keys that gRPC's TLS library can sign with.
_USABLE_KEYS = tuple(map(bytes.fromhex, (
    '06092a864886f70d010101',  # RSA
    '06082a8648ce3d030107',  # EC, P-256
    '06052b81040022')))  # EC, P-384


def periods(pem):
  """Finds the periods in which certificates are valid.

  Args:
    pem: Bytes, with any number of certificates.

  Returns:
    A list of pairs of `datetime.datetime`: the first and the last time at which
    a certificate is valid, for each certificate that says so.
  """
  found = []
  for certificate in _decode(pem):
    validity = _VALIDITY.search(certificate)
    with contextlib.suppress(ValueError):  # Such as a day 32.
      if validity:
        first, first_long, last, last_long = validity.groups()
        found.append((_time(first, first_long), _time(last, last_long)))
  return found


def has_usable_key(pem):
  """Whether the first of some certificates has a key that gRPC can use.

  OpenSSL takes other kinds of keys as well. With some of them gRPC can only say
  that it cannot listen; with others it listens, and nobody can connect.

  Args:
    pem: Bytes, with any number of certificates.
  """
  return any(key in certificate for certificate in _decode(pem)[:1]
             for key in _USABLE_KEYS)


def _decode(pem):
  """Returns the DER of each certificate; others refuse what is none."""
  found = []
  for block in _PEM.findall(pem.decode(errors='replace')):
    with contextlib.suppress(ValueError):
      found.append(ssl.PEM_cert_to_DER_cert(block))
  return found


def _time(digits, long_digits):
  if digits:
    century = b'19' if digits >= b'50' else b'20'
    long_digits = century + digits
  return datetime.datetime.strptime(
      long_digits.decode(), '%Y%m%d%H%M%S').replace(
          tzinfo=datetime.timezone.utc)


def complaint(valid_periods, now=None):
  """Says why none of some certificates is valid.

  Args:
    valid_periods: Of `periods`.
    now: A `datetime.datetime`; None stands for the present.

  Returns:
    A clause about the last of them, such as "expired on 2026-01-31 ..."; '' if
    one is valid, or if there are no certificates.
  """
  now = now or datetime.datetime.now(datetime.timezone.utc)
  clause = ''
  for first, last in valid_periods:
    if first <= now <= last:
      return ''
    clause = (f'expired on {last:%Y-%m-%d at %H:%M} UTC' if now > last else
              f'is not valid before {first:%Y-%m-%d at %H:%M} UTC')
  return clause
