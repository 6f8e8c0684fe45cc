"""Builds remote-write 1.0 requests, for loads that `floodmark lab` cannot generate: any tenants, any times."""

import struct


def varint(number):
    """`number` as a protobuf varint."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def labels(of):
    """The labels of a `TimeSeries`, from a dictionary."""
    return b"".join(_field(1, _field(1, name.encode()) + _field(2, text.encode())) for name, text in sorted(of.items()))


def time_series(encoded_labels, samples):
    """A `TimeSeries` as a field of a `WriteRequest`. A sample is milliseconds and a value."""
    encoded = (b"\x09" + struct.pack("<d", value) + b"\x10" + varint(at_ms) for at_ms, value in samples)
    return _field(1, encoded_labels + b"".join(_field(2, sample) for sample in encoded))


def series(of, at_ms, value=1.0):
    """A `TimeSeries` with one sample and the labels of a dictionary."""
    return time_series(labels(of), [(at_ms, value)])


def snappy(body):
    """`body` in Snappy's block format, as literals only."""
    out = bytearray(varint(len(body)))
    for start in range(0, len(body), 1 << 16):
        part = body[start : start + (1 << 16)]
        out += bytes([61 << 2]) + (len(part) - 1).to_bytes(2, "little") + part
    return bytes(out)


HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
