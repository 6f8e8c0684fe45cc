use super::*;
use crate::generate::fleet::{Fleet, Histograms};
use crate::generate::plan::Plan;
use crate::generate::plan::tests::small;
use crate::generate::template::Renderer;
use model::{Labels, LabelsBuilder, STALE_NAN_BITS};
use stdx::rng::Rng;

const ARRIVAL_MS: i64 = 1_795_284_000_000;

/// Series of a request with their samples.
type Found = Vec<(String, Vec<(i64, u64)>)>;

fn found(kind: &Kind, body: &[u8]) -> (Found, u64) {
    let (mut parsed, mut all, mut refused) = (Parsed::default(), Vec::new(), 0);
    for piece in kind.pieces(body) {
        parsed.read_piece(kind, piece, ARRIVAL_MS).unwrap();
        refused += parsed.lines_refused();
        for series in parsed.series() {
            let mut builder = LabelsBuilder::new();
            for (name, value) in series.labels() {
                builder.push(std::str::from_utf8(name).unwrap(), std::str::from_utf8(value).unwrap());
            }
            all.push((builder.build_series().unwrap().to_string(), series.samples().to_vec()));
        }
    }
    all.sort();
    (all, refused)
}

fn influx(db: Option<&str>, precision: &str) -> Kind {
    Kind::Influx(influx::Options::of(Some(precision), db.map(str::to_owned)).unwrap())
}

/// What the generator sends is read as the samples of its plan, in one piece or in several.
#[test]
fn generated_requests_contain_the_samples_of_the_plan() {
    let fleet = Fleet { histograms: Histograms { count: 1, buckets: 2 }, ..Fleet::default() };
    let plan = Plan { fleet, batch: 20_000, targets: 8_000, ..small() };
    for (protocol, kind) in [
        (Protocol::Otlp, Kind::Otlp),
        (Protocol::OtlpGrpc, Kind::OtlpGrpc),
        (Protocol::OtlpJson, Kind::OtlpJson),
        (Protocol::Influx, influx(None, "ns")),
        (Protocol::JsonLines, Kind::JsonLines(Vec::new())),
        (Protocol::Text, Kind::Text(text::Options::default())),
    ] {
        for round in [0, 7] {
            let slot = plan.slot(1);
            let body = Renderer::new(protocol).render(&plan, slot, round).body(&plan, round);
            let mut expected: Found = (0..slot.len)
                .map(|index| {
                    let (target, metric) = plan.series_at(slot, index);
                    let mut labels = plan.fleet.target_labels(target, 0);
                    labels.extend(plan.fleet.histograms.le(metric).map(|le| ("le".to_owned(), le)));
                    labels.push(("__name__".into(), plan.fleet.metric_name(metric, 0)));
                    let pairs: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                    let value = plan.value(plan.target_key(target, 0), metric, round).to_bits();
                    (Labels::from_pairs(&pairs).to_string(), vec![(plan.timestamp_ms(target, round), value)])
                })
                .collect();
            expected.sort();
            assert_eq!(found(&kind, &body), (expected, 0), "{protocol:?}");
            let is_message = matches!(protocol, Protocol::Otlp | Protocol::OtlpGrpc | Protocol::OtlpJson);
            assert_eq!(kind.pieces(&body).count() > 1, !is_message, "{protocol:?}");
            assert_eq!(kind.protocol(), protocol);
        }
    }
}

#[track_caller]
fn check(kind: &Kind, body: &str, expected: &[(&str, i64, f64)], refused: u64) {
    let mut expected: Found = expected
        .iter()
        .map(|(labels, timestamp_ms, value)| ((*labels).to_owned(), vec![(*timestamp_ms, value.to_bits())]))
        .collect();
    expected.sort();
    assert_eq!(found(kind, body.as_bytes()), (expected, refused), "{body}");
}

