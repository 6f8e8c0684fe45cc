"""Warm queries over recent samples: one query at a time, then a mix of all queries by many clients.

    FLOODMARK=path/to/floodmark python3 bench/query.py SYSTEM PROGRAM [--rounds 500] [--repeat 30] [--clients 25] [-- SERVER FLAGS]

SYSTEM and PROGRAM: see bench/systems.py. Writes 20,000 series (2,000 metrics of 10 targets) to a fresh directory, each with `--rounds`
samples, 15 s apart, the last one now. Then sends each query of bench/queries.txt over the time range of the data, without the first five
minutes, with a step of 60 s. Prints p50, p99 and the server's CPU milliseconds for each query, and queries per second, p50 and p99 for the mix.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time

from floodmark_bench import lab_write
from systems import System, arguments, ask, queries

INTERVAL_S, SERIES = 15, 20_000
QUERIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "queries.txt")

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=500, help="samples of each series")
parser.add_argument("--repeat", type=int, default=30, help="number of times that each query is sent")
parser.add_argument("--clients", type=int, default=25)
parser.add_argument("--seconds", type=float, default=15, help="seconds for which the clients send queries")
args, flags = arguments(parser)


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def client(number):
    """Sends queries, one after the other, until the time is over; returns the latencies in milliseconds."""
    connection, times, until = server.connect(), [], time.monotonic() + args.seconds
    while time.monotonic() < until:
        times.append(ask(connection, questions[(number + len(times)) % len(questions)][1]))
    return times


with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    server = System(args.system, args.program, data, *flags)
    try:
        end = int(time.time()) // 60 * 60
        begin = end - args.rounds * INTERVAL_S
        before = server.cpu_seconds()
        written = lab_write(
            server.write_url, "--metrics", 2000, "--series", 10, "--writers", 1, "--connections", 4,
            "--interval", "%ds" % INTERVAL_S, "--start", begin, "--rounds", args.rounds,
        )
        assert written["samples_acknowledged"] == args.rounds * SERIES, written["said"]
        cpu_s = server.cpu_seconds() - before
        print("%s: %.0f samples for each CPU second, %.0f/s, p50 %.1f ms, p99 %.1f ms, RSS %d MiB" % (
            args.system, written["samples_acknowledged"] / cpu_s, written["samples_per_s"],
            written["service"]["p50_s"] * 1e3, written["service"]["p99_s"] * 1e3, server.rss_bytes() >> 20), flush=True)
        questions = [(name, server.question(kind, text, min(begin + 300, end), end, 60)) for name, kind, text in queries(QUERIES)]
        connection = server.connect()
        for name, question in questions:
            before = server.cpu_seconds()
            times = [ask(connection, question) for _ in range(args.repeat)]
            cpu_ms = (server.cpu_seconds() - before) * 1000 / args.repeat
            print("%-16s%-14sp50 %8.2f  p99 %8.2f  cpu %6.1f ms" % (
                args.system, name, statistics.median(times), percentile(times, 0.99), cpu_ms), flush=True)
        with multiprocessing.get_context("fork").Pool(args.clients) as pool:
            times = sum(pool.map(client, range(args.clients), chunksize=1), [])
        print("%-16s%d clients: %.0f queries/s, p50 %.1f ms, p99 %.1f ms" % (
            args.system, args.clients, len(times) / args.seconds, statistics.median(times), percentile(times, 0.99)))
    finally:
        server.stop()
