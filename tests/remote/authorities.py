"""Certificates for tests, and those who sign them."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from scalable_agent.remote import security as security_lib

# Hours from now, from when to when a certificate is valid.
PRESENT, PAST, FUTURE = (-1, 1), (-2, -1), (1, 2)


class Authority:
  """Signs certificates."""

  def __init__(self, name, hours=PRESENT):
    self._key = ec.generate_private_key(ec.SECP256R1())
    self._name = x509.Name([x509.NameAttribute(
        x509.NameOID.COMMON_NAME, name)])
    self._certificate = self._sign(self._name, self._key, True, hours)
    self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

  def _sign(self, name, key, is_authority, hours):
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName('localhost'),
             x509.IPAddress(ipaddress.ip_address('127.0.0.1'))]
    return (x509.CertificateBuilder()
            .subject_name(name).issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(hours=hours[0]))
            .not_valid_after(now + datetime.timedelta(hours=hours[1]))
            .add_extension(x509.SubjectAlternativeName(names), False)
            .add_extension(x509.BasicConstraints(is_authority, None), True)
            .sign(self._key, hashes.SHA256()))

  def issue(self, name, hours=PRESENT, key=None):
    """Returns key and certificate, PEM."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    certificate = self._sign(x509.Name([x509.NameAttribute(
        x509.NameOID.COMMON_NAME, name)]), key, False, hours)
    return (key.private_bytes(serialization.Encoding.PEM,
                              serialization.PrivateFormat.PKCS8,
                              serialization.NoEncryption()),
            certificate.public_bytes(serialization.Encoding.PEM))


def security_of(authority, name, ca, token=b'', hours=PRESENT):
  """Returns a `Security`; one without an authority has no certificate."""
  key, certificate = authority.issue(name, hours) if authority else (b'', b'')
  return security_lib.Security(token, key, certificate, ca)
