# Sends one export over gRPC. Arguments: address, compression.
import logging
import sys

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

address, compression = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
exporter = OTLPMetricExporter(
    endpoint=address,
    insecure=True,
    timeout=5,
    compression=grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression,
)
provider = MeterProvider(
    metric_readers=[PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)],
    resource=Resource.create({"service.name": compression}),
    views=[View(instrument_name="took", aggregation=ExplicitBucketHistogramAggregation([5.0, 10.0]))],
)
meter = provider.get_meter("tests")
meter.create_counter("requests").add(7, {"http.method": "GET"})
took = meter.create_histogram("took", "ms")
for value in (2, 8, 1000):
    took.record(value)
provider.force_flush()
provider.shutdown()
