//! Invalid write requests. The answer must say what is wrong and how much was refused, and the valid part
//! must be stored.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Request, Server, now_ms};
use crate::write_api::written;
use model::caps;

/// Checks that the server still stores a valid request and returns it.
#[track_caller]
fn works(server: &Server) {
    let now = now_ms();
    let name = format!("works_{}", now % 1_000_000);
    server.send(&Request::write(&wire::v1(&[Series::named(&name).sample(now, 42.0)]))).expect(204, &[]);
    assert_eq!(server.value(&name, now), Some(42.0));
}

/// Counts the stored series, except those that [`works`] writes.
#[track_caller]
fn series_count(server: &Server) -> usize {
    let params = [("match[]", "{__name__!~\"works_.*\",__name__=~\".+\"}")];
    let data = crate::harness::read::data(&server.send(&Request::ask("/api/v1/series", &params)));
    data.as_array().unwrap().len()
}

#[test]
fn broken_bodies_store_nothing() {
    let server = Server::new();
    let now = now_ms();
    let message = wire::v1_message(&[
        Series::named("a").label("x", "y".repeat(50)).sample(now, 1.0),
        Series::named("b").sample(now, 2.0),
    ]);
    let body = wire::snappy(&message);
    let v2 = wire::v2(&[Series::named("c").sample(now, 1.0)]);
    let check = |request: Request, status: u16, mentions: &[&str]| {
        let reply = server.send(&request);
        reply.expect(status, mentions);
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
        works(&server);
    };
    for keep in [1, body.len() / 2, body.len() - 1] {
        check(Request::write(&body[..keep]), 400, &["snappy"]);
        check(Request::write_v2(&v2[..keep.min(v2.len() - 1)]), 400, &["snappy"]);
    }
    check(Request::write(&message), 400, &["snappy"]); // not compressed
    check(Request::write(&[&body[..], b"tail"].concat()), 400, &["snappy"]);
    check(Request::write(b"{\"timeseries\":[]}"), 400, &["snappy"]);
    // damaged protobuf: cut short, a wrong wire type, a length beyond the end, a varint that does not end
    check(Request::write(&wire::snappy(&message[..message.len() - 3])), 400, &["byte"]);
    check(Request::write(&wire::snappy(&[0x0f])), 400, &["byte"]);
    check(Request::write(&wire::snappy(&[0x0a, 0x7f, 0x0a])), 400, &["byte"]);
    check(Request::write(&wire::snappy(&[0xff; 12])), 400, &["byte"]);
    // the message belongs to the other version, so none of its fields is known and nothing is stored
    let reply = server.send(&Request::write_v2(&body));
    assert!(reply.status == 400 || written(&reply) == [Some("0"); 3], "{reply:?}");
    assert_eq!(series_count(&server), 0);
}

#[test]
fn bodies_beyond_the_limit_are_refused_before_they_are_read() {
    let server = Server::new();
    let limit = caps::BODY_COMPRESSED_BYTES_MAX;
    let head = Request::write(&[]).header("Content-Length", &(limit + 1).to_string()).head();
    let mut connection = Connection::open(server.address).unwrap();
    connection.send_bytes(head.as_bytes()).unwrap();
    connection.reply().unwrap().expect(413, &[&(limit + 1).to_string(), &limit.to_string()]);
    works(&server);
    // a chunked body does not declare its length, so the server reads it until it exceeds the limit
    let mut connection = Connection::open(server.address).unwrap();
    let head = Request::write(&[]).header("Transfer-Encoding", "chunked").head();
    connection.send_bytes(head.as_bytes()).unwrap();
    let chunk = [b"100000\r\n".as_slice(), &vec![0; 1 << 20], b"\r\n"].concat();
    // the server may close the connection before everything is sent; only its answer matters
    let _ = (0..limit / (1 << 20) + 1).try_for_each(|_| connection.send_bytes(&chunk));
    connection.reply().unwrap().expect(413, &[&limit.to_string()]);
    works(&server);
}

