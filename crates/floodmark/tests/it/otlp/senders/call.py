# Calls a method with a message in hexadecimal digits. Arguments: address, message, metadata as name=value. Prints the code, then the answer in
# hexadecimal digits or the text of the error, then the seconds of RetryInfo. Two names are no metadata: `method`, and `ca`, the file with the
# certificate of an authority, if the connection is encrypted.
import sys

import grpc
from google.rpc import error_details_pb2, status_pb2

address, message, *metadata = sys.argv[1:]
metadata = dict(item.split("=", 1) for item in metadata)
method = metadata.pop("method", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
ca = metadata.pop("ca", None)
if ca is None:
    channel = grpc.insecure_channel(address)
else:
    with open(ca, "rb") as file:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(file.read()))
with channel:
    call = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
    try:
        answer = call(bytes.fromhex(message), metadata=list(metadata.items()), timeout=10)
        print("OK", answer.hex(), sep="\n")
    except grpc.RpcError as error:
        print(error.code().name, error.details(), sep="\n")
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        retry = error_details_pb2.RetryInfo()
        for detail in status_pb2.Status.FromString(details).details:
            detail.Unpack(retry)
        print(retry.retry_delay.seconds)
