"""Makes shared libraries that hold nothing, without a compiler."""

import struct
import sys

_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474e551
_NEEDED, _HASH, _STRINGS, _SYMBOLS = 1, 4, 5, 6
_STRINGS_SIZE, _SYMBOL_SIZE, _SONAME = 10, 11, 14
_READ_WRITE = 6
_HEADER_BYTES, _SEGMENT_BYTES, _NUM_SEGMENTS = 64, 56, 3
_NULL_SYMBOL = bytes(24)


def write(path, soname, needed=None):
  """Writes a library for this machine (64-bit ELF).

  Args:
    path: The file.
    soname: The name by which others find it once it is loaded.
    needed: None, or the name of a library that it cannot be loaded without.
  """
  strings = b'\0' + soname.encode() + b'\0' + (needed or '').encode() + b'\0'
  strings += bytes(-len(strings) % 8)
  hashes = struct.pack('<4I', 1, 1, 0, 0)
  start = _HEADER_BYTES + _NUM_SEGMENTS * _SEGMENT_BYTES
  symbols_at = start + len(strings)
  hashes_at = symbols_at + len(_NULL_SYMBOL)
  dynamic_at = hashes_at + len(hashes)
  entries = [(_HASH, hashes_at), (_STRINGS, start), (_SYMBOLS, symbols_at),
             (_STRINGS_SIZE, len(strings)), (_SYMBOL_SIZE, len(_NULL_SYMBOL)),
             (_SONAME, 1)]
  if needed:
    entries.append((_NEEDED, 2 + len(soname)))
  dynamic = b''.join(struct.pack('<QQ', *entry) for entry in entries + [(0, 0)])
  end = dynamic_at + len(dynamic)

  def segment(kind, first, size):
    return struct.pack('<IIQQQQQQ', kind, _READ_WRITE, first, first, first,
                       size, size, 8 if kind == _DYNAMIC else 4096)

  with open(sys.executable, 'rb') as f:
    f.seek(18)
    machine = f.read(2)
  header = (b'\x7fELF\x02\x01\x01' + bytes(9) + struct.pack('<H', 3) + machine +
            struct.pack('<IQQQIHHHHHH', 1, 0, _HEADER_BYTES, 0, 0,
                        _HEADER_BYTES, _SEGMENT_BYTES, _NUM_SEGMENTS, 0, 0, 0))
  with open(path, 'wb') as f:
    f.write(header + segment(_LOAD, 0, end) +
            segment(_DYNAMIC, dynamic_at, len(dynamic)) +
            segment(_STACK, 0, 0) +
            strings + _NULL_SYMBOL + hashes + dynamic)
