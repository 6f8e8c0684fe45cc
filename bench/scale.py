"""Growth of cost with the number of series: 10 k to 5 M, with 10 labels each.

    FLOODMARK=path/to/floodmark python3 bench/scale.py [--most 5000000] [--rounds 10]

For each size, on a fresh server, creates all series (one sample each), then writes `rounds` samples of each. Prints CPU
per sample, memory per series and p99. Then prints the growth of each figure from the smallest to the largest size as an exponent
(0: no growth; 1: in proportion to the size).
"""

import argparse
import math
import time

from floodmark_bench import Server

args = argparse.ArgumentParser()
args.add_argument("--most", type=int, default=5_000_000)
args.add_argument("--rounds", type=int, default=10)
args = args.parse_args()

print("%9s %14s %14s %12s %14s %10s" % ("series", "new us CPU", "known ns CPU", "known/s", "bytes/series", "p99 ms"))
rows = []
for series in [n for n in (10_000, 100_000, 1_000_000, 5_000_000) if n <= args.most]:
    server = Server()
    idle = server.rss_bytes()
    shape = ["--metrics", 1000, "--series", series // 4000 or 1, "--writers", 4]
    if series == 10_000:
        shape = ["--metrics", 250, "--series", 10, "--writers", 4]
    new, new_cpu = server.lab(*shape, "--rounds", 1, "--start", "-2h")
    rounds = max(args.rounds, 2_000_000 // series)
    known, known_cpu = server.lab(*shape, "--rounds", rounds)
    time.sleep(5)
    rows.append((
        series,
        new_cpu / new["samples_acknowledged"] * 1e6,
        known_cpu / known["samples_acknowledged"] * 1e9,
        known["samples_per_s"],
        (server.rss_bytes() - idle) / series,
        known["service"]["p99_s"] * 1e3,
    ))
    print("%9d %14.2f %14.0f %12.0f %14.0f %10.2f" % rows[-1], flush=True)
    server.stop()

if len(rows) > 1:
    first, last = rows[0], rows[-1]
    grows = lambda i: math.log(last[i] / first[i]) / math.log(last[0] / first[0])
    print("exponent: CPU per new series %.3f, CPU per known sample %.3f, memory per series %.3f, p99 %.3f"
          % (grows(1), grows(2), grows(4), grows(5)))
