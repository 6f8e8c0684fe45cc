"""kill -9 at random times under load, with sealing every two seconds. Checks that every acknowledged sample is stored once.

    FLOODMARK=path/to/floodmark python3 bench/kill_loop.py [--kills 50] [--seed N] [--readers deltalake,duckdb,spark]
                                                            [--protocols 1.0,otlp,influx,json-lines,text]

One lab for each protocol, each for a tenant of its own, writes at a fixed rate and retries refused requests, so that in the end all samples are acknowledged. Then every sample in the
lab's ledger is read back by PromQL and compared bit by bit, before and after a last flush and after compaction. Each of the readers
(bench/readers.py) counts the samples in the tables and computes a digest. Needs a Python with the packages of the readers. Exits with 1
if any result differs.
"""

import argparse
import atexit
import json
import os
import random
import subprocess
import sys
import time
import urllib.request

from floodmark_bench import FLOODMARK, Server

args = argparse.ArgumentParser()
args.add_argument("--kills", type=int, default=50)
args.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
args.add_argument("--rate", default="20k")
args.add_argument("--least", type=float, default=0.5, help="minimum seconds from ready to kill")
args.add_argument("--most", type=float, default=6.0)
args.add_argument("--readers", default="deltalake,duckdb")
args.add_argument("--protocols", default="1.0")
args = args.parse_args()


def metric(server, name):
    text = urllib.request.urlopen(server.url + "/metrics", timeout=10).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


PATHS = {
    "1.0": "/api/v1/write", "2.0": "/api/v1/write", "otlp": "/v1/metrics", "influx": "/write", "json-lines": "/api/v1/import",
    "text": "/api/v1/import/prometheus",
}


class Load:
    """A lab that writes with a protocol, for a tenant that is named after it."""

    def __init__(self, server, protocol, duration_s):
        self.protocol, self.tenant = protocol, "protocol-" + protocol
        self.ledger = os.path.join(server.dir, "ledger-%s.json" % protocol)
        command = [FLOODMARK, "lab", "write", "--target", server.url + PATHS[protocol], "--protocol", protocol, *self.header(), "--rate", args.rate,
                   "--writers", "4", "--metrics", "50", "--series", "50", "--duration", "%ds" % duration_s, "--ledger", self.ledger,
                   "--give-up-after", "5m", "--json", "--quiet"]
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
        ended = subprocess.run(command, stdout=subprocess.PIPE)
        self.report = json.loads(ended.stdout)
        print("%-22s %-10s %s" % (when, self.protocol, json.dumps(self.report)), flush=True)
        return ended.returncode == 0

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
config = os.path.join("/tmp", "floodmark-kill-loop-%d.toml" % os.getpid())
with open(config, "w") as file:
    file.write('seal_after = "2s"\npartitions = 2\n')
server = Server("--config", config)
atexit.register(lambda: server.process.kill())  # also after errors; the directory is kept
duration_s = sum(moments) + args.kills
loads = [Load(server, protocol, duration_s) for protocol in args.protocols.split(",")]
ready, rounds, replayed = [], 0, 0
for kill, moment in enumerate(moments):
    time.sleep(moment)
    rounds += metric(server, "floodmark_seal_rounds_total")
    server.kill()
    ready.append(server.start())
    replayed += metric(server, "floodmark_journal_replayed_samples_total")
    print("kill %2d after %.2f s, ready again in %.2f s" % (kill + 1, moment, ready[-1]), flush=True)
failed = not all([load.end() for load in loads])
for when, what in [("as it is", None), ("after a flush", "flush"), ("after compaction", "compact")]:
    if what:
        print(what, json.dumps(server.post(what)))
    failed |= not all([load.verify(server, when) for load in loads])
server.kill()
server.start()
failed |= not all([load.verify(server, "after one more kill") for load in loads])
for load in loads:
    found = [load.read(server, reader) for reader in filter(None, args.readers.split(","))]
    failed |= len({(f["samples"], f["digest"]) for f in found}) > 1
    acknowledged = load.report["acknowledged"]
    failed |= any(f["samples"] != acknowledged or f["rows"] != acknowledged for f in found)
print("rounds of sealing %d, samples replayed %d, slowest start %.2f s" % (rounds, replayed, max(ready)))
acknowledged = sum(load.report["acknowledged"] for load in loads)
print("FAILED" if failed else "every acknowledged sample is stored once: %d" % acknowledged)
os.remove(config)
if failed:
    sys.exit("the data directory is kept in " + server.dir)
server.stop()
