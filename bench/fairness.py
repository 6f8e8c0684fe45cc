"""What one tenant's flood does to the others.

    FLOODMARK=path/to/floodmark python3 bench/fairness.py [--memory 512] [--duration 20] [--runs 1] [ABUSE ...]

Three tenants write 10 k known series each at a fixed rate (latency from the intended start), first alone, then while a fourth
tenant, or a crowd of new ones, abuses one resource after the other: each abuse has a row with the median p99 of the worst of
the three over the runs, the ratio to their p99 alone, what was refused and what was lost. The server runs in a control
group of --memory MiB if one can be made, and without one otherwise: the column of its memory tells.
"""

import argparse
import concurrent.futures
import os
import statistics
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from floodmark_bench import FLOODMARK, Server, lab_write

args = argparse.ArgumentParser()
args.add_argument("--memory", type=int, default=512, help="MiB of the control group")
args.add_argument("--duration", type=int, default=20, help="seconds of each abuse")
args.add_argument("--runs", type=int, default=1)
args.add_argument("abuses", nargs="*")
args = args.parse_args()

KNOWN = ["--metrics", 100, "--series", 100, "--writers", 1, "--rate", 10_000, "--labels", 10]
TENANTS = ["a", "b", "c"]


def header(tenant):
    return ["--header", "X-Scope-OrgID: " + tenant]


def in_cgroup(limit_mib):
    """Moves the calling process into a control group of that size, if one can be made."""
    group = "/sys/fs/cgroup/floodmark-fairness"
    try:
        os.makedirs(group, exist_ok=True)
        for name, value in [("memory.max", limit_mib << 20), ("memory.swap.max", 0)]:
            with open(os.path.join(group, name), "w") as f:
                f.write(str(value))
        with open(os.path.join(group, "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))
    except OSError:
        pass


def write_known(url, tenant, seconds, out):
    seed = ["--seed", TENANTS.index(tenant) + 1]
    out[tenant] = lab_write(url + "/api/v1/write", *KNOWN, *seed, *header(tenant), "--duration", "%ds" % seconds, "--verify")


def all_known(url, seconds):
    out = {}
    threads = [threading.Thread(target=write_known, args=(url, tenant, seconds, out)) for tenant in TENANTS]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return out


def flood(url, *flags):
    """A sender of tenant d with its own flags, with the least share of the processor: it is the server that is measured."""
    command = ["nice", "-n", "19", FLOODMARK, "lab", "write", "--target", url + "/api/v1/write", "--json", "--quiet"]
    command += ["--duration", "%ds" % (args.duration + 6), *map(str, flags)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def asks(url, paths, clients=16):
    """Clients of tenant d that ask these paths by turns until the time is up, and read what they get."""
    end = time.monotonic() + args.duration + 4

    def client(number):
        while time.monotonic() < end:
            path = paths[number % len(paths)]
            number += 1
            request = urllib.request.Request(url + path, headers={"X-Scope-OrgID": "d"})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    while answer.read(1 << 20):
                        pass
            except urllib.error.HTTPError as error:
                error.read()
                time.sleep(0.05)
            except OSError:
                time.sleep(0.05)

    pool = concurrent.futures.ThreadPoolExecutor(clients)
    for number in range(clients):
        pool.submit(client, number)
    return pool


def quoted(expression):
    return urllib.parse.quote(expression)


def lines(url, tenant_of, at_of):
    """Four clients that write lines of Graphite until the time is up; `tenant_of` and `at_of` get the number of the request."""
    end = time.monotonic() + args.duration + 4

    def client(number):
        sent = 0
        while time.monotonic() < end:
            sent += 1
            at = at_of(sent)
            body = "".join("m.%d.%d 1 %d\n" % (number, i, at) for i in range(1000)).encode()
            headers = {"X-Scope-OrgID": tenant_of(number, sent)}
            request = urllib.request.Request(url + "/api/v1/graphite", data=body, headers=headers)
            try:
                urllib.request.urlopen(request, timeout=60).read()
            except urllib.error.HTTPError as error:
                error.read()
                time.sleep(0.05)
            except OSError:
                time.sleep(0.05)

    pool = concurrent.futures.ThreadPoolExecutor(4)
    for number in range(4):
        pool.submit(client, number)
    return pool


now = time.time()
ABUSES = {
    "nothing": lambda url: None,
    "new series": lambda url: flood(url, *header("d"), "--metrics", 1000, "--series", 125, "--writers", 4,
                                    "--interval", "1s", "--series-churn", "1s"),
    "samples": lambda url: flood(url, *header("d"), "--metrics", 500, "--series", 50, "--writers", 16),
    "large requests": lambda url: flood(url, *header("d"), "--metrics", 500, "--series", 400, "--writers", 4,
                                        "--batch", 100_000),
    "new tenants": lambda url: lines(url, lambda number, sent: "new-%d-%d" % (number, sent), lambda _: time.time()),
    "late samples": lambda url: lines(url, lambda number, _: "d", lambda sent: time.time() - 60 - 7 * sent % 80_000),
    "queries": lambda url: asks(url, ["/api/v1/query_range?query=%s&start=%d&end=%d&step=1" % (
        quoted('sum by (instance) (rate({__name__=~".+"}[5m]))'), now - 3000, now + 600)]),
    "label lists": lambda url: asks(url, ["/api/v1/series?match[]=" + quoted('{__name__=~".+"}'), "/api/v1/labels",
                                          "/api/v1/label/instance/values"]),
    "exports": lambda url: asks(url, ["/api/v1/export?match[]=" + quoted('{__name__=~".+"}')]),
}


def end(abuse):
    if isinstance(abuse, subprocess.Popen):
        abuse.wait()
    elif abuse:
        abuse.shutdown()


def measure(name):
    server = Server(prepare=lambda: in_cgroup(args.memory))
    all_known(server.url, 3)
    # tenant d has something to read
    lab_write(server.url + "/api/v1/write", *header("d"), "--metrics", 200, "--series", 100, "--writers", 1, "--rounds", 20)
    abuse = ABUSES[name](server.url)
    time.sleep(1)
    known = all_known(server.url, args.duration)
    end(abuse)
    p99 = max(report["latency"]["p99_s"] for report in known.values()) * 1e3
    text = urllib.request.urlopen(server.url + "/metrics").read().decode()
    refused = {}
    for line in text.splitlines():
        if line.startswith("floodmark_refusals_total{") and not line.endswith(" 0"):
            refused[line.split('"')[1]] = float(line.split()[-1])
    # None: nothing is known of what was read back
    verdicts = [report["verify"] for report in known.values()]
    lost = sum(verdict["lost"] for verdict in verdicts) if all(verdicts) else None
    rss = server.rss_peak_bytes() >> 20
    alive = server.process.poll() is None
    server.stop()
    return p99, refused, lost, rss, alive


names = args.abuses or list(ABUSES)
alone = None
print("%-15s %10s %8s %6s %9s %9s  %s" % ("abuse", "p99 ms", "ratio", "lost", "rss MiB", "alive", "refused"))
for name in names:
    runs = [measure(name) for _ in range(args.runs)]
    p99 = statistics.median(run[0] for run in runs)
    alone = alone or p99
    refused, rss = runs[-1][1], max(run[3] for run in runs)
    lost = "?" if any(run[2] is None for run in runs) else sum(run[2] for run in runs)
    alive = all(run[4] for run in runs)
    shown = ", ".join("%s %d" % pair for pair in sorted(refused.items()))
    print("%-15s %10.2f %8.2f %6s %9d %9s  %s" % (name, p99, p99 / alone, lost, rss, "yes" if alive else "NO", shown), flush=True)
