"""Effect of wrong credentials on senders with good credentials.

    FLOODMARK=path/to/floodmark python3 bench/credentials.py [--attempts 10000] [--duration 20] [--runs 5] [--clients 4]

Three tenants write 10 k known series each at a fixed rate (latency from the intended start): one with a token, one with a password, one
with a JWT. They write first alone, then while clients make `attempts` wrong attempts per second. The attempts have, in turn, no
credentials, wrong tokens, wrong passwords, wrong signatures (each of a new JWT, which has to be verified), unsigned and expired JWTs, and
tokens of 7 KiB. Prints the p99 of the slowest of the three tenants, alone and during the attack, the ratio, and the attempts by status.
The figures are medians of `runs`.

The attackers share the machine with the server and have the lowest priority.
"""

import argparse
import base64
import collections
import hashlib
import hmac
import json
import multiprocessing
import os
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from floodmark_bench import Server

parser = argparse.ArgumentParser()
parser.add_argument("--attempts", type=int, default=10_000, help="wrong attempts per second")
parser.add_argument("--duration", type=int, default=20, help="seconds of each measurement")
parser.add_argument("--runs", type=int, default=5)
parser.add_argument("--clients", type=int, default=4, help="connections of the attackers, each from its own address")
parser.add_argument("--series", type=int, default=10_000, help="series of each tenant")
args = parser.parse_args()

