"""Finds out when certificates are valid."""

import datetime
import re
import ssl

_PEM = re.compile(
    '-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----', re.DOTALL)
# RFC 5280: two times in a row. The year has two digits or, from 2050 on, four.
_TIME = rb'(?:\x17\x0d(\d{12})|\x18\x0f(\d{14}))Z'
_VALIDITY = re.compile(rb'\x30[\x1e\x20\x22]' + 2 * _TIME)


def periods(pem):
  """Finds the periods in which certificates are valid.

  Args:
    pem: Bytes, with any number of certificates.

  Returns:
    A list of pairs of `datetime.datetime`: the first and the last time at which
    a certificate is valid, for each certificate that says so.
  """
  found = []
  for block in _PEM.findall(pem.decode(errors='replace')):
    try:
      validity = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(block))
      if validity:
        first, first_long, last, last_long = validity.groups()
        found.append((_time(first, first_long), _time(last, last_long)))
    except ValueError:  # Whoever loads it refuses what is no certificate.
      pass
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
