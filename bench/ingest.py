"""Cost of ingestion: first the samples that create all series, then the other samples.

    FLOODMARK=path/to/floodmark python3 bench/ingest.py SYSTEM PROGRAM [--series 200000] [--rounds 20] [-- SERVER FLAGS]

SYSTEM and PROGRAM: see bench/systems.py. Four connections send as fast as they get answers: 2,000 samples per request, 10 labels with
218 bytes of text. CPU seconds are the server's. Each phase ends `--settle` seconds after its last answer, so that deferred work counts
too. The script also prints the cores that the generator used.
"""

import argparse
import tempfile
import time

from floodmark_bench import lab_write
from systems import System, arguments

METRICS, INTERVAL_S, WRITERS = 2000, 15, 4

parser = argparse.ArgumentParser()
parser.add_argument("--series", type=int, default=200_000, help="number of series, a multiple of 8,000")
parser.add_argument("--rounds", type=int, default=20, help="samples of each series")
parser.add_argument("--settle", type=float, default=5, help="seconds after the last answer that still count")
args, flags = arguments(parser)


def phase(server, rounds, start):
    before = server.cpu_seconds()
    report = lab_write(
        server.write_url, "--metrics", METRICS, "--series", args.series // METRICS // WRITERS, "--writers", WRITERS,
        "--interval", "%ds" % INTERVAL_S, "--start", start, "--rounds", rounds,
    )
    until_last = server.cpu_seconds() - before
    time.sleep(args.settle)
    settled = server.cpu_seconds() - before
    samples, ms = report["samples_acknowledged"], lambda q: report["service"][q] * 1e3
    assert samples == rounds * args.series, report["said"]
    return "%.0f for each CPU second (%.0f until the last answer), %.0f/s, p50 %.1f ms, p99 %.1f ms; generator %.2f cores" % (
        samples / settled, samples / until_last, report["samples_per_s"], ms("p50_s"), ms("p99_s"),
        report["generator_cpu_s"] / report["wall_s"])


with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    server = System(args.system, args.program, data, *flags)
    try:
        time.sleep(1)
        idle = server.rss_bytes()
        begin = int(time.time()) // INTERVAL_S * INTERVAL_S - args.rounds * INTERVAL_S
        print("%s: new series: %s" % (args.system, phase(server, 1, begin)), flush=True)
        if args.rounds > 1:
            print("%s: known series: %s" % (args.system, phase(server, args.rounds - 1, begin + INTERVAL_S)), flush=True)
        rss = server.rss_bytes()
        print("%s: RSS %d MiB, %.0f bytes per series more than idle; peak %d MiB" % (
            args.system, rss >> 20, (rss - idle) / args.series, server.rss_peak_bytes() >> 20), flush=True)
    finally:
        server.stop()
