use super::*;
use std::io::Write;

fn of(method: &str, uri: &str, headers: &[(&str, &str)]) -> Option<WriteRequest> {
    let pairs: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    WriteRequest::of(&method.parse().unwrap(), &uri.parse().unwrap(), &crate::http::headers(&pairs).unwrap())
}

#[test]
fn requests_that_write_are_recognized() {
    let kind = |uri: &str, headers: &[(&str, &str)]| of("POST", uri, headers).map(|request| request.kind);
    let json = ("content-type", "application/json; charset=utf-8");
    let snappy = ("content-encoding", "snappy");
    let protobuf = ("content-type", "application/x-protobuf");
    let v2 = ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request");
    for path in ["/v1/metrics", "/otlp/v1/metrics", "/x/api/v1/otlp/v1/metrics", "/opentelemetry/api/v1/push"]
    {
        assert_eq!(kind(path, &[protobuf]), Some(Kind::Otlp), "{path}");
        assert_eq!(kind(path, &[json]), Some(Kind::OtlpJson), "{path}");
    }
    for path in ["/api/v1/write", "/api/v1/push", "/api/v1/receive", "/write"] {
        assert_eq!(kind(path, &[snappy, protobuf]), Some(Kind::RemoteWrite(Version::V1)), "{path}");
        assert_eq!(kind(path, &[("content-encoding", "zstd"), v2]), Some(Kind::RemoteWrite(Version::V2)));
    }
    let influx =
        |precision, db: Option<&str>| influx::Options::of(precision, db.map(str::to_owned)).map(Kind::Influx);
    assert_eq!(kind("/write?db=a+b&precision=s", &[]), influx(Some("s"), Some("a b")));
    assert_eq!(kind("/api/v2/write", &[]), influx(None, None));
    assert_eq!(kind("/insert/0/influx/write", &[("content-encoding", "gzip")]), influx(None, None));
    let extra = |pairs: &[(&str, &str)]| -> Vec<Extra> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    assert_eq!(
        kind("/api/v1/import?extra_label=a%3Db&extra_label=c=d", &[]),
        Some(Kind::JsonLines(extra(&[("a", "b"), ("c", "d")])))
    );
    let text = |seconds, timestamp_ms, pairs| {
        Some(Kind::Text(text::Options { seconds, timestamp_ms, extra: extra(pairs) }))
    };
    assert_eq!(kind("/api/v1/import/prometheus?timestamp=5", &[]), text(false, Some(5), &[]));
    let open = ("content-type", "application/openmetrics-text; version=1.0.0");
    assert_eq!(
        kind("/metrics/job/a%2Fb/instance@base64/aTE", &[open]),
        text(true, None, &[("job", "a/b"), ("instance", "i1")])
    );
    assert_eq!(
        of("PUT", "/metrics/job@base64/eA==", &[]).unwrap().kind,
        text(false, None, &[("job", "x")]).unwrap()
    );
    let Some(Kind::Csv(table)) = kind("/api/v1/import/csv?format=1:metric:m&header=true", &[]) else {
        panic!()
    };
    assert!(table.has_header);
    assert_eq!(kind("/api/v1/graphite", &[]), Some(Kind::GraphiteLines));
    for (uri, headers) in [
        ("/api/v1/query", &[][..]),
        ("/api/v1/write", &[]),
        ("/api/v1/import/csv", &[]),
        ("/write?precision=days", &[]),
        ("/metrics/job/a/b", &[]),
        ("/metrics/job/a", &[protobuf]),
        ("/api/v1/graphite", &[("content-type", "application/python-pickle")]),
        ("/v1/metrics", &[("content-encoding", "br")]),
    ] {
        assert_eq!(kind(uri, headers), None, "{uri}");
    }
    assert_eq!(of("GET", "/v1/metrics", &[]), None);
}

#[test]
fn tenants_are_those_of_the_headers() {
    let tenant = |uri, headers: &[(&str, &str)]| of("POST", uri, headers).unwrap().tenant;
    assert_eq!(tenant("/v1/metrics", &[("x-scope-orgid", "a"), ("thanos-tenant", "b")]), "a");
    assert_eq!(tenant("/v1/metrics", &[("thanos-tenant", "b")]), "");
    assert_eq!(tenant("/api/v1/receive", &[("content-encoding", "snappy"), ("thanos-tenant", "b")]), "b");
}

/// A body over gRPC is one message behind a prefix, which says whether the message is compressed.
#[test]
fn messages_of_grpc_are_taken_from_their_frame() {
    let export = format!("/some/prefix{}", grpc::EXPORT);
    let of_grpc = |encoding: &str| {
        let headers = [("content-type", "application/grpc+proto"), ("grpc-encoding", encoding)];
        of("POST", &export, &headers)
    };
    let framed =
        |flag: u8, message: &[u8]| [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let plain = of_grpc("identity").unwrap();
    assert_eq!((&plain.kind, plain.is_framed), (&Kind::OtlpGrpc, true));
    assert_eq!(&*plain.content(&framed(0, b"abc")).unwrap(), b"abc");
    let zstd = zstd::stream::encode_all(&b"abc"[..], 1).unwrap();
    let compressed = of_grpc("zstd").unwrap();
    assert_eq!(&*compressed.content(&framed(1, &zstd)).unwrap(), b"abc");
    assert_eq!(&*compressed.content(&framed(0, b"abc")).unwrap(), b"abc", "not every message is compressed");
    for body in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x04abc", b"\0\0\0\0\x02abc"] {
        assert!(plain.content(body).is_err(), "{body:?}");
    }
    assert_eq!(of_grpc("br"), None);
    assert_eq!(of("POST", "/other.Service/Export", &[("content-type", "application/grpc")]), None);
}

#[test]
fn bodies_are_decompressed_up_to_the_limit() {
    let gzip = |content: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |content: &[u8]| zstd::stream::encode_all(content, 1).unwrap();
    let snappy = |content: &[u8]| snap::raw::Encoder::new().compress_vec(content).unwrap();
    let bomb = vec![0; BODY_BYTES_MAX + 1];
    for (encoding, encode) in [
        (Encoding::Gzip, &gzip as &dyn Fn(&[u8]) -> Vec<u8>),
        (Encoding::Zstd, &zstd),
        (Encoding::Snappy, &snappy),
        (Encoding::Identity, &|content: &[u8]| content.to_vec()),
    ] {
        assert_eq!(&*encoding.decode(&encode(b"abc")).unwrap(), b"abc", "{encoding:?}");
        assert_eq!(encoding.decode(&encode(&bomb[1..])).unwrap().len(), BODY_BYTES_MAX, "{encoding:?}");
        assert!(encoding.decode(&encode(&bomb)).is_err(), "{encoding:?}");
        assert!(encoding == Encoding::Identity || encoding.decode(b"\xff\xff").is_err(), "{encoding:?}");
    }
}
