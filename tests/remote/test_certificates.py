"""When certificates are valid, by what they say themselves."""

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies
import pytest

from scalable_agent.remote import certificates

_UTC = datetime.timezone.utc
_KEY = ec.generate_private_key(ec.SECP256R1())


def _time(year, month=1, day=1, hour=0):
  return datetime.datetime(year, month, day, hour, tzinfo=_UTC)


def _certificate(first, last, name='learner'):
  """A certificate of its own signing, PEM."""
  name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
  return (x509.CertificateBuilder().subject_name(name).issuer_name(name)
          .public_key(_KEY.public_key())
          .serial_number(x509.random_serial_number())
          .not_valid_before(first).not_valid_after(last)
          .sign(_KEY, hashes.SHA256())
          .public_bytes(serialization.Encoding.PEM))


_TIMES = strategies.datetimes(
    datetime.datetime(1950, 1, 1), datetime.datetime(9999, 12, 31),
    timezones=strategies.just(_UTC)).map(lambda t: t.replace(microsecond=0))


@settings(max_examples=50)
@given(_TIMES, _TIMES, strategies.text('aZ09 .-', min_size=1, max_size=60))
def test_periods_are_read_to_the_second(a, b, name):
  period = min(a, b), max(a, b)
  assert certificates.periods(_certificate(*period, name)) == [period]


def test_a_chain_has_a_period_for_each():
  years = [(2001, 2002), (2049, 2050), (2051, 2052)]
  pem = b'# Mine.\n' + b'\nand\n'.join(
      _certificate(*map(_time, pair)) for pair in years)
  assert certificates.periods(pem) == [
      tuple(map(_time, pair)) for pair in years]


@given(strategies.binary())
def test_what_is_no_certificate_has_no_period(content):
  assert certificates.periods(content) == []
  assert certificates.periods(
      b'-----BEGIN CERTIFICATE-----\n' + content +
      b'\n-----END CERTIFICATE-----') == []


_OLD = _time(2001), _time(2002, 3, 4, 5)
_COMING = _time(2071, 6, 7, 8), _time(2072)
_PRESENT = _time(2010), _time(2060)


@pytest.mark.parametrize('periods, expected', [
    ([], ''), ([_PRESENT], ''), ([_OLD, _PRESENT], ''), ([_PRESENT, _OLD], ''),
    ([_OLD], 'expired on 2002-03-04 at 05:00 UTC'),
    ([_COMING], 'is not valid before 2071-06-07 at 08:00 UTC')])
def test_complaint(periods, expected):
  assert certificates.complaint(periods, _time(2030)) == expected


def test_a_certificate_is_valid_from_the_first_second_to_the_last():
  first, last = _PRESENT
  second = datetime.timedelta(seconds=1)
  assert not certificates.complaint([_PRESENT], first)
  assert not certificates.complaint([_PRESENT], last)
  assert certificates.complaint([_PRESENT], first - second)
  assert certificates.complaint([_PRESENT], last + second)


def test_the_present_is_today():
  today = datetime.datetime.now(_UTC)
  hour = datetime.timedelta(hours=1)
  assert not certificates.complaint([(today - hour, today + hour)])
  assert certificates.complaint([(today - 2 * hour, today - hour)])