KNOWN = ["--metrics", args.series // 100 or 1, "--series", 100, "--writers", 1, "--rate", args.series, "--labels", 10]
SECRET = b"the secret of the issuer, 32 bytes or more"
# number of requests that are sent before their answers are read
BATCH = 50


def encoded(value):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def claims(**more):
    return {"iss": "https://id.example", "aud": "floodmark", "exp": int(time.time()) + 86_400, **more}


def signed(header, payload, sign):
    text = encoded(header) + "." + encoded(payload)
    return text + "." + encoded(sign(text.encode()))


def hs256(payload):
    return signed({"alg": "HS256"}, payload, lambda text: hmac.digest(SECRET, text, "sha256"))


def wrong(number):
    """The value of the header `Authorization` of an attempt; None to send no header."""
    kinds = [
        lambda: None,
        lambda: "Bearer wrong-%d" % number,
        lambda: "Basic " + base64.b64encode(b"prometheus:wrong-%d" % number).decode(),
        lambda: "Bearer " + signed({"alg": "ES256"}, claims(jti=number), lambda _: os.urandom(64)),
        lambda: "Bearer " + signed({"alg": "none"}, claims(jti=number), lambda _: b""),
        lambda: "Bearer " + hs256(claims(exp=1, jti=number)),
        lambda: "Bearer " + "x" * 7000 + str(number),
    ]
    return kinds[number % len(kinds)]()


def attempt(number):
    value = wrong(number)
    authorization = "Authorization: %s\r\n" % value if value else ""
    path = ["/api/v1/labels", "/api/v1/query?query=up", "/metrics", "/config"][number // 7 % 4]
    return ("GET %s HTTP/1.1\r\nHost: localhost\r\nX-Scope-OrgID: a\r\n%s\r\n" % (path, authorization)).encode()


class Attackers:
    """Processes that send wrong attempts at a fixed rate. `stop` ends them, and returns the attempts by status and the seconds."""

    def __init__(self, address):
        self.over, self.found = multiprocessing.Event(), multiprocessing.Queue()
        self.began = time.monotonic()
        work = lambda which: multiprocessing.Process(target=self._send, args=(address, which))
        self.processes = [work(which) for which in range(args.clients)]
        [process.start() for process in self.processes]

    def _send(self, address, which):
        os.nice(19)
        host, port = address.split(":")
        connection = socket.create_connection((host, int(port)), source_address=("127.0.%d.9" % (which + 1), 0))
        statuses, number, sent = collections.Counter(), which * 1_000_003, 0
        began = time.monotonic()
        while not self.over.is_set():
            connection.sendall(b"".join(attempt(number + i) for i in range(BATCH)))
            number, sent = number + BATCH, sent + BATCH
            self._read(connection, statuses)
            # at a fixed rate; missed requests are sent later
            time.sleep(max(0, began + sent * args.clients / args.attempts - time.monotonic()))
        self.found.put(statuses)

    @staticmethod
    def _read(connection, statuses):
        """Reads the answers to a batch. Each answer states its length."""
        text, missing = b"", BATCH
        while missing:
            head, end, rest = text.partition(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1)) if end else 0
            if not end or len(rest) < length:
                more = connection.recv(1 << 16)
                if not more:
                    raise SystemExit("the server has closed the connection of an attacker: %r" % text[:200])
                text += more
                continue
            statuses[head.split(b" ", 2)[1].decode()] += 1
            text, missing = rest[length:], missing - 1

    def stop(self):
        self.over.set()
        statuses = sum((self.found.get() for _ in self.processes), collections.Counter())
        [process.join() for process in self.processes]
        return statuses, time.monotonic() - self.began


def credentials(folder):
    """Writes the file of credentials; returns the path of the file and the header of each tenant."""
    file = lambda name: os.path.join(folder, name)
    key = "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out " + file("key")
    subprocess.run(["openssl", *key.split()], check=True)
    subprocess.run(["openssl", "pkey", "-in", file("key"), "-pubout", "-out", file("id.pem")], check=True)
    with open(file("own.json"), "w") as keys:
        json.dump({"keys": [{"kty": "oct", "k": encoded(SECRET)}]}, keys)
    rights = 'tenants = ["%s"]\nroles = ["read", "write"]\n'
    digest = lambda secret: 'sha256 = "%s"\n' % hashlib.sha256(secret).hexdigest()
    issuer = 'issuer = "https://id.example"\naudience = "floodmark"\nkeys_file = "%s"\n'
    with open(file("auth.toml"), "w") as auth:
        auth.write("[token.a]\n" + digest(b"token of a") + rights % "a")
        auth.write("[user.prometheus]\n" + digest(b"password of b") + rights % "b")
        auth.write("[jwt.own]\n" + issuer % "own.json" + rights % "c")
        auth.write("[jwt.id]\n" + issuer % "id.pem" + rights % "c")
    basic = base64.b64encode(b"prometheus:password of b").decode()
    return file("auth.toml"), ["Bearer token of a", "Basic " + basic, "Bearer " + hs256(claims())]


def write_known(server, headers, seconds):
    """The p99 of the slowest of the three tenants, in milliseconds. Lost samples end the script."""
    reports = []

    def one(seed, header):
        access = ["--header", "Authorization: " + header, "--seed", seed]
        reports.append(server.lab(*KNOWN, *access, "--duration", "%ds" % seconds, "--verify")[0])

    threads = [threading.Thread(target=one, args=item) for item in enumerate(headers)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if len(reports) < len(headers) or any(report["verify"]["lost"] for report in reports):
        raise SystemExit("a tenant could not write, or samples are lost")
    return max(report["latency"]["p99_s"] for report in reports) * 1e3


folder = tempfile.mkdtemp(prefix="floodmark-bench-credentials-")
file, headers = credentials(folder)
server = Server("--auth-file", file, "--trusted-proxies", "[]")
write_known(server, headers, 3)
quiet, busy, rates = [], [], []
for _ in range(args.runs):
    quiet.append(write_known(server, headers, args.duration))
    attackers = Attackers(server.address)
    busy.append(write_known(server, headers, args.duration))
    statuses, seconds = attackers.stop()
    rates.append(sum(statuses.values()) / seconds)
    if set(statuses) - {"401", "503"}:
        raise SystemExit("wrong credentials were answered with %s" % dict(statuses))
    print("p99 %7.2f ms alone, %7.2f ms during %6.0f attempts per second, by status %s" % (quiet[-1], busy[-1], rates[-1], dict(statuses)), flush=True)
alone, attacked = statistics.median(quiet), statistics.median(busy)
print("medians: p99 %.2f ms alone, %.2f ms during %.0f attempts per second: %.2f times, %+.2f ms"
      % (alone, attacked, statistics.median(rates), attacked / alone, attacked - alone))
server.stop()
shutil.rmtree(folder)
