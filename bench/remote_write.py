"""Builds remote-write 1.0 requests, for loads that `floodmark lab` cannot generate: any tenants, any times."""

import struct


def _varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number, content):
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def series(labels, at_ms, value=1.0):
    """A `TimeSeries` with one sample, as a field of a `WriteRequest`. `labels` is a dictionary."""
    out = b"".join(_field(1, _field(1, name.encode()) + _field(2, text.encode())) for name, text in sorted(labels.items()))
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(at_ms)
    return _field(1, out + _field(2, sample))


def snappy(body):
    """`body` in Snappy's block format, as literals only."""
    out = bytearray(_varint(len(body)))
    for start in range(0, len(body), 1 << 16):
        part = body[start : start + (1 << 16)]
        out += bytes([61 << 2]) + (len(part) - 1).to_bytes(2, "little") + part
    return bytes(out)


HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
