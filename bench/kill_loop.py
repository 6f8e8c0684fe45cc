"""kill -9 at random times under load, with sealing every two seconds. Checks that every acknowledged sample is stored once.

    FLOODMARK=path/to/floodmark python3 bench/kill_loop.py [--kills 50] [--seed N] [--readers deltalake,duckdb,spark]

The lab writes at a fixed rate and retries refused requests, so that in the end all samples are acknowledged. Then every sample in the
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
args = args.parse_args()


def metric(server, name):
    text = urllib.request.urlopen(server.url + "/metrics", timeout=10).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


def verify(server, ledger, when):
    command = [FLOODMARK, "lab", "verify", ledger, "--read-url", server.url, "--json", "--quiet"]
    ended = subprocess.run(command, stdout=subprocess.PIPE)
    report = json.loads(ended.stdout)
    print("%-22s %s" % (when, json.dumps(report)), flush=True)
    return report, ended.returncode


print("seed", args.seed, flush=True)
rng = random.Random(args.seed)
moments = [rng.uniform(args.least, args.most) for _ in range(args.kills)]
config = os.path.join("/tmp", "floodmark-kill-loop-%d.toml" % os.getpid())
with open(config, "w") as file:
    file.write('seal_after = "2s"\npartitions = 2\n')
server = Server("--config", config)
atexit.register(lambda: server.process.kill())  # also after errors; the directory is kept
ledger = os.path.join(server.dir, "ledger.json")
duration = sum(moments) + args.kills
command = [FLOODMARK, "lab", "write", "--target", server.url + "/api/v1/write", "--rate", args.rate, "--writers", "4",
           "--metrics", "50", "--series", "50", "--duration", "%ds" % duration, "--ledger", ledger,
           "--give-up-after", "5m", "--json", "--quiet"]
load = subprocess.Popen(command, stdout=subprocess.PIPE)
ready, rounds, replayed = [], 0, 0
for kill, moment in enumerate(moments):
    time.sleep(moment)
    rounds += metric(server, "floodmark_seal_rounds_total")
    server.kill()
    ready.append(server.start())
    replayed += metric(server, "floodmark_journal_replayed_samples_total")
    print("kill %2d after %.2f s, ready again in %.2f s" % (kill + 1, moment, ready[-1]), flush=True)
written = json.loads(load.communicate()[0])["totals"]
print("written", json.dumps({k: written[k] for k in written if isinstance(written[k], (int, float, str))}))
failed = load.returncode != 0
reports = []
for when, what in [("as it is", None), ("after a flush", "flush"), ("after compaction", "compact")]:
    if what:
        print(what, json.dumps(server.post(what)))
    report, code = verify(server, ledger, when)
    failed |= code != 0
    reports.append(report)
server.kill()
server.start()
report, code = verify(server, ledger, "after one more kill")
failed |= code != 0
found = {}
for reader in filter(None, args.readers.split(",")):
    script = os.path.join(os.path.dirname(__file__), "readers.py")
    table = server.dir + "/data/tables/anonymous/metrics"
    out = subprocess.run([sys.executable, script, reader, table], stdout=subprocess.PIPE, check=True).stdout
    found[reader] = json.loads(out.splitlines()[-1])
    print("%-22s %s" % (reader, json.dumps(found[reader])), flush=True)
print("rounds of sealing %d, samples replayed %d, slowest start %.2f s" % (rounds, replayed, max(ready)))
failed |= len({(f["samples"], f["digest"]) for f in found.values()}) > 1
acknowledged = report["acknowledged"]
failed |= any(f["samples"] != acknowledged or f["rows"] != acknowledged for f in found.values())
print("FAILED" if failed else "every acknowledged sample is stored once: %d" % acknowledged)
os.remove(config)
if failed:
    sys.exit("the data directory is kept in " + server.dir)
server.stop()
