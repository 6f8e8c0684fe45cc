# Sends spans with OpenTelemetry's SDK. Arguments: protocol (http or grpc), endpoint, compression, number of spans. Prints the ID of
# the trace.
import logging
import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, set_span_in_context

protocol, endpoint, compression, count = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
if protocol == "http":
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(
        endpoint=endpoint, compression=Compression.Gzip if compression == "gzip" else Compression.NoCompression
    )
else:
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(
        endpoint=endpoint,
        insecure=True,
        compression=grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression,
    )
provider = TracerProvider(resource=Resource.create({"service.name": f"{protocol}/{compression}"}))
provider.add_span_processor(BatchSpanProcessor(exporter))
tracer = provider.get_tracer("tests", "1.0")
time = 1795284000123456789
root = tracer.start_span("root", kind=SpanKind.SERVER, start_time=time)
for n in range(int(count)):
    child = tracer.start_span(
        f"child {n}",
        context=set_span_in_context(root),
        kind=SpanKind.CLIENT,
        attributes={"n": n, "tags": ["a", "b"], "half": n / 2},
        links=[Link(root.get_span_context(), {"why": "test"})],
        start_time=time + n,
    )
    child.add_event("event", {"n": n}, timestamp=time + n + 1)
    child.set_status(Status(StatusCode.ERROR, f"bad {n}"))
    child.end(end_time=time + n + 1000)
root.set_status(Status(StatusCode.OK))
root.end(end_time=time + 1_000_000)
context = root.get_span_context()
print(f"{context.trace_id:032x} {context.span_id:016x}")
provider.shutdown()
