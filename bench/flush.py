"""Effect of flushes and compaction on write latency and memory.

    FLOODMARK=path/to/floodmark python3 bench/flush.py [--series 1000000] [--rate 100000] [--memory 2GiB] [--duration 60] [--every 10s]

All series are created first. Then the same load (a fixed rate, latency from the intended start) runs twice: without flushes and with
flushes. Flushes begin at least `--every` apart, and a compaction follows each `--compact-every`th flush. Prints both p99s and their
ratio, the statuses of answers, how long the server's threads ran and waited for a processor, and the server's peak memory.
"""

import argparse
import json
import threading
import time

from floodmark_bench import Server

args = argparse.ArgumentParser()
args.add_argument("--series", type=int, default=1_000_000)
args.add_argument("--rate", type=int, default=100_000)
args.add_argument("--memory", default="2GiB")
args.add_argument("--duration", type=int, default=60)
args.add_argument("--compact-every", type=int, default=4, metavar="FLUSHES")
args.add_argument("--every", default="2s", metavar="SECONDS", type=lambda text: float(text.removesuffix("s")),
                  help="minimum time between the beginnings of two flushes")
args = args.parse_args()

server = Server("--memory", args.memory, "--seal-after", "1h")
LOAD = ["--metrics", 1000, "--series", args.series // 4000, "--writers", 4, "--interval", "10s"]
SYNCS = "floodmark_journal_sync_duration_seconds"
PACE = ["--rate", args.rate, "--duration", "%ds" % args.duration]


done = threading.Event()
flushes, compactions, samples = 0, 0, 0


def flush_on():
    global flushes, compactions, samples
    while not done.is_set():
        began = time.monotonic()
        samples += server.post("flush")["samples"]
        flushes += 1
        if flushes % args.compact_every == 0:
            compactions += server.post("compact")["merges"]
        # a flush right after another flush would find nothing to write
        done.wait(max(0.0, args.every - (time.monotonic() - began)))


made, _ = server.lab(*LOAD, "--rounds", 1)
print("created %d series, %d MiB" % (made["series_distinct"], server.rss_bytes() >> 20), flush=True)


def load():
    before, syncs_before = server.threads(), server.buckets(SYNCS)
    report, cpu = server.lab(*LOAD, *PACE)
    threads = {name: [now - then for now, then in zip(times, before.get(name, (0, 0)))] for name, times in server.threads().items()}
    syncs = {bound: count - syncs_before[bound] for bound, count in server.buckets(SYNCS).items()}
    return report, cpu, threads, syncs


quiet = load()
flusher = threading.Thread(target=flush_on)
flusher.start()
busy = load()
done.set()
flusher.join()
ms = lambda report, q: report["latency"][q] * 1e3
for what, (report, cpu, threads, syncs) in [("no flush", quiet), ("flushes", busy)]:
    print("%-9s p50 %7.2f ms  p99 %7.2f ms  %.0f samples/s  server CPU %.1f s  answers %s" % (
        what, ms(report, "p50_s"), ms(report, "p99_s"), report["samples_per_s"], cpu, json.dumps(report["by_reason"])))
    print("    ran / waited for a processor, s: " + ", ".join(
        "%s %.2f / %.2f" % (name, *times) for name, times in sorted(threads.items()) if times[0] > 0.01))
    print("    syncs of the journal, %: " + ", ".join(
        "%.2f over %g ms" % (100 * (1 - syncs[bound] / max(1, syncs[float("inf")])), bound * 1e3) for bound in [0.001, 0.0025, 0.005, 0.01]))
p99s = [ms(report, "p99_s") for report, *_ in [quiet, busy]]
print("ratio of p99s %.2f; %d flushes of %d samples, %d merges" % (p99s[1] / p99s[0], flushes, samples, compactions))
print("peak memory: %d MiB of %s" % (server.rss_peak_bytes() >> 20, args.memory))
server.stop()
