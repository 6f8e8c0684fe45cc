# Sends one export with each instrument of OpenTelemetry's SDK. Arguments: endpoint, compression, temporality.
import logging
import sys

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

endpoint, compression, temporality = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
temporalities = {}
if temporality == "delta":
    temporalities = {kind: AggregationTemporality.DELTA for kind in (Counter, Histogram)}
exporter = OTLPMetricExporter(
    endpoint=endpoint,
    timeout=5,
    compression={"none": Compression.NoCompression, "gzip": Compression.Gzip, "deflate": Compression.Deflate}[compression],
    preferred_temporality=temporalities,
)
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
provider = MeterProvider(
    metric_readers=[reader],
    resource=Resource.create({"service.name": compression, "service.namespace": "tests"}),
    views=[
        View(instrument_name="took", aggregation=ExplicitBucketHistogramAggregation([5.0, 10.0])),
        View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation()),
    ],
)
meter = provider.get_meter("tests", "1.0")
requests = meter.create_counter("requests")
requests.add(3, {"http.method": "GET", "code": 200})
requests.add(4, {"http.method": "GET", "code": 200})
requests.add(2.5, {"http.method": "POST", "code": 500})
meter.create_up_down_counter("queue.length").add(-3)
meter.create_observable_gauge("temperature", [lambda _: [Observation(21.5, {"room": "größer"})]], "Cel")
took = meter.create_histogram("took", "ms")
for value in (2, 8, 1000):
    took.record(value)
exponential = meter.create_histogram("exponential", "s")
for value in range(100):
    exponential.record((value + 1) / 100)
provider.force_flush()
provider.shutdown()
