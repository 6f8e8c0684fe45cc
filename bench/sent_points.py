"""A sender of Graphite's lines that remembers when each point was sent, to show how old the points are that a kill loses."""

import json
import socket
import threading
import time
import urllib.parse
import urllib.request

# each gets a point every two seconds, so that none replaces another one of the same second
SERIES = 2000
PER_S = 1000


class SentPoints:
    """A thread that sends a point each millisecond to known series, over one connection, and connects again after a kill."""

    def __init__(self, port):
        self.port, self.over = port, threading.Event()
        # a point for each element, with its number as the value: when the socket had taken it, and when its connection was opened
        self.sent = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self):
        self.over.set()
        self.thread.join()

    def _run(self):
        connection, opened, number, due = None, 0, 0, time.monotonic()
        while not self.over.is_set():
            due = max(due + 1 / PER_S, time.monotonic() - 0.1)
            time.sleep(max(0, due - time.monotonic()))
            line = b"sent.n%d %d %d\n" % (number % SERIES, number, time.time())
            try:
                if connection is None:
                    connection, opened = socket.create_connection(("127.0.0.1", self.port), 5), time.monotonic()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(line)
            except OSError:
                connection = connection and connection.close()
                continue
            self.sent.append((time.monotonic(), opened))
            number += 1

    def losses(self, url, tenant, begin, kills):
        """For each time of a kill: how many points it lost, and how many seconds before it the oldest and the newest of them had been sent. Points are left out
        that were sent before `begin`, and after a kill on a connection from before it."""
        stored = self._stored(url, tenant, int(time.monotonic() - self.sent[0][0]) + 60)
        losses = []
        for before, kill in zip([begin, *kills], kills):
            lost = [kill - at for number, (at, opened) in enumerate(self.sent)
                    if before < at <= kill and (opened > before or before == begin) and number not in stored]
            losses.append((len(lost), max(lost, default=0), min(lost, default=0)))
        return losses

    @staticmethod
    def _stored(url, tenant, seconds):
        """The numbers of all points that a query returns."""
        found = set()
        for digit in range(10):
            query = urllib.parse.urlencode({"query": '{__name__=~"sent[.]n[0-9]*%d"}[%ds]' % (digit, seconds), "time": time.time() + 10})
            request = urllib.request.Request(url + "/api/v1/query?" + query, headers={"X-Scope-OrgID": tenant})
            with urllib.request.urlopen(request, timeout=120) as answer:
                for series in json.load(answer)["data"]["result"]:
                    found.update(int(float(value)) for _, value in series["values"])
        return found