#[test]
fn a_snappy_bomb_is_not_unpacked() {
    let server = Server::new();
    let before = server.memory_bytes("VmHWM");
    let mut bomb = Vec::new();
    wire::varint(&mut bomb, u64::from(u32::MAX));
    bomb.extend_from_slice(&[0xfe, 1, 0].repeat(1000)); // copies of 64 bytes
    server.send(&Request::write(&bomb)).expect(413, &["4294967295", &caps::BODY_BYTES_MAX.to_string()]);
    server.send(&Request::write_v2(&bomb)).expect(413, &["4294967295"]);
    // the declared length is within the limit, but the body expands to less
    let mut liar = Vec::new();
    wire::varint(&mut liar, caps::BODY_BYTES_MAX as u64);
    liar.extend_from_slice(&[0x00, b'x']);
    for _ in 0..20 {
        server.send(&Request::write(&liar)).expect(400, &["snappy"]);
    }
    let mut endless = vec![0xff; 20];
    endless.push(0);
    server.send(&Request::write(&endless)).expect(400, &["snappy"]);
    works(&server);
    let grown = server.memory_bytes("VmHWM") - before;
    assert!(grown < 192 << 20, "memory grew by {} MiB", grown >> 20);
}

#[test]
fn small_bodies_with_too_many_elements_are_refused() {
    let server = Server::new();
    let many = wire::snappy(&[0x0a, 0x00].repeat(caps::REQUEST_SERIES_MAX + 1));
    assert!(many.len() < 100_000, "{}", many.len());
    server.send(&Request::write(&many)).expect(413, &["series", &caps::REQUEST_SERIES_MAX.to_string()]);
    let mut series = Vec::new();
    wire::put_bytes(&mut series, 1, b"\x0a\x08__name__\x12\x01m");
    series.extend([0x12, 0x00].repeat(caps::REQUEST_SAMPLES_MAX + 1));
    let mut message = Vec::new();
    wire::put_bytes(&mut message, 1, &series);
    server.send(&Request::write(&wire::snappy(&message))).expect(413, &["samples"]);
    let symbols = wire::snappy(&[0x22, 0x00].repeat(caps::REQUEST_SYMBOLS_MAX + 1));
    server.send(&Request::write_v2(&symbols)).expect(413, &["symbols"]);
    works(&server);
}

#[test]
fn one_bad_series_does_not_spoil_the_others() {
    let server = Server::new();
    let now = now_ms();
    let many: Vec<_> = (0..1000).map(|i| (format!("l{i:04}"), "v")).collect();
    let thousand = many.iter().fold(Series::named("many"), |s, (n, v)| s.label(n, v));
    let long = "x".repeat(10 << 20);
    let cases: Vec<(Series, &[&str])> = vec![
        (Series::new(&[("a", "b")]), &["no metric name", "__name__"]),
        (Series::new::<&str>(&[]), &["no metric name"]),
        (Series::named(""), &["no metric name"]),
        (Series::named("m").label("a", "1").label("a", "2"), &["\"a\"", "not unique"]),
        (Series::named("m").label("b", "1").label("a", "2").label("b", "1"), &["\"b\"", "not unique"]),
        (Series::named("m").label("", "x"), &["name is empty"]),
        (Series::named("m").label("a", [0xff, 0xfe]), &["UTF-8"]),
        (Series::new(&[("__name__", [b'm', 0xc3])]), &["UTF-8"]),
        (Series::named("m").label("a", &long), &["104857", "the limit is"]),
        (Series::named("m").label("a", "x".repeat(20_000)), &["\"a\"", "20000", "16384"]),
        (Series::named("m").label(&"n".repeat(2000), "v"), &["2000", "1024"]),
        (thousand, &["1001 labels", "128"]),
        ((0..10).fold(Series::named("m"), |s, i| s.label(&format!("l{i}"), "x".repeat(9000))), &["65536"]),
    ];
    for (number, (bad, mentions)) in cases.into_iter().enumerate() {
        for version in [1, 2] {
            let label = format!("{number}_{version}");
            let good = |place: &str| Series::new(&[("__name__", "good"), ("case", &label), ("place", place)]);
            let all = [
                good("before").sample(now, 1.0),
                bad.clone().samples([(now, 1.0), (now + 1, 2.0)]),
                good("behind").sample(now, 1.0),
            ];
            let reply = match version {
                1 => server.send(&Request::write(&wire::v1(&all))),
                _ => server.send(&Request::write_v2(&wire::v2(&all))),
            };
            reply.expect(400, mentions).expect(400, &["2 samples stored", "2 samples of 1 series refused"]);
            assert!(reply.body.len() < 4096, "an answer of {} bytes", reply.body.len());
            if version == 2 {
                assert_eq!(written(&reply), [Some("2"), Some("0"), Some("0")]);
            }
            let count = server.value(&format!("count(good{{case=\"{label}\"}})"), now);
            assert_eq!(count, Some(2.0), "case {label}");
        }
    }
    assert_eq!(server.value("count({__name__!=\"good\",__name__=~\".+\"})", now), None);
    works(&server);
}

