# Sends documents with the client of Elasticsearch. Arguments: address, number of documents. Prints what the client counts.
import datetime
import sys

from elasticsearch import Elasticsearch, helpers

address, count = sys.argv[1], int(sys.argv[2])
start = datetime.datetime(2026, 11, 21, 18, tzinfo=datetime.timezone.utc)


def documents():
    for n in range(count):
        yield {
            "_op_type": "index" if n % 2 == 0 else "create",
            "_index": f"app-{n % 3}",
            "_id": f"id {n}",
            "_source": {
                "@timestamp": (start + datetime.timedelta(milliseconds=n)).isoformat(),
                "n": n,
                "half": n / 2,
                "message": f"größe\n{n}",
                "tags": ["a", n],
                "http": {"status": 200 + n % 2, "ok": n % 2 == 0},
            },
        }


for compress in (False, True):
    with Elasticsearch(f"http://{address}", http_compress=compress) as client:
        print(client.ping(), client.info()["version"]["number"])
        print(*helpers.bulk(client, documents(), chunk_size=500))
        results = list(helpers.streaming_bulk(client, [{"_index": "_bad", "a": 1}, {"_op_type": "delete", "_index": "app-0", "_id": "1"}], raise_on_error=False))
        print(*[(ok, *[(item["status"], item["error"]["type"]) for item in result.values()]) for ok, result in results])
