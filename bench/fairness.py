"""Effect of one tenant's flood on other tenants.

    FLOODMARK=path/to/floodmark python3 bench/fairness.py [--memory 512] [--duration 60] [--rate 10000] [--runs 1] [--json FILE] SYSTEM PROGRAM [ABUSE ...]

SYSTEM is floodmark or cortex (`bench/systems.py`), PROGRAM its binary. FLOODMARK is the binary of the lab, for both systems.

Three tenants write 10 k known series each at a fixed rate (latency from the intended start). They write first alone, then while a fourth
tenant, or many new tenants, abuse one resource after the other. As a control, "busy loops" keep the processors busy at the lowest priority and
send nothing. Each abuse gets a fresh server in a memory control group of --memory MiB.
A row has the median, over the runs, of the p99 of the slowest of the three tenants; the ratio of this p99 to the p99 alone; the number
of acknowledged samples of the three that are lost; the peak memory of the group; and whether the kernel killed the server. Cortex has
limits for each tenant: twice the samples and the series that each of the three needs.

All clients share the machine with the server. The three tenants have a higher priority than the server (needs root), and the flooding
clients the lowest, so that the server is measured and not the clients.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import remote_write
from control_group import ControlGroup
from floodmark_bench import FLOODMARK
from known_tenants import lost, of_tenant, p99_ms, write, write_known
from systems import System

parser = argparse.ArgumentParser()
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: no control group")
parser.add_argument("--duration", type=int, default=60, help="seconds of each abuse")
parser.add_argument("--rate", type=int, default=10_000, help="samples per second of each of the three tenants")
parser.add_argument("--runs", type=int, default=1)
parser.add_argument("--json", help="file to which each run is appended as a line")
parser.add_argument("system", choices=["floodmark", "cortex"])
parser.add_argument("program")
parser.add_argument("abuses", nargs="*")
args = parser.parse_args()

# Cortex' limits for each tenant
os.environ.update({"AUTH": "true", "INGESTION_RATE": "25000", "INGESTION_BURST": "100000", "SERIES_PER_USER": "50000"})


def flood(*flags):
    """An abuse: a lab that writes as tenant d with these flags, until it is stopped."""

    def start(server):
        command = ["chrt", "--idle", "0", FLOODMARK, "lab", "write", "--target", server.write_url, *of_tenant("d"), "--json", "--quiet"]
        command += ["--duration", "%ds" % (args.duration + 6), *map(str, flags)]
        return [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]

    return start


def repeat(clients, request_of):
    """An abuse: processes that send the requests of `request_of(server, client, number)` one after the other, and read all answers."""

    def client(server, which, end):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        number = 0
        while time.monotonic() < end:
            number += 1
            try:
                with urllib.request.urlopen(request_of(server, which, number), timeout=60) as answer:
                    while answer.read(1 << 20):
                        pass
            except urllib.error.HTTPError as error:
                error.read()
                time.sleep(0.05)
            except OSError:
                time.sleep(0.05)

    def start(server):
        end = time.monotonic() + args.duration + 6
        processes = [multiprocessing.Process(target=client, args=(server, which, end)) for which in range(clients)]
        [process.start() for process in processes]
        return processes

    return start


def everything_queried():
    """Queries whose answer needs all samples of the last fifty minutes."""
    end = time.time() + 600
    expression = quoted('sum by (instance) (rate({__name__=~".+"}[5m]))')
    return "/api/v1/query_range?query=%s&start=%d&end=%d&step=1" % (expression, end - 3600, end)


def asks(*questions):
    """An abuse: sixteen clients of tenant d that send these queries in turn."""

    def request_of(server, which, number):
        path = questions[(which + number) % len(questions)]
        return urllib.request.Request(server.read_url + path, headers={"X-Scope-OrgID": "d"})

    return repeat(16, request_of)


def samples(tenant_of, at_of):
    """An abuse: four clients that write requests of a thousand series; tenant and time depend on the number of the request."""

    def request_of(server, which, number):
        at_ms = int(at_of(number) * 1000)
        body = b"".join(
            remote_write.series({"__name__": "m_%d" % i, "client": str(which)}, at_ms) for i in range(1000)
        )
        headers = {**remote_write.HEADERS, "X-Scope-OrgID": tenant_of(which, number)}
        return urllib.request.Request(server.write_url, data=remote_write.snappy(body), headers=headers)

    return repeat(4, request_of)


def quoted(expression):
    return urllib.parse.quote(expression)


def busy_loops(server):
    """No abuse: loops that only take processor time that nobody wants. Shows what a busy machine alone does to the p99."""
    return [subprocess.Popen(["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]


EVERYTHING = quoted('{__name__=~".+"}')
ABUSES = {
    "nothing": lambda server: [],
    "busy loops": busy_loops,
    "new series": flood("--metrics", 1000, "--series", 125, "--writers", 4, "--interval", "1s", "--series-churn", "1s"),
    "samples": flood("--metrics", 500, "--series", 50, "--writers", 16),
    "large requests": flood("--metrics", 500, "--series", 400, "--writers", 4, "--batch", 100_000),
    "new tenants": samples(lambda which, number: "new-%d-%d" % (which, number), lambda _: time.time()),
    "late samples": samples(lambda *_: "d", lambda number: time.time() - 60 - 7 * number % 80_000),
    "queries": lambda server: asks(everything_queried())(server),
    "label lists": asks("/api/v1/series?match[]=" + EVERYTHING, "/api/v1/labels", "/api/v1/label/instance/values"),
    "exports": asks("/api/v1/export?match[]=" + EVERYTHING),
}


def refusals(server):
    """Floodmark's refusals by reason."""
    if args.system != "floodmark":
        return {}
    text = urllib.request.urlopen(server.base + "/metrics", timeout=30).read().decode()
    lines = [line for line in text.splitlines() if line.startswith("floodmark_refusals_total{") and not line.endswith(" 0")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


def measure(name):
    group = ControlGroup(args.memory)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        server = System(args.system, args.program, data, prepare=group.enter)
        write_known(server, 3, args.rate)
        # data for the queries of tenant d
        write(server, "d", "--metrics", 200, "--series", 100, "--writers", 1, "--rounds", 20)
        clients = ABUSES[name](server)
        time.sleep(1)
        reports = write_known(server, args.duration, args.rate)
        alive = server.process.poll() is None and group.kills() == 0
        for client in clients:
            client.terminate()
            client.wait() if isinstance(client, subprocess.Popen) else client.join()
        run = {
            "system": args.system,
            "abuse": name,
            "p99_ms": p99_ms(reports),
            "lost": lost(reports),
            "peak_mib": group.peak_mib() or server.rss_peak_bytes() >> 20,
            "alive": alive,
            "refused": refusals(server) if alive else {},
        }
        server.kill()
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(run) + "\n")
    return run


def median(values):
    """The median. `None` means that the server was killed, and counts as larger than any number."""
    values = sorted(values, key=lambda value: float("inf") if value is None else value)
    return values[len(values) // 2]


alone_ms = None
print("%-15s %10s %8s %6s %9s %7s  %s" % ("abuse", "p99 ms", "ratio", "lost", "peak MiB", "killed", "refused"))
for name in args.abuses or list(ABUSES):
    runs = [measure(name) for _ in range(args.runs)]
    worst_ms = median([run["p99_ms"] for run in runs])
    alone_ms = alone_ms or worst_ms
    missing = "?" if any(run["lost"] is None for run in runs) else sum(run["lost"] for run in runs)
    shown = ", ".join("%s %d" % pair for pair in sorted(runs[-1]["refused"].items()))
    print("%-15s %10s %8s %6s %9d %7s  %s" % (
        name, "-" if worst_ms is None else "%.2f" % worst_ms, "-" if worst_ms is None else "%.2f" % (worst_ms / alone_ms), missing,
        max(run["peak_mib"] for run in runs), sum(not run["alive"] for run in runs) or "no", shown), flush=True)
