"""Latency of each protocol below its maximum load: finds the maximum rate of requests of a size, and then sends at a share of it on a fixed schedule.

    FLOODMARK=path/to/floodmark python3 bench/protocol_latency.py SYSTEM PROGRAM [PROTOCOL ...] [--kib 1 10 100] [--load 0.75] [--seconds 10]
                                                                  [-- SERVER FLAGS]

SYSTEM, PROGRAM and PROTOCOL: as for bench/protocols.py, except that Graphite's protocols and statsd have no answers, and so no latency. Each protocol and size gets a fresh server and the same 20,000 series with 10 labels. A first
round creates them. Then connections send as fast as they get answers, first four, then twice as many as long as the rate grows by `--growth`. The
highest rate is the maximum. Then four times as many connections send at `--load` of this rate, each request at its time, whether or not earlier ones are
answered (open loop). Latency counts from the scheduled time. `lag` is the delay of the lab itself, and part of the latency. `one p99` is from when a request
was sent: the rest of the latency is spent in the lab, where a request waits while its connection has no answer to the one before. `%` is the accepted part of
what was scheduled. The last column says whether it was at least 99 %, with a p99 of at most `--p99-ms`.
"""

import argparse
import tempfile
import time

from floodmark_bench import lab_write
from protocol_addresses import Address, protocols
from systems import System, arguments

METRICS, SERIES, WRITERS = 100, 20_000, 4
CONNECTIONS_MAX = 64  # of each writer
LEAD_S = 300  # by which the times of two connections may differ

parser = argparse.ArgumentParser()
parser.add_argument("--kib", type=int, nargs="+", default=[1, 10, 100], help="sizes of requests")
parser.add_argument("--load", type=float, default=0.75, help="share of the maximum rate")
parser.add_argument("--seconds", type=int, default=10, help="of the load, and of each attempt to find the maximum rate")
parser.add_argument("--growth", type=float, default=0.05, help="growth of the rate for which more connections are tried")
parser.add_argument("--p99-ms", type=float, default=10.0)
args, flags = arguments(parser, "protocols*")


class Sender:
    """Sends rounds of all series, each a tenth of a second after the one before, beginning two hours ago."""

    def __init__(self, server, address):
        self.server, self.address, self.at = server, address, int(time.time()) - 7200

    def send(self, batch, *flags):
        report = lab_write(
            self.address.url(self.server.base), "--protocol", self.address.protocol, "--read-url", self.server.read_url, "--metrics", METRICS,
            "--series", SERIES // METRICS // WRITERS, "--writers", WRITERS, "--interval", "100ms", "--start", self.at, "--batch", batch, *flags,
        )
        self.at += report["samples_acknowledged"] // SERIES // 10 + LEAD_S
        return report


def row(protocol, kib):
    address = Address(args.system, protocol)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        server = System(args.system, args.program, data, *flags, *address.flags)
        try:
            sender, seconds = Sender(server, address), ["--duration", "%ds" % args.seconds]
            first = sender.send(500, "--rounds", 1)
            bytes_per_sample = first["bytes"] / first["samples_acknowledged"]
            batch = max(1, min(round(kib * 1024 / bytes_per_sample), SERIES // WRITERS))
            connections, best = 1, 0
            while connections <= CONNECTIONS_MAX:
                rate = sender.send(batch, "--connections", connections, *seconds)["samples_per_s"]
                if rate < best * (1 + args.growth):
                    break
                best, connections = rate, connections * 2
            report = sender.send(batch, "--connections", min(connections * 2, CONNECTIONS_MAX), "--rate", int(best * args.load), *seconds)
            ms = lambda q, of="latency": report[of][q] * 1e3
            sent = report["samples_acknowledged"] / args.seconds
            share = sent / (best * args.load)
            passed = ms("p99_s") <= args.p99_ms and share >= 0.99
            print("%-15s %6d %8d %12.0f %12.0f %8.1f %8.2f %8.2f %8.2f %8.2f %8.2f  %s" % (
                protocol, kib, batch, best, sent, 100 * share, ms("p50_s"), ms("p99_s"), ms("max_s"), ms("p99_s", "lag"), ms("p99_s", "service"),
                "yes" if passed else "NO"), flush=True)
        finally:
            server.stop()


print("%s at %.0f %% of the maximum\n%-15s %6s %8s %12s %12s %8s %8s %8s %8s %8s %8s  %s" % (
    args.system, 100 * args.load, "protocol", "KiB", "samples", "max/s", "samples/s", "%", "p50 ms", "p99 ms", "max ms", "lag p99", "one p99", "p99 in time"))
answered = [protocol for protocol in protocols(args.system) if not protocol.startswith(("graphite", "statsd"))]
for protocol in args.protocols or answered:
    for kib in args.kib:
        row(protocol, kib)
