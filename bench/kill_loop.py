"""kill -9 at random times under load, with sealing every two seconds. Checks that every acknowledged sample is stored once.

    FLOODMARK=path/to/floodmark python3 bench/kill_loop.py [--kills 50] [--seed N] [--readers deltalake,duckdb,spark] [--commit-interval 2s]
                                        [--protocols 1.0,2.0,otlp,otlp-grpc,otlp-json,influx,json-lines,text,csv,graphite,statsd]

One lab for each protocol, each for a tenant of its own, writes at a fixed rate and retries refused requests, so that in the end all samples are
acknowledged. `--protocols all` is all of them. Then every sample in the lab's ledger is read back by PromQL and compared bit by bit, before and after a
last flush and after compaction. Each of the readers (bench/readers.py) counts the samples in the tables and computes a digest. Needs a Python with the
packages of the readers. Exits with 1 if any result differs.

Graphite's protocols have no answers. Owed is what was sent --commit-interval (two seconds) before the server was killed: points of known series are
promised after a tenth of a second, but after a start, series may have to be created again. Use a release build: while a server starts, its socket takes
points that it has not read, and a start must take less than these two seconds. To measure the documented interval, let the server catch up after each
start: `--protocols graphite --commit-interval 100ms --least 4`. What is lost right after a start is shown by `--protocols graphite --least 0.5
--most 3 --ages --readers ""`: a further sender (bench/sent_points.py) sends a point of a known series each millisecond beside the lab and notes
when; the output says for each kill how many of its points are lost, and how many milliseconds before the kill the socket had taken the oldest of
them. This is no rule: the run passes whatever the age. Only one of `graphite` and `graphite-pickle` can take part, because both have one tenant.
The values of statsd are owed once they were stored at the end of an interval, and a query of the lab has returned them: what a query returned
before a kill, a second after its time, must be there after it. And of the values that it should have stored while it was there, --stored (half)
must be owed, so that a server which stores nothing after a kill is noticed.
"""

import argparse
import atexit
import json
import os
import random
import subprocess
import sys
import time

import floodmark_bench
from floodmark_bench import FLOODMARK, Server
from protocol_addresses import Address, protocols
from sent_points import SERIES as SENT_SERIES, SentPoints

# Graphite's protocols have one tenant, so that only one of them can take part
ALL = [name for name in protocols("floodmark") if name != "graphite-pickle"]

args = argparse.ArgumentParser()
args.add_argument("--kills", type=int, default=50)
args.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
args.add_argument("--rate", default="20k")
args.add_argument("--least", type=float, default=0.5, help="minimum seconds from ready to kill")
args.add_argument("--most", type=float, default=6.0)
args.add_argument("--readers", default="deltalake,duckdb")
args.add_argument("--protocols", default="1.0")
args.add_argument("--stored", type=float, default=0.5, help="for statsd: smallest share of the values that must be stored")
args.add_argument("--commit-interval", default="2s", help="for Graphite: how old points are that are owed when the server is killed")
args.add_argument("--ages", action="store_true", help="for Graphite's lines: how old points are that a kill loses")
args = args.parse_args()
if args.ages and ("graphite" not in args.protocols.split(",") or args.readers):
    sys.exit('--ages needs the protocol graphite and --readers "", which would count its points, too')


def metric(server, name):
    return floodmark_bench.metric(server.url, name)


SERIES = 4 * 50 * 50
# gauges of statsd, which all of the server's intervals store; requests are small, so that no datagram is lost
GAUGES = 4 * 5 * 50


def tenant_of(protocol):
    return "protocol-" + protocol


