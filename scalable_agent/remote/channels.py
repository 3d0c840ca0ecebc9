"""The options of gRPC for the connections of any service."""

# In the metadata of streams, the key to the number of the session.
SESSION_KEY = 'session'

_MAX_INT32 = 2**31 - 1
_KEEPALIVE_MS = 20_000
# Streams that one connection may have at a time.
_MAX_STREAMS = 32
_MAX_PENDING = 1 << 14
_HANDSHAKE_MS = 10_000
_IDLE_MS = 600_000


def channel_options(max_message_bytes):
  """Returns gRPC's options for either end.

  Args:
    max_message_bytes: Length of the largest message of the protocol; a larger
      one is refused before it is read into memory.
  """
  return [
      # gRPC keeps it in 32 bits.
      ('grpc.max_receive_message_length', min(max_message_bytes, _MAX_INT32)),
      ('grpc.max_send_message_length', -1),
      # By these either end notices a machine without power, or a cut cable.
      ('grpc.keepalive_time_ms', _KEEPALIVE_MS),
      ('grpc.keepalive_timeout_ms', _KEEPALIVE_MS),
      # It applies where the timeout above does not; the default is a minute.
      ('grpc.http2.ping_timeout_ms', _KEEPALIVE_MS),
      ('grpc.keepalive_permit_without_calls', 1),
      ('grpc.http2.max_pings_without_data', 0),
      ('grpc.http2.min_ping_interval_without_data_ms', _KEEPALIVE_MS // 2),
      ('grpc.http2.min_recv_ping_interval_without_data_ms', _KEEPALIVE_MS // 2),
      # No compression: a short message could become one of any length.
      ('grpc.compression_enabled_algorithms_bitset', 1),
      # Reconnecting is up to the client, which waits between its attempts.
      ('grpc.initial_reconnect_backoff_ms', 100),
      ('grpc.max_reconnect_backoff_ms', 1000),
      ('grpc.use_local_subchannel_pool', 1),
      # The proxy that `http_proxy` names is for the web. It does not know the
      # jobs of a cluster, and must not see their token.
      ('grpc.enable_http_proxy', 0),
      # Otherwise two servers could listen on a port, and share its callers.
      ('grpc.so_reuseport', 0),
  ]


def server_options(max_connections):
  """Returns gRPC's options for the server's end alone.

  Args:
    max_connections: How many there may be at an address; further ones are
      closed at once.
  """
  return [
      ('grpc.max_allowed_incoming_connections', max_connections),
      ('grpc.max_concurrent_streams', _MAX_STREAMS),
      # If more calls were pending, gRPC would cancel some, whoever made them.
      ('grpc.server.max_pending_requests', _MAX_PENDING),
      ('grpc.server.max_pending_requests_hard_limit', _MAX_PENDING),
      # How long a connection may take to begin HTTP/2, and be without a call.
      ('grpc.server_handshake_timeout_ms', _HANDSHAKE_MS),
      ('grpc.max_connection_idle_ms', _IDLE_MS)]