#[test]
fn samples_of_impossible_times_are_left_out() {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let server = Server::new();
    let now = now_ms();
    for (time, mention) in [
        (-1, "before 1970"),
        (0, "past_limit"),
        (now - 11 * YEAR_MS, "past_limit"),
        (now + 3_600_000, "future_limit"),
        (i64::MAX, "future_limit"),
    ] {
        let label = time.to_string();
        let samples = [(now - 9 * YEAR_MS, 1.0), (time, 2.0), (now, 3.0)];
        let series = Series::named("timed").label("case", &label).samples(samples);
        let reply = server.send(&Request::write(&wire::v1(&[series])));
        reply.expect(400, &[mention]).expect(400, &["2 samples stored", "1 samples of 1 series refused"]);
        let stored = server.samples_of_one(&format!("timed{{case=\"{label}\"}}[100y]"), now);
        assert_eq!(stored, [samples[0], samples[2]], "{time}");
    }
    works(&server);
}

#[test]
fn labels_in_any_order_are_one_series() {
    let mut server = Server::new();
    let now = now_ms();
    let sorted = Series::new(&[("__name__", "m"), ("a", "1"), ("b", "2"), ("c", "3")]);
    let unsorted = Series::new(&[("c", "3"), ("b", "2"), ("__name__", "m"), ("a", "1")]);
    let empty = Series::new(&[("__name__", "m"), ("a", "1"), ("b", "2"), ("c", "3"), ("d", "")]);
    let mut expected = Vec::new();
    let forms = [&unsorted, &sorted, &empty, &unsorted];
    for (i, form) in forms.into_iter().enumerate() {
        for version in 0..2 {
            let sample = (now - 1000 + 2 * i as i64 + version, (i * 10) as f64);
            let series = [form.clone().sample(sample.0, sample.1)];
            let request = match version {
                0 => Request::write(&wire::v1(&series)),
                _ => Request::write_v2(&wire::v2(&series)),
            };
            server.send(&request).expect(204, &[]);
            expected.push(sample);
        }
    }
    let check = |server: &Server| {
        let all = server.samples("m[1m]", now);
        let name = r#"{"__name__":"m","a":"1","b":"2","c":"3"}"#;
        assert_eq!(all.keys().collect::<Vec<_>>(), [name]);
        assert_eq!(server.samples_of_one("m[1m]", now), expected);
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

#[test]
fn absurd_timestamps_are_left_out() {
    let server = Server::new();
    let now = now_ms();
    let year_10000 = caps::TIMESTAMP_MS_MAX + 1;
    for absurd in [i64::MIN, i64::MAX, -1, year_10000, now + 3_600_000, now * 1_000_000] {
        let series = Series::named("m").samples([(now - 5000, 1.0), (absurd, 9.0), (now, 2.0)]);
        let other = Series::named("n").sample(now, 3.0);
        let reply = server.send(&Request::write(&wire::v1(&[series.clone(), other.clone()])));
        reply.expect(400, &[&absurd.to_string(), "m", "3 samples stored"]);
        let reply = server.send(&Request::write_v2(&wire::v2(&[series, other])));
        reply.expect(400, &[&absurd.to_string()]);
        assert_eq!(written(&reply), [Some("3"), Some("0"), Some("0")]);
    }
    assert_eq!(server.samples_of_one("m[1m]", now), [(now - 5000, 1.0), (now, 2.0)]);
    // a sender's clock may be slightly ahead of the server's
    let ahead = Series::named("ahead").sample(now + 300_000, 1.0);
    server.send(&Request::write(&wire::v1(&[ahead]))).expect(204, &[]);
    assert_eq!(server.value("ahead", now + 300_000), Some(1.0));
    works(&server);
}

#[test]
fn symbol_tables_are_checked() {
    let server = Server::new();
    let now = now_ms();
    let check = |symbols: &[&str], refs: &[u64], mentions: &[&str]| {
        let reply = server.send(&Request::write_v2(&wire::v2_with_refs(symbols, refs, now)));
        reply.expect(400, mentions);
        works(&server);
    };
    check(&["", "__name__", "m"], &[1, 3], &["reference 3", "3 symbols"]);
    check(&["", "__name__", "m"], &[1, u64::from(u32::MAX)], &["4294967295", "3 symbols"]);
    check(&["", "__name__", "m"], &[1, 2, 1], &["odd"]);
    check(&["", "__name__", "m"], &[], &["no metric name"]);
    check(&["__name__", "m"], &[0, 1], &["first symbol"]);
    assert_eq!(series_count(&server), 0);
}

#[test]
fn tenants_have_proper_names() {
    let server = Server::new();
    let now = now_ms();
    let body = wire::v1(&[Series::named("m").sample(now, 1.0)]);
    let check = |request: Request, mentions: &[&str]| {
        server.send(&request).expect(400, mentions);
    };
    let long = "t".repeat(1000);
    let bad: [(&str, &[&str]); 7] = [
        ("a/b", &["'/'"]),
        ("../etc", &["'/'"]),
        ("..", &["'..'"]),
        (".", &["'.'"]),
        (&long, &["150", "1000"]),
        ("", &["empty"]),
        ("a b", &["' '"]),
    ];
    for (tenant, mentions) in bad {
        check(Request::write(&body).tenant(tenant), mentions);
        check(Request::ask("/api/v1/query", &[("query", "m")]).tenant(tenant), mentions);
        check(Request::get("/api/v1/labels").tenant(tenant), mentions);
    }
    check(Request::write(&body).header("X-Scope-OrigID", "a"), &["X-Scope-OrigID", "X-Scope-OrgID"]);
    check(Request::write(&body).tenant("a").and_header("X-Scope-OrgID", "b"), &["more than once"]);
    assert_eq!(series_count(&server), 0);
    server.send(&Request::write(&body).tenant(&"t".repeat(150))).expect(204, &[]);
    let ours =
        ["LOCK", "clock.json", "floodmarks.json", "floodmarks.spare", "identity.json", "journal", "tables"];
    for entry in std::fs::read_dir(server.data_dir()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(ours.iter().any(|ours| *ours == name), "the folder {name:?} was created");
    }
    works(&server);
}

#[test]
fn non_http_input_is_refused() {
    let server = Server::new();
    let check = |bytes: &[u8]| {
        let mut connection = Connection::open(server.address).unwrap();
        let _ = connection.send_bytes(bytes); // the server may have closed the connection
        match connection.reply() {
            Ok(reply) => assert!((400..500).contains(&reply.status), "{reply:?}"),
            Err(error) => assert!(error.kind() != std::io::ErrorKind::WouldBlock, "open: {error}"),
        }
        works(&server);
    };
    check(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 what TLS begins with\r\n\r\n");
    check(b"POST /api/v1/write HTTP/1.1\r\nContent-Length: -5\r\n\r\n");
    check(b"POST /api/v1/write HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!");
    check(b"POST /api/v1/write HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n");
    check(&[b"GET /api/v1/query?query=", vec![b'a'; 1 << 20].as_slice(), b" HTTP/1.1\r\n\r\n"].concat());
    let headers = "X-Header: value\r\n".repeat(2000);
    check(format!("GET /api/v1/labels HTTP/1.1\r\n{headers}\r\n").as_bytes());
}

#[test]
fn refused_series_are_counted_once() {
    let server = Server::new();
    let series = Series::named("m").samples([(-1, 1.0), (-2, 1.0), (-3, 1.0)]);
    let reply = server.send(&Request::write(&wire::v1(&[series])));
    reply.expect(400, &["3 samples of 1 series refused"]);
}

/// The message shows the labels of a refused series, and cuts long ones.
#[test]
fn a_refused_series_is_named() {
    let server = Server::new();
    let long = "x".repeat(10 << 20);
    let series = [Series::named("m").label("job", "api").label("long", &long).sample(now_ms(), 1.0)];
    for request in [Request::write(&wire::v1(&series)), Request::write_v2(&wire::v2(&series))] {
        let reply = server.send(&request);
        reply.expect(400, &["value of label \"long\" has 10485760 bytes", "m{job=\"api\", long=\"xxxx", "…"]);
        assert!(reply.body.len() < 1000, "{}", reply.text());
    }
}
