# Sends logs with OpenTelemetry's SDK. Arguments: protocol (http or grpc), endpoint, compression, number of records.
import logging
import sys

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

protocol, endpoint, compression, count = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
if protocol == "http":
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

    exporter = OTLPLogExporter(
        endpoint=endpoint,
        timeout=60,
        compression=Compression.Gzip if compression == "gzip" else Compression.NoCompression,
    )
else:
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter

    exporter = OTLPLogExporter(
        endpoint=endpoint,
        insecure=True,
        timeout=60,
        compression=grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression,
    )
resource = Resource.create({"service.name": f"{protocol}/{compression}", "zone": "a"})
provider = LoggerProvider(resource=resource)
provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
logger = provider.get_logger("tests", "1.0", attributes={"lib": True})
time = 1795284000123456789
for n in range(int(count)):
    logger.emit(
        LogRecord(
            timestamp=time + n,
            observed_timestamp=time + n + 1,
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
            body=f"größe {n}",
            attributes={"n": n, "half": n / 2, "even": n % 2 == 0, "tags": ["a", "b"], "text": f"t{n % 3}"},
        )
    )
    # the processor drops records beyond the length of its queue
    if n % 1000 == 999:
        provider.force_flush(120_000)
# a record of the standard library, within a span
from opentelemetry.sdk._logs import LoggingHandler

with TracerProvider(resource=resource).get_tracer("t").start_as_current_span("s") as span:
    logging.getLogger("app").addHandler(LoggingHandler(logger_provider=provider))
    logging.getLogger("app").error("within a span", extra={"order": 7})
    context = span.get_span_context()
    print(f"{context.trace_id:032x} {context.span_id:016x}")
provider.shutdown()
