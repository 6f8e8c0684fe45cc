"""Two Prometheus servers as a highly available pair, one of which is killed: gaps, duplicates, and the effect on other tenants.

    FLOODMARK=path/to/floodmark python3 bench/pairs.py [--memory 512] [--series 20000] [--interval 5] [--seconds 60] PROMETHEUS

Both scrape the same target, and write to one tenant of a Floodmark with `--ha-dedup true`, in a memory control group of --memory MiB.
The elected one is killed after --seconds; the other one goes on for as long after the failover. Meanwhile, three other tenants write
10,000 samples/s each to 10 k known series.

Prints the samples of the pair that were stored and that were taken for duplicates; the longest time between two stored scrapes, which is
the failover; other scrapes that are missing, and scrapes of which not every series is stored; scrapes that were stored of both; and the
p99 of the three tenants.
"""

import argparse
import collections
import http.server
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

import floodmark_bench
from control_group import ControlGroup
from floodmark_bench import FLOODMARK, free_port
from known_tenants import lost, p99_ms, write_known
from systems import System

PER_METRIC = 20
CONFIG = """
global: {{ scrape_interval: {interval}s, scrape_timeout: {interval}s, external_labels: {{ cluster: pair, __replica__: {replica} }} }}
scrape_configs: [ {{ job_name: target, static_configs: [ {{ targets: ['127.0.0.1:{target}'] }} ] }} ]
remote_write: [ {{ url: '{url}', headers: {{ X-Scope-OrgID: pair }} }} ]
"""

parser = argparse.ArgumentParser()
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: none")
parser.add_argument("--series", type=int, default=20_000)
parser.add_argument("--interval", type=int, default=5, help="seconds between two scrapes")
parser.add_argument("--seconds", type=int, default=60)
parser.add_argument("prometheus")
args = parser.parse_args()
METRICS = args.series // PER_METRIC


def serve_target(port):
    """A target whose values are all the number of the scrape."""
    lines = ('pair_%d{instance_number="%d"} @\n' % (n % METRICS, n // METRICS) for n in range(args.series))
    text, scrapes = "".join(sorted(lines)), 0

    class Target(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            nonlocal scrapes
            scrapes += 1
            body = text.replace("@", str(scrapes)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    http.server.HTTPServer(("127.0.0.1", port), Target).serve_forever()


def replica(name, target, data, url):
    directory = os.path.join(data, name)
    os.makedirs(directory)
    config = os.path.join(directory, "prometheus.yml")
    with open(config, "w") as file:
        file.write(CONFIG.format(interval=args.interval, replica=name, target=target, url=url))
    listen = "--web.listen-address=127.0.0.1:%d" % free_port()
    command = [args.prometheus, "--config.file=" + config, "--storage.tsdb.path=" + directory, listen]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ask(server, path, **params):
    question = server.base + path + "?" + urllib.parse.urlencode(params)
    return json.load(urllib.request.urlopen(urllib.request.Request(question, headers={"X-Scope-OrgID": "pair"})))["data"]


def elected(server):
    """The elected replica and the number of failovers; `None` before the first election."""
    clusters = ask(server, "/api/v1/ha_tracker")["clusters"]
    return (clusters[0]["replica"], clusters[0]["failovers"]) if clusters else None


def stored_scrapes(server):
    """By time and number of a stored scrape, in order of time: how many series have it."""
    series = collections.Counter()
    for metric in range(METRICS):
        for one in ask(server, "/api/v1/query", query="pair_%d[1h]" % metric)["result"]:
            series.update((float(at), int(value)) for at, value in one["values"])
    return sorted(series.items())


def metric(server, name):
    return floodmark_bench.metric(server.base, name)


def wait_for(condition):
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("waited in vain")
        time.sleep(0.1)


group = ControlGroup(args.memory)
with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    server = System("floodmark", FLOODMARK, os.path.join(data, "server"), "--ha-dedup", "true", prepare=group.enter)
    port = free_port()
    target = multiprocessing.Process(target=serve_target, args=(port,), daemon=True)
    target.start()
    write_known(server, 3)
    pair = {name: replica(name, port, data, server.write_url) for name in ["a", "b"]}
    wait_for(lambda: metric(server, "floodmark_ha_deduplicated_samples_total") > 0)
    reports = write_known(server, args.seconds)
    first, _ = elected(server)
    pair[first].kill()
    killed_at = time.time()
    wait_for(lambda: elected(server)[0] != first)
    failover_s = time.time() - killed_at
    time.sleep(args.seconds)
    for process in pair.values():
        process.terminate()
        process.wait()
    scrapes = stored_scrapes(server)
    duplicates = metric(server, "floodmark_ha_deduplicated_samples_total")
    _, failovers = elected(server)
    server.kill()

times = [at for (at, _), _ in scrapes]
steps = sorted(later - earlier for earlier, later in zip(times, times[1:]))
numbers = collections.Counter(number for (_, number), _ in scrapes)
# a scrape is stored in part if the pair was started, stopped, killed or elected in its middle
partial = [count for _, count in scrapes if count != args.series]
print("samples stored %d, taken for duplicates %d" % (sum(count for _, count in scrapes), duplicates))
print("failovers %d, the first %.1f s after the kill; longest time between two stored scrapes %.1f s" % (failovers, failover_s, steps[-1]))
print("other scrapes missing: %d" % sum(round(step / args.interval) - 1 for step in steps[:-1]))
print("scrapes of which not all series are stored: %d" % len(partial))
print("stored more than once: %d; of two replicas at once: %d" % (
    sum(count - 1 for count in numbers.values()), sum(step < 0.9 * args.interval for step in steps)))
print("three other tenants: p99 %.1f ms, lost %s, peak memory %d MiB, killed %d" % (
    p99_ms(reports), lost(reports), group.peak_mib(), group.kills()))