class Load:
    """A lab that writes with a protocol, for a tenant that is named after it."""

    def __init__(self, server, address, duration_s):
        self.protocol, self.tenant = address.protocol, tenant_of(address.protocol)
        self.ledger = os.path.join(server.dir, "ledger-%s.json" % self.protocol)
        self.is_flushed = address.is_flushed()
        self.series = GAUGES if self.is_flushed else SERIES
        command = [FLOODMARK, "lab", "write", "--target", address.url(server.url), "--protocol", self.protocol, "--writers", "4",
                   "--series", "50", "--duration", "%ds" % duration_s, "--ledger", self.ledger, "--give-up-after", "5m", "--json", "--quiet"]
        if self.is_flushed:
            command += ["--metrics", "5", "--rate", str(2 * GAUGES), "--batch", "50", "--read-url", server.url, *self.header()]
        elif address.is_graphite():
            command += ["--metrics", "50", "--rate", str(SERIES), "--interval", "1s", "--commit-interval", args.commit_interval,
                        "--read-api", "promql", "--read-url", server.url]
        else:
            command += ["--metrics", "50", "--rate", args.rate, *self.header()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def header(self):
        return ["--header", "X-Scope-OrgID: " + self.tenant]

    def end(self):
        """True if all samples were acknowledged."""
        written = json.loads(self.process.communicate()[0])["totals"]
        print("written over", self.protocol, json.dumps({k: written[k] for k in written if isinstance(written[k], (int, float, str))}))
        return self.process.returncode == 0

    def verify(self, server, when):
        command = [FLOODMARK, "lab", "verify", self.ledger, "--read-url", server.url, *self.header(), "--json", "--quiet"]
        if self.is_flushed:
            # the lab does not know that the server was away
            command += ["--owed", "%.3f" % (args.stored * max(0, 1 - sum(ready) / duration_s))]
        ended = subprocess.run(command, stdout=subprocess.PIPE)
        self.report = json.loads(ended.stdout)
        print("%-22s %-10s %s" % (when, self.protocol, json.dumps(self.report)), flush=True)
        # no datagram is lost at this rate, so that no value is older than the last one that was sent
        return ended.returncode == 0 and self.report["stale"] == 0

    def read(self, server, reader):
        """What another engine finds in the table."""
        script = os.path.join(os.path.dirname(__file__), "readers.py")
        table = server.dir + "/data/tables/%s/metrics" % self.tenant
        out = subprocess.run([sys.executable, script, reader, table], stdout=subprocess.PIPE, check=True).stdout
        found = json.loads(out.splitlines()[-1])
        print("%-22s %-10s %s" % (reader, self.protocol, json.dumps(found)), flush=True)
        return found


print("seed", args.seed, flush=True)
rng = random.Random(args.seed)
moments = [rng.uniform(args.least, args.most) for _ in range(args.kills)]
names = ALL if args.protocols == "all" else args.protocols.split(",")
addresses = [Address("floodmark", name) for name in names]
settings = ['seal_after = "2s"', "partitions = 2"]
settings += ['graphite_tenant = "%s"' % tenant_of(address.protocol) for address in addresses if address.is_graphite()]
settings += ['statsd_flush_interval = "1s"\nstatsd_tenant = "%s"' % tenant_of(address.protocol) for address in addresses if address.is_flushed()]
config = os.path.join("/tmp", "floodmark-kill-loop-%d.toml" % os.getpid())
with open(config, "w") as file:
    file.write("\n".join(settings) + "\n")
server = Server("--config", config, *(flag for address in addresses for flag in address.flags))
atexit.register(lambda: server.process.kill())  # also after errors; the directory is kept
duration_s = sum(moments) + 2 * args.kills + 10
loads = [Load(server, address, duration_s) for address in addresses]
graphite = next((address for address in addresses if address.protocol == "graphite"), None)
sender = SentPoints(int(graphite.own.rsplit(":", 1)[1])) if args.ages else None
deadline = time.monotonic() + 120
# points of new series that wait for their creation are not owed over Graphite's protocols
while metric(server, "floodmark_head_series_created_total") < sum(load.series for load in loads) + bool(sender) * SENT_SERIES and time.monotonic() < deadline:
    time.sleep(0.5)
ready, rounds, replayed, begin, kills = [], 0, 0, time.monotonic(), []
for kill, moment in enumerate(moments):
    time.sleep(moment)
    rounds += metric(server, "floodmark_seal_rounds_total")
    kills.append(time.monotonic())
    server.kill()
    ready.append(server.start())
    replayed += metric(server, "floodmark_journal_replayed_samples_total")
    print("kill %2d after %.2f s, ready again in %.2f s" % (kill + 1, moment, ready[-1]), flush=True)
failed = not all([load.end() for load in loads])
if sender:
    sender.stop()
    losses = sender.losses(server.url, tenant_of("graphite"), begin, kills)
    for kill, (moment, (lost, oldest_s, newest_s)) in enumerate(zip(moments, losses)):
        print("kill %2d after %.2f s: %d points lost, sent %.0f to %.0f ms before" % (kill + 1, moment, lost, oldest_s * 1e3, newest_s * 1e3))
    print("points sent each millisecond: the oldest that a kill lost had been sent %.0f ms before it" % (max(oldest_s for _, oldest_s, _ in losses) * 1e3))
for when, what in [("as it is", None), ("after a flush", "flush"), ("after compaction", "compact")]:
    if what:
        print(what, json.dumps(server.post(what)))
    failed |= not all([load.verify(server, when) for load in loads])
server.kill()
server.start()
failed |= not all([load.verify(server, "after one more kill") for load in loads])
for load in loads:
    if load.is_flushed:
        continue  # the server goes on to store its gauges
    found = [load.read(server, reader) for reader in filter(None, args.readers.split(","))]
    failed |= len({(f["samples"], f["digest"]) for f in found}) > 1
    # without answers, more may be stored than is owed
    stored = load.report["acknowledged"] + load.report["unacknowledged"]
    failed |= any(f["samples"] != stored or f["rows"] != stored for f in found)
print("rounds of sealing %d, samples replayed %d, slowest start %.2f s" % (rounds, replayed, max(ready)))
acknowledged = sum(load.report["acknowledged"] for load in loads)
print("FAILED" if failed else "every acknowledged sample is stored once: %d" % acknowledged)
os.remove(config)
if failed:
    sys.exit("the data directory is kept in " + server.dir)
server.stop()