#[test]
fn lines_of_influx() {
    let at = |body: &str, expected: &[(&str, i64, f64)], refused| {
        check(&influx(Some("telegraf"), "s"), body, expected, refused);
    };
    at(
        "cpu,host=a,db=own usage=1.5,on=true,n=-3i,u=7u 1795284001\n",
        &[
            (r#"cpu_usage{db="own", host="a"}"#, 1_795_284_001_000, 1.5),
            (r#"cpu_on{db="own", host="a"}"#, 1_795_284_001_000, 1.0),
            (r#"cpu_n{db="own", host="a"}"#, 1_795_284_001_000, -3.0),
            (r#"cpu_u{db="own", host="a"}"#, 1_795_284_001_000, 7.0),
        ],
        0,
    );
    at("m v=1", &[(r#"m_v{db="telegraf"}"#, ARRIVAL_MS, 1.0)], 0);
    at(
        "# a comment\n\nm v=\"a b, c=\\\" d\",w=2 5\nbroken\nm 1 2\n",
        &[(r#"m_w{db="telegraf"}"#, 5_000, 2.0)],
        3,
    );
    at("m v=NaN,w=1 5\nm v=1 soon\n,a=b v=1", &[(r#"m_w{db="telegraf"}"#, 5_000, 1.0)], 3);
    check(
        &influx(None, "ns"),
        r"a\,b\ c,t\=g=v\,1\ x f\,1=2 1795284000123456789",
        &[(r#"a,b c_f,1{t=g="v,1 x"}"#, 1_795_284_000_123, 2.0)],
        0,
    );
    assert_eq!(influx::Options::of(Some("days"), None), None);
}

#[test]
fn texts() {
    let plain = Kind::Text(text::Options::default());
    check(
        &plain,
        "# HELP up x\nup 1\nup{job=\"a\",} 2 1000\nhttp { code = \"200\" , m=\"a\\\"\\\\\\n\" } +Inf 2000\n{\"disk.free\",x=\"y\"} 3 3000\nbroken{ 1\nup one\nup 1 2 3\n",
        &[
            ("up{}", ARRIVAL_MS, 1.0),
            (r#"up{job="a"}"#, 1_000, 2.0),
            (r#"http{code="200", m="a\"\\\n"}"#, 2_000, f64::INFINITY),
            (r#"disk.free{x="y"}"#, 3_000, 3.0),
        ],
        3,
    );
    let extra = vec![("job".to_owned(), "push".to_owned())];
    let open = Kind::Text(text::Options { seconds: true, timestamp_ms: Some(7), extra });
    check(
        &open,
        "a_total{job=\"x\"} 4 1.5 # {trace_id=\"t\"} 4 1.4\nb 5 # {trace_id=\"t\"} 1\n# EOF\n",
        &[(r#"a_total{job="push"}"#, 1_500, 4.0), (r#"b{job="push"}"#, 7, 5.0)],
        0,
    );
}

#[test]
fn json_lines() {
    let kind = Kind::JsonLines(vec![("x".into(), "y".into())]);
    let body = concat!(
        r#"{"timestamps":[1,2,3],"values":[0.1,null,"-Infinity"],"metric":{"__name__":"up","j":"a\u00e9\"","x":"z"},"more":[{}]}"#,
        "\n{\"metric\":{},\"values\":[1],\"timestamps\":[]}\n{\n"
    );
    let samples = vec![(1, 0.1_f64.to_bits()), (2, STALE_NAN_BITS), (3, f64::NEG_INFINITY.to_bits())];
    assert_eq!(found(&kind, body.as_bytes()), (vec![(r#"up{j="aé\"", x="y"}"#.into(), samples)], 2));
}

#[test]
fn tables() {
    let mut options = csv::Options::of("1:label:host,2:metric:load,3:metric:temp,5:time:rfc3339").unwrap();
    options.has_header = true;
    let kind = Kind::Csv(options);
    check(
        &kind,
        "host,load,temp,ignored,time\n\"a, \"\"b\"\"\",1.5,,x,2026-11-21T18:00:00Z\nc,2,3,x,2026-11-21T19:00:00.5+01:00\n\
         d,one,3,x,2026-11-21T18:00:00Z\ne,1\n\"f,1,2,3,4\n",
        &[
            (r#"load{host="a, \"b\""}"#, 1_795_284_000_000, 1.5),
            (r#"load{host="c"}"#, 1_795_284_000_500, 2.0),
            (r#"temp{host="c"}"#, 1_795_284_000_500, 3.0),
        ],
        3,
    );
    for (form, cell, ms) in
        [("unix_s", "1.5", 1_500), ("unix_ms", "7", 7), ("unix_ns", "1795284000123456789", 1_795_284_000_123)]
    {
        let kind = Kind::Csv(csv::Options::of(&format!("2:metric:m,1:time:{form}")).unwrap());
        check(&kind, &format!("{cell},4\n"), &[("m{}", ms, 4.0)], 0);
    }
    for map in
        ["", "1:label:a", "0:metric:m", "1:metric:", "1:metric", "1:metric:m,2:time:days", "2000:metric:m"]
    {
        assert_eq!(csv::Options::of(map), None, "{map}");
    }
}

/// What Python's `pickle` writes in the protocols 0 to 5 for
/// `[("a.b", (1795284000, 1.5)), ("c;k=v", (1795284000.25, -2)), ("a.b", (7, 10**12)), ("bad", (1, nan)), ("x", 3)]`.
#[test]
fn pickled_points_of_all_versions() {
    let pickles = [
        "286c70300a2856612e620a70310a2849313739353238343030300a46312e350a7470320a7470330a612856633b6b3d760a70340a2846313739353238343030302e32350a492d320a7470350a7470360a612867310a2849370a4c313030303030303030303030304c0a7470370a7470380a6128566261640a70390a2849310a466e616e0a747031300a747031310a612856780a7031320a49330a747031330a612e",
        "5d710028285803000000612e627101284a20dc016b473ff8000000000000747102747103285805000000633b6b3d767104284741dac077081000004afeffffff747105747106286801284b074c313030303030303030303030304c0a7471077471082858030000006261647109284b01477ff800000000000074710a74710b28580100000078710c4b0374710d652e",
        "80025d7100285803000000612e6271014a20dc016b473ff80000000000008671028671035805000000633b6b3d7671044741dac077081000004afeffffff86710586710668014b078a060010a5d4e800867107867108580300000062616471094b01477ff800000000000086710a86710b580100000078710c4b0386710d652e",
        "80035d7100285803000000612e6271014a20dc016b473ff80000000000008671028671035805000000633b6b3d7671044741dac077081000004afeffffff86710586710668014b078a060010a5d4e800867107867108580300000062616471094b01477ff800000000000086710a86710b580100000078710c4b0386710d652e",
        "80049564000000000000005d94288c03612e62944a20dc016b473ff8000000000000869486948c05633b6b3d76944741dac077081000004afeffffff8694869468014b078a060010a5d4e800869486948c03626164944b01477ff8000000000000869486948c0178944b038694652e",
        "80059564000000000000005d94288c03612e62944a20dc016b473ff8000000000000869486948c05633b6b3d76944741dac077081000004afeffffff8694869468014b078a060010a5d4e800869486948c03626164944b01477ff8000000000000869486948c0178944b038694652e",
    ];
    let unhex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let frame = |pickle: &[u8]| [&(pickle.len() as u32).to_be_bytes(), pickle].concat();
    let series = |name: &str, ms, value: f64| (name.to_owned(), vec![(ms, value.to_bits())]);
    for (version, pickle) in pickles.iter().enumerate() {
        let pickle = unhex(pickle);
        let (all, refused) = found(&Kind::GraphitePickle, &frame(&pickle));
        let mut expected = vec![
            series("a.b{}", ARRIVAL_MS, 1.5),
            series("a.b{}", 7_000, 1e12),
            series("c{k=\"v\"}", ARRIVAL_MS + 250, -2.0),
        ];
        expected.sort();
        assert_eq!((all, refused), (expected, 2), "version {version}");
        // a frame that is not a list of points, and one without its end, do not affect others
        let frames =
            [frame(b"cos\nsystem\n."), frame(&pickle), frame(b"]."), frame(&pickle)[..9].to_vec()].concat();
        let (all, refused) = found(&Kind::GraphitePickle, &frames);
        assert_eq!((all.len(), refused), (3, 4), "version {version}");
    }
}

/// The same points in JSON, whose members come in an unusual order.
#[test]
fn points_of_all_kinds() {
    let body = r#"{"resourceMetrics":[{"scopeMetrics":[{"scope":{"name":"s"},"metrics":[
        {"gauge":{"dataPoints":[{"asInt":"-3","timeUnixNano":"1795284000000000000","attributes":[
            {"key":"http.method","value":{"stringValue":"GET"}},{"key":"n","value":{"intValue":"5"}},
            {"key":"b","value":{"boolValue":true}},{"key":"l","value":{"arrayValue":{"values":[]}}}]}]},"name":"queue.size"},
        {"name":"requests","sum":{"dataPoints":[{"asDouble":1.5,"timeUnixNano":1000000}],"isMonotonic":true}},
        {"name":"balance_total","sum":{"dataPoints":[{"asDouble":2,"timeUnixNano":"1000000","flags":1}],"isMonotonic":false}},
        {"name":"took","histogram":{"dataPoints":[{"count":"6","sum":7.5,"bucketCounts":["1","2","3"],"explicitBounds":[0.5,1],"timeUnixNano":"2000000"}]}},
        {"name":"size","summary":{"dataPoints":[{"count":"2","sum":4,"quantileValues":[{"quantile":0.5,"value":1.25}],"timeUnixNano":"2000000"}]}},
        {"name":"e","exponentialHistogram":{"dataPoints":[{"count":"7","sum":9,"scale":1,"zeroCount":"1",
            "positive":{"offset":0,"bucketCounts":["2",4]},"timeUnixNano":"2000000"},{"count":"1"}]}},
        {"name":"timeless","gauge":{"dataPoints":[{"asDouble":1}]}},
        {"name":"empty"}
      ]}],"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},{"key":"service.namespace","value":{"stringValue":"eu"}},
        {"key":"service.instance.id","value":{"stringValue":"i1"}},{"key":"host.name","value":{"stringValue":"h"}}]}}]}"#;
    let stale = f64::from_bits(STALE_NAN_BITS);
    let expected = [
        (r#"queue_size{b="true", http_method="GET", instance="i1", job="eu/shop", n="5"}"#, ARRIVAL_MS, -3.0),
        (r#"requests_total{instance="i1", job="eu/shop"}"#, 1, 1.5),
        (r#"balance_total{instance="i1", job="eu/shop"}"#, 1, stale),
        (r#"took_bucket{instance="i1", job="eu/shop", le="0.5"}"#, 2, 1.0),
        (r#"took_bucket{instance="i1", job="eu/shop", le="1"}"#, 2, 3.0),
        (r#"took_bucket{instance="i1", job="eu/shop", le="+Inf"}"#, 2, 6.0),
        (r#"took_sum{instance="i1", job="eu/shop"}"#, 2, 7.5),
        (r#"took_count{instance="i1", job="eu/shop"}"#, 2, 6.0),
        (r#"size{instance="i1", job="eu/shop", quantile="0.5"}"#, 2, 1.25),
        (r#"size_sum{instance="i1", job="eu/shop"}"#, 2, 4.0),
        (r#"size_count{instance="i1", job="eu/shop"}"#, 2, 2.0),
    ];
    let exponential = [
        (r#"e_bucket{instance="i1", job="eu/shop", le="0"}"#, 2, 1.0),
        (r#"e_bucket{instance="i1", job="eu/shop", le="1"}"#, 2, 1.0),
        (r#"e_bucket{instance="i1", job="eu/shop", le="1.4142135623730951"}"#, 2, 3.0),
        (r#"e_bucket{instance="i1", job="eu/shop", le="2"}"#, 2, 7.0),
        (r#"e_bucket{instance="i1", job="eu/shop", le="+Inf"}"#, 2, 7.0),
        (r#"e_sum{instance="i1", job="eu/shop"}"#, 2, 9.0),
        (r#"e_count{instance="i1", job="eu/shop"}"#, 2, 7.0),
    ];
    check(&Kind::OtlpJson, body, &[&expected[..], &exponential].concat(), 2);
}

#[test]
fn exponential_histograms_in_protobuf() {
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let fixed = |number: u8, bits: u64| [&[number << 3 | 1][..], &bits.to_le_bytes()].concat();
    // the numbers -1 and 1, zigzagged
    let negative = field(9, &[&[1 << 3, 1][..], &field(2, &[3, 0, 2])].concat());
    let point = [
        field(1, &[field(1, b"a"), field(2, &field(1, b"b"))].concat()),
        fixed(3, 2_000_000),
        fixed(4, 5),
        vec![6 << 3, 2],
        negative,
        fixed(14, 0.5f64.to_bits()),
    ];
    let metric = [field(1, b"e"), field(10, &field(1, &point.concat()))].concat();
    let request = field(1, &field(2, &field(2, &metric)));
    let bucket = |le: &str| format!("e_bucket{{a=\"b\", le=\"{le}\"}}");
    let (root, half) = (std::f64::consts::SQRT_2.to_string(), "0.5");
    let expected = [
        (bucket(&format!("-{root}")), 2, 2.0),
        (bucket("-1"), 2, 2.0),
        (bucket(&format!("-{}", 0.5 * std::f64::consts::SQRT_2)), 2, 5.0),
        (bucket(half), 2, 5.0),
        (bucket("+Inf"), 2, 5.0),
        ("e_count{a=\"b\"}".to_owned(), 2, 5.0),
    ];
    let mut wanted: Found = expected
        .into_iter()
        .map(|(name, ms, value): (_, _, f64)| (name, vec![(ms, value.to_bits())]))
        .collect();
    wanted.sort();
    for kind in [Kind::Otlp, Kind::OtlpGrpc] {
        assert_eq!(found(&kind, &request), (wanted.clone(), 0));
    }
}

/// A gauge that begins with a sign is changed, and what follows changes the same line.
#[test]
fn lines_of_statsd() {
    check(
        &Kind::Statsd,
        "hits:2|c|@0.1|#code:200,canary\nhits,code=500:1|c|@1\npool:7|g\npool:-2|g\npool:0:-2.5|g\npool:+1:1|g\n\
         wrong\nno:1|x\nno:one|c\n:1|c\n_e{1,1}:a|b\n",
        &[
            (r#"hits{canary="true", code="200", statsd_rate="0.1", statsd_type="c"}"#, ARRIVAL_MS, 2.0),
            (r#"hits{code="500", statsd_type="c"}"#, ARRIVAL_MS, 1.0),
            ("pool{}", ARRIVAL_MS, -2.5),
            ("pool{}", ARRIVAL_MS, 1.0),
            ("pool{}", ARRIVAL_MS, 7.0),
            (r#"pool{statsd_type="g+"}"#, ARRIVAL_MS, -2.0),
        ],
        5,
    );
    let (timers, _) = found(&Kind::Statsd, b"latency:12:17|ms|#a:b:c\n");
    let samples = vec![(ARRIVAL_MS, 12f64.to_bits()), (ARRIVAL_MS, 17f64.to_bits())];
    assert_eq!(timers, [(r#"latency{a="b:c", statsd_type="ms"}"#.to_owned(), samples)]);
    // equal members are equal numbers, and nobody knows which
    let (sets, _) = found(&Kind::Statsd, b"users:alice|s\nusers:bob|s\nusers:alice|s\n");
    let mut members: Vec<u64> = sets.iter().map(|(_, samples)| samples[0].1).collect();
    members.dedup();
    assert_eq!((sets.len(), members.len()), (3, 2), "{sets:?}");
    let (again, _) = found(&Kind::Statsd, b"users:alice|s\n");
    assert_ne!(again[0].1, sets[0].1);
    assert_ne!(again[0].1, sets[2].1);
}

/// Whatever arrives, a parser ends.
#[test]
fn any_body_is_read_or_refused() {
    let mut rng = Rng::announced();
    let kinds = [
        Kind::RemoteWrite(Version::V1),
        Kind::GraphiteLines,
        Kind::GraphitePickle,
        Kind::Otlp,
        Kind::OtlpJson,
        Kind::Statsd,
        influx(None, "s"),
        Kind::Text(text::Options::default()),
        Kind::JsonLines(Vec::new()),
        Kind::Csv(csv::Options::of("1:metric:m,2:label:l,3:time:rfc3339").unwrap()),
    ];
    let plan = small();
    let bodies = [
        Protocol::Otlp,
        Protocol::OtlpJson,
        Protocol::Influx,
        Protocol::JsonLines,
        Protocol::Text,
        Protocol::GraphitePickle,
        Protocol::Statsd,
    ]
    .map(|protocol| Renderer::new(protocol).render(&plan, plan.slot(0), 0).body(&plan, 0).to_vec());
    let mut parsed = Parsed::default();
    for _ in 0..3_000 {
        let mut body = bodies[rng.below(bodies.len() as u64) as usize].clone();
        for _ in 0..rng.below(6) {
            let at = rng.below(body.len() as u64) as usize;
            match rng.below(3) {
                0 => body.truncate(at + 1),
                1 => body[at] = b"\"\\{}[],:= \n#\x80"[rng.below(13) as usize],
                _ => body[at] = rng.below(256) as u8,
            }
        }
        for kind in &kinds {
            for piece in kind.pieces(&body) {
                let is_read = parsed.read_piece(kind, piece, 0).is_ok();
                assert!(is_read || parsed.series().count() == 0);
            }
        }
    }
}
