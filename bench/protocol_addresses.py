"""Where each server receives each protocol that the lab can send, and the flags that it needs for that.

    address = Address("floodmark", "otlp-grpc")
    start a server with address.flags, and send to address.url(BASE)
"""

from floodmark_bench import free_port

PATHS = {
    "floodmark": {
        "1.0": "/api/v1/write", "2.0": "/api/v1/write", "otlp": "/v1/metrics", "otlp-json": "/v1/metrics", "influx": "/write",
        "json-lines": "/api/v1/import", "text": "/api/v1/import/prometheus", "csv": "/api/v1/import/csv",
    },
    "victoriametrics": {
        "1.0": "/api/v1/write", "otlp": "/opentelemetry/v1/metrics", "influx": "/write", "json-lines": "/api/v1/import",
        "text": "/api/v1/import/prometheus", "csv": "/api/v1/import/csv",
    },
    "prometheus": {
        "1.0": "/api/v1/write", "2.0": "/api/v1/write", "otlp": "/api/v1/otlp/v1/metrics", "otlp-json": "/api/v1/otlp/v1/metrics",
    },
}

# flags that a server needs for a path
FLAGS = {"prometheus": {"otlp": ["--web.enable-otlp-receiver"], "otlp-json": ["--web.enable-otlp-receiver"]}}

# protocols with a port of their own: the scheme of the address, and the server's flag
PORTS = {
    "floodmark": {
        "otlp-grpc": ("http", "--otlp-grpc=%s"), "graphite": ("tcp", "--graphite=%s"), "graphite-pickle": ("tcp", "--graphite-pickle=%s"),
        "statsd": ("udp", "--statsd=%s"),
    },
    "victoriametrics": {"graphite": ("tcp", "-graphiteListenAddr=%s")},
}


def protocols(system):
    """All protocols that a server accepts."""
    return [*PATHS[system], *PORTS.get(system, {})]


class Address:
    """`flags` are those that the server needs. A port of its own is chosen here, and stays the same when the server is started again."""

    def __init__(self, system, protocol):
        self.protocol, self.path = protocol, PATHS[system].get(protocol)
        self.flags = FLAGS.get(system, {}).get(protocol, [])
        if self.path is None:
            scheme, flag = PORTS[system][protocol]
            address = "127.0.0.1:%d" % free_port()
            self.own, self.flags = "%s://%s" % (scheme, address), [flag % address]

    def url(self, base):
        """`base` is the URL of the server's HTTP port."""
        return self.own if self.path is None else base + self.path

    def is_graphite(self):
        """Graphite's protocols have no answers, and times in whole seconds."""
        return self.protocol.startswith("graphite")

    def is_flushed(self):
        """The server stores the values of statsd at the end of its own intervals, and nothing slows a sender of datagrams."""
        return self.protocol == "statsd"
