"""Cost of each protocol: the server's CPU time, bytes and latency for a sample of a known series, at several sizes of requests.

    FLOODMARK=path/to/floodmark python3 bench/protocols.py SYSTEM PROGRAM [PROTOCOL ...] [--kib 1 10 100 1024] [--seconds 10] [-- SERVER FLAGS]

SYSTEM and PROGRAM: see bench/systems.py. PROTOCOL is one of those in protocol_addresses.py, by default all that the system
accepts. Each protocol and size gets a
fresh server and the same 20,000 series with 10 labels. A first round creates them. Then four connections send as fast as they get answers, for the
given time. CPU seconds are the server's, until `--settle` seconds after the last answer. A size is that of the body as it is sent: remote write is
compressed with snappy, the other protocols are not compressed; to that of a table belongs the map of its columns in the URL. Graphite's protocols have no
answers: their latency is the time until the socket has taken a request. Nothing slows a sender of statsd's datagrams, so it sends at `--statsd-rate`,
and the samples are the lines that the server has counted.
"""

import argparse
import tempfile
import time

from floodmark_bench import lab_write, metric
from protocol_addresses import Address, protocols
from systems import System, arguments

METRICS, SERIES, WRITERS, INTERVAL_S = 100, 20_000, 4, 1

parser = argparse.ArgumentParser()
parser.add_argument("--kib", type=int, nargs="+", default=[1, 10, 100, 1024], help="sizes of requests")
parser.add_argument("--seconds", type=int, default=10)
parser.add_argument("--statsd-rate", default="100k", help="lines a second of statsd")
parser.add_argument("--settle", type=float, default=3, help="seconds after the last answer that still count")
args, flags = arguments(parser, "protocols*")


def send(server, address, batch, start, *flags):
    return lab_write(
        address.url(server.base), "--protocol", address.protocol, "--read-url", server.read_url, "--metrics", METRICS, "--series",
        SERIES // METRICS // WRITERS, "--writers", WRITERS, "--interval", "%ds" % INTERVAL_S, "--start", start, "--batch", batch, *flags,
        *(["--rate", args.statsd_rate] if address.is_flushed() else []),
    )


def row(protocol, kib):
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        address = Address(args.system, protocol)
        server = System(args.system, args.program, data, *flags, *address.flags)
        try:
            begin = int(time.time()) - 3600
            first = send(server, address, 500, begin, "--rounds", 1)
            bytes_per_sample = first["bytes"] / first["samples_acknowledged"]
            batch = max(1, min(round(kib * 1024 / bytes_per_sample), SERIES // WRITERS))
            time.sleep(args.settle)
            lines = lambda: metric(server.base, "floodmark_statsd_lines_total") if address.is_flushed() else 0
            before, lines_before = server.cpu_seconds(), lines()
            report = send(server, address, batch, begin + INTERVAL_S, "--duration", "%ds" % args.seconds)
            time.sleep(args.settle)
            used_s = server.cpu_seconds() - before
            samples = lines() - lines_before if address.is_flushed() else report["samples_acknowledged"]
            ms = lambda q: report["service"][q] * 1e3
            print("%-15s %6d %8d %12.0f %12.0f %10.1f %8.2f %8.2f %8d" % (
                protocol, kib, batch, samples / used_s, report["samples_per_s"], report["bytes"] / samples, ms("p50_s"), ms("p99_s"),
                server.rss_peak_bytes() >> 20), flush=True)
        finally:
            server.stop()


print("%s\n%-15s %6s %8s %12s %12s %10s %8s %8s %8s" % (
    args.system, "protocol", "KiB", "samples", "samples/CPUs", "samples/s", "bytes", "p50 ms", "p99 ms", "RSS MiB"))
for protocol in args.protocols or protocols(args.system):
    for kib in args.kib:
        row(protocol, kib)
