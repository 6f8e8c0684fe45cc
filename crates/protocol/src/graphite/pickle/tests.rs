use super::*;
use crate::graphite::tests::{Decoded, decoded};
use crate::graphite::{FRAME_BYTES_MAX, TimeOfArrival};
use crate::{Body, Encoding};
use stdx::budget::Account;
use stdx::rng::Rng;

const WHOLE: Format = Format { has_frames: false, arrival: TimeOfArrival::Refused };
/// The largest number in a memo.
const MEMO_NUMBER_MAX: u32 = (1 << 18) - 1;
const FRAMES: Format = Format { has_frames: true, arrival: TimeOfArrival::Refused };

fn whole(pickle: &[u8]) -> Result<Decoded, String> {
    decoded::<Decoder>(WHOLE, pickle).map_err(|error| error.to_string())
}

/// The same two points, as Python 3.13 serializes them with each version of the format.
const OF_EACH_PROTOCOL: [&[u8]; 6] = [
    b"(lp0\n(Vservers.web1.load\np1\n(I1795284000\nF0.7\ntp2\ntp3\na(Va;b=c\np4\n(F1795284001.5\nI12\ntp5\ntp6\na.",
    b"]q\x00((X\x11\x00\x00\x00servers.web1.loadq\x01(J \xdc\x01kG?\xe6fffffftq\x02tq\x03(X\x05\x00\x00\x00a;b=cq\x04(G\
      A\xda\xc0w\x08`\x00\x00K\x0ctq\x05tq\x06e.",
    b"\x80\x02]q\x00(X\x11\x00\x00\x00servers.web1.loadq\x01J \xdc\x01kG?\xe6ffffff\x86q\x02\x86q\x03X\x05\x00\x00\x00a;b=c\
      q\x04GA\xda\xc0w\x08`\x00\x00K\x0c\x86q\x05\x86q\x06e.",
    b"\x80\x03]q\x00(X\x11\x00\x00\x00servers.web1.loadq\x01J \xdc\x01kG?\xe6ffffff\x86q\x02\x86q\x03X\x05\x00\x00\x00a;b=c\
      q\x04GA\xda\xc0w\x08`\x00\x00K\x0c\x86q\x05\x86q\x06e.",
    b"\x80\x04\x95B\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x11servers.web1.load\x94J \xdc\x01kG?\xe6ffffff\x86\x94\x86\x94\
      \x8c\x05a;b=c\x94GA\xda\xc0w\x08`\x00\x00K\x0c\x86\x94\x86\x94e.",
    b"\x80\x05\x95B\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x11servers.web1.load\x94J \xdc\x01kG?\xe6ffffff\x86\x94\x86\x94\
      \x8c\x05a;b=c\x94GA\xda\xc0w\x08`\x00\x00K\x0c\x86\x94\x86\x94e.",
];

fn sample(labels: &str, timestamp_ms: i64, value: f64) -> (String, i64, f64) {
    (labels.to_owned(), timestamp_ms, value)
}

#[test]
fn lists_of_each_protocol_are_read() {
    let expected = vec![
        sample("servers.web1.load{}", 1_795_284_000_000, 0.7),
        sample(r#"a{b="c"}"#, 1_795_284_001_500, 12.0),
    ];
    for (version, pickle) in OF_EACH_PROTOCOL.iter().enumerate() {
        assert_eq!(whole(pickle), Ok((expected.clone(), vec![])), "protocol {version}");
    }
    let framed: Vec<u8> = OF_EACH_PROTOCOL
        .iter()
        .flat_map(|pickle| [&(pickle.len() as u32).to_be_bytes()[..], pickle].concat())
        .collect();
    let (samples, refused) = decoded::<Decoder>(FRAMES, &framed).unwrap();
    assert_eq!((samples, refused), (vec![expected; 6].concat(), vec![]));
}

#[test]
fn numbers_and_strings_are_read_in_all_their_forms() {
    let check = |pickle: &[u8], labels: &str, timestamp_ms, value| {
        assert_eq!(
            whole(pickle),
            Ok((vec![sample(labels, timestamp_ms, value)], vec![])),
            "{}",
            pickle.escape_ascii()
        );
    };
    check(b"(lp0\n(V\xe9.x\np1\n(I7\nL1180591620717411303424L\ntp2\ntp3\na.", "é.x{}", 7000, 2f64.powi(70));
    check(b"(l(Vit's\\u005c\n(I8\nI-3\ntta.", "it's\\{}", 8000, -3.0);
    // the form that statsd's daemon writes: the value is a string
    check(b"(l(S'stats.a'\n(L1795284000L\nS'1.25'\ntta.", "stats.a{}", 1_795_284_000_000, 1.25);
    check(b"(l(S\"it's\"\n(L7\nS'-1'\ntta.", "it's{}", 7000, -1.0);
    check(
        br"(l(S'\x61\'\\b'
(L7
S' 1e3 '
tta.",
        r"a'\b{}",
        7000,
        1000.0,
    );
    check(
        b"]((U\x01a(M\x01\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00tte.",
        "a{}",
        513_000,
        u64::MAX as f64,
    );
    check(b"]((T\x01\0\0\0a(K\x02\x8b\x01\0\0\0\xfftte.", "a{}", 2000, -1.0);
    check(b"]((C\x01a(K\x02\x8a\x00tte.", "a{}", 2000, 0.0);
    check(b"]((B\x01\0\0\0a(K\x02K\x03tte.", "a{}", 2000, 3.0);
    check(b"]((\x8d\x01\0\0\0\0\0\0\0a(K\x02K\x03tte.", "a{}", 2000, 3.0);
    check(b"]((\x8e\x01\0\0\0\0\0\0\0a(K\x02K\x03tte.", "a{}", 2000, 3.0);
    // truth values are numbers
    for (truth, value) in [(&b"\x88"[..], 1.0), (b"\x89", 0.0), (b"I01\n", 1.0), (b"I00\n", 0.0)] {
        check(&[b"](U\x01aK\x02", truth, b"\x86\x86e."].concat(), "a{}", 2000, value);
    }
    // a list of one point, and a path that is repeated
    check(b"\x80\x02]q\x01U\x01aq\x02K\x01K\x02\x86q\x03\x86a.", "a{}", 1000, 2.0);
    let twice = whole(b"](U\x01aq\x00K\x01K\x02\x86\x86h\x00K\x02K\x03\x86\x86e.").unwrap().0;
    assert_eq!(twice, [sample("a{}", 1000, 2.0), sample("a{}", 2000, 3.0)]);
    assert_eq!(whole(b"]."), Ok((vec![], vec![])));
    assert_eq!(whole(b"(l."), Ok((vec![], vec![])));
}

/// Points of lists and tuples, as Python 3.11 serializes them with each version of the format. Two points share a list.
#[test]
fn lists_of_two_are_pairs() {
    let pickles: [&[u8]; 6] = [
        b"(lp0\n(lp1\nVa\np2\na(lp3\nI7\naF2.5\naaa(Vb\np4\n(lp5\nI7\naF2.5\natp6\na(lp7\nVc\np8\nag5\
          \naa(lp9\nVd\np10\na(I7\nF2.5\ntp11\naa.",
        b"]q\x00(]q\x01(X\x01\x00\x00\x00aq\x02]q\x03(K\x07G@\x04\x00\x00\x00\x00\x00\x00ee(X\
          \x01\x00\x00\x00bq\x04]q\x05(K\x07G@\x04\x00\x00\x00\x00\x00\x00etq\x06]q\x07(X\
          \x01\x00\x00\x00cq\x08h\x05e]q\x09(X\x01\x00\x00\x00dq\n(K\x07G@\
          \x04\x00\x00\x00\x00\x00\x00tq\x0bee.",
        b"\x80\x02]q\x00(]q\x01(X\x01\x00\x00\x00aq\x02]q\x03(K\x07G@\x04\x00\x00\x00\x00\x00\x00eeX\
          \x01\x00\x00\x00bq\x04]q\x05(K\x07G@\x04\x00\x00\x00\x00\x00\x00e\x86q\x06]q\x07(X\
          \x01\x00\x00\x00cq\x08h\x05e]q\x09(X\x01\x00\x00\x00dq\nK\x07G@\
          \x04\x00\x00\x00\x00\x00\x00\x86q\x0bee.",
        b"\x80\x03]q\x00(]q\x01(X\x01\x00\x00\x00aq\x02]q\x03(K\x07G@\x04\x00\x00\x00\x00\x00\x00eeX\
          \x01\x00\x00\x00bq\x04]q\x05(K\x07G@\x04\x00\x00\x00\x00\x00\x00e\x86q\x06]q\x07(X\
          \x01\x00\x00\x00cq\x08h\x05e]q\x09(X\x01\x00\x00\x00dq\nK\x07G@\
          \x04\x00\x00\x00\x00\x00\x00\x86q\x0bee.",
        b"\x80\x04\x95P\x00\x00\x00\x00\x00\x00\x00]\x94(]\x94(\x8c\x01a\x94]\x94(K\x07G@\
          \x04\x00\x00\x00\x00\x00\x00ee\x8c\x01b\x94]\x94(K\x07G@\x04\x00\x00\x00\x00\x00\x00e\
          \x86\x94]\x94(\x8c\x01c\x94h\x05e]\x94(\x8c\x01d\x94K\x07G@\
          \x04\x00\x00\x00\x00\x00\x00\x86\x94ee.",
        b"\x80\x05\x95P\x00\x00\x00\x00\x00\x00\x00]\x94(]\x94(\x8c\x01a\x94]\x94(K\x07G@\
          \x04\x00\x00\x00\x00\x00\x00ee\x8c\x01b\x94]\x94(K\x07G@\x04\x00\x00\x00\x00\x00\x00e\
          \x86\x94]\x94(\x8c\x01c\x94h\x05e]\x94(\x8c\x01d\x94K\x07G@\
          \x04\x00\x00\x00\x00\x00\x00\x86\x94ee.",
    ];
    let expected = ["a{}", "b{}", "c{}", "d{}"].map(|name| sample(name, 7000, 2.5)).to_vec();
    for (version, pickle) in pickles.iter().enumerate() {
        assert_eq!(whole(pickle), Ok((expected.clone(), vec![])), "protocol {version}");
    }
    // lists that are created with their objects
    let created = whole(b"((U\x01a(K\x07G@\x04\0\0\0\0\0\0ll(U\x01b(K\x07G@\x04\0\0\0\0\0\0ttl.");
    assert_eq!(created, Ok((expected[..2].to_vec(), vec![])));
}

#[test]
fn the_time_minus_one_is_the_time_of_arrival_if_that_is_allowed() {
    let pickle = b"](U\x01aJ\xff\xff\xff\xffK\x02\x86\x86e.";
    let format = Format { has_frames: false, arrival: TimeOfArrival::Is(77) };
    assert_eq!(decoded::<Decoder>(format, pickle).unwrap().0, [sample("a{}", 77, 2.0)]);
    assert_eq!(whole(pickle).unwrap().0, [sample("a{}", -1000, 2.0)]);
}

/// How the objects of a pickle are memoized.
#[derive(Debug, Clone, Copy)]
enum Memo {
    Nothing,
    /// Under numbers that begin with this one.
    From(u32),
    /// By the opcode without a number.
    Next,
}

/// A list of random points. In every other list, some points have a form that is not the usual one, and some repeat an earlier path.
fn points(rng: &mut Rng, memo: Memo) -> Vec<u8> {
    let mut pickle = b"\x80\x04](".to_vec();
    let mut number = if let Memo::From(first) = memo { first } else { 0 };
    let mut paths = Vec::new();
    let is_usual = rng.below(2) == 0;
    let put = |pickle: &mut Vec<u8>, number: &mut u32, can_be_left_out: bool| {
        match memo {
            Memo::Nothing => return,
            _ if can_be_left_out => return,
            Memo::Next => pickle.push(0x94),
            Memo::From(_) if *number < 256 => pickle.extend([b'q', *number as u8]),
            Memo::From(_) => pickle.extend([&b"r"[..], &number.to_le_bytes()].concat()),
        }
        *number += 1;
    };
    for _ in 0..rng.below(200) {
        let path = vec![b'a'; rng.below(300) as usize];
        match rng.below(8) {
            0 if !is_usual && !paths.is_empty() => {
                let earlier: u32 = paths[rng.below(paths.len() as u64) as usize];
                pickle.extend([&b"j"[..], &earlier.to_le_bytes()].concat());
            }
            kind => {
                match kind {
                    1..5 if path.len() < 256 => pickle.extend([0x8c, path.len() as u8]),
                    _ => pickle.extend([&b"X"[..], &(path.len() as u32).to_le_bytes()].concat()),
                }
                pickle.extend(path);
                if !matches!(memo, Memo::Nothing) {
                    paths.push(number);
                }
                put(&mut pickle, &mut number, false);
            }
        }
        let time_s = 1_795_284_000 + rng.below(100) as i32;
        match rng.below(4) {
            0 => pickle.extend([&b"G"[..], &f64::from(time_s).to_be_bytes()].concat()),
            1 if !is_usual && rng.below(10) == 0 => {
                pickle.extend([&b"G"[..], &f64::NAN.to_be_bytes()].concat());
            }
            _ => pickle.extend([&b"J"[..], &time_s.to_le_bytes()].concat()),
        }
        match rng.below(8) {
            0 => pickle.extend([b'K', rng.below(256) as u8]),
            2 => pickle.extend([&b"M"[..], &(rng.below(1 << 16) as u16).to_le_bytes()].concat()),
            3 => pickle.extend([&b"J"[..], &(rng.next_u64() as i32).to_le_bytes()].concat()),
            1 if rng.below(10) == 0 => pickle.extend([&b"G"[..], &f64::NAN.to_be_bytes()].concat()),
            _ => pickle.extend([&b"G"[..], &(rng.below(1000) as f64 / 8.0).to_be_bytes()].concat()),
        }
        for _ in 0..2 {
            pickle.push(0x86);
            let can_be_left_out = !is_usual && rng.below(10) == 0;
            put(&mut pickle, &mut number, can_be_left_out);
        }
    }
    pickle.extend(b"e.");
    pickle
}

/// Points of the usual form are read at once if their objects are memoized under the next free numbers, or not at all.
#[test]
fn the_usual_form_is_read_like_all_others() {
    let mut rng = Rng::announced();
    for _ in 0..2000 {
        let seed = rng.next_u64();
        let of = |memo| points(&mut Rng::new(seed), memo);
        // the number 0 is left free, so each point is read step by step
        let expected = whole(&of(Memo::From(1))).unwrap();
        for memo in [Memo::From(0), Memo::Next] {
            assert_eq!(whole(&of(memo)).as_ref(), Ok(&expected), "{seed} {memo:?}");
        }
        let pickle = of(if rng.below(2) == 0 { Memo::Nothing } else { Memo::From(0) });
        let cut = rng.below(pickle.len() as u64) as usize;
        assert!(whole(&pickle[..cut]).unwrap_err().ends_with("it ends before its opcode STOP"), "{seed}");
    }
}

#[test]
fn what_is_not_a_point_is_left_out() {
    let check = |object: &[u8], expected: &str| {
        let pickle = [b"](", object, b"U\x01zK\x01K\x02\x86\x86e."].concat();
        let expected = vec![format!("point 1: {expected}")];
        assert_eq!(
            whole(&pickle),
            Ok((vec![sample("z{}", 1000, 2.0)], expected)),
            "{}",
            object.escape_ascii()
        );
    };
    let form = "not of the form (path, (time, value))";
    for object in [&b"K\x01"[..], b")", b"K\x01K\x02\x86"] {
        check(object, form);
    }
    let of_a = &format!(r#"{form}, in "a""#);
    for object in [&b"U\x01a"[..], b"U\x01a\x85", b"U\x01aU\x01bU\x01c\x87", b"K\x01U\x01aK\x01\x86\x86"] {
        check(object, of_a);
    }
    check(b"U\x01aK\x01U\x01x\x86\x86", of_a);
    check(b"U\x01aU\x01xK\x01\x86\x86", of_a);
    check(b"U\x01aK\x01K\x02K\x03\x87\x86", of_a);
    check(b"U\x01aK\x01N\x86\x86", of_a);
    check(b"U\x01aNK\x01\x86\x86", of_a);
    check(b"N", form);
    check(b"U\x00K\x01K\x02\x86\x86", "no metric name");
    check(b"U\x03a;bK\x01K\x02\x86\x86", r#"tag "b" is not of the form name=value, in "a;b""#);
    check(b"U\x01aK\x01G\x7f\xf8\0\0\0\0\0\0\x86\x86", r#"the value is not a number, in "a""#);
    check(b"U\x01aG\x7f\xf8\0\0\0\0\0\0K\x01\x86\x86", of_a);
    check(b"]", form);
    check(b"](U\x01ae", of_a);
    check(b"](K\x01K\x02e", form);
    check(b"](U\x01a](K\x01K\x02K\x03ee", of_a);
    check(b"](U\x01a](K\x01K\x02eNe", of_a);
    check(b"](U\x01a](K\x01Nee", of_a);
    check(b"]U\x01aa](K\x01eaU\x01ba", of_a);
    check(b"](U\x01aU\x01xe", of_a);
    check(b"](U\x01a](K\x01G\x7f\xf8\0\0\0\0\0\0ee", r#"the value is not a number, in "a""#);
    // a list that contains itself
    check(b"]q\x00(U\x01ah\x00e", of_a);
    // the list itself, in the list
    let (samples, refused) = whole(b"]q\x00(h\x00U\x01zK\x01K\x02\x86\x86e.").unwrap();
    assert_eq!((samples.len(), refused), (1, vec![format!("point 1: {form}")]));
}

#[test]
fn other_pickles_are_refused_by_name() {
    let check = |pickle: &[u8], expected: &str| {
        let error = whole(pickle).unwrap_err();
        assert!(error.contains(expected), "{error} instead of {expected} for {}", pickle.escape_ascii());
    };
    check(b"cos\nsystem\n(S'true'\ntR.", "byte 0: opcode GLOBAL is not allowed");
    check(b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93.", "STACK_GLOBAL");
    check(b"(S'true'\nios\nsystem\n.", "INST");
    check(b"}.", "EMPTY_DICT");
    check(b"](](e.", "not a list of points");
    check(b"](ll.", "LIST needs more");
    check(b"\xff.", "unknown opcode 0xff");
    check(b"\x80\x06].", "protocol 6 is not supported");
    check(b"K\x01.", "not a list of points");
    check(b"(l(l.", "not a list of points");
    check(b"]].", "not a list of points");
    check(b"((lt.", "not a list of points");
    check(b"])K\x01a.", "APPEND needs more");
    check(b".", "not a list of points");
    check(b"", "ends before");
    check(b"]", "ends before");
    check(b"]X\xff\xff\xff\xffa.", "ends before");
    check(b"]\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.", "ends before");
    check(b"]a.", "APPEND needs more");
    check(b"K\x01K\x01a.", "APPEND needs more");
    check(b"]e.", "APPENDS needs more");
    check(b"(e.", "APPENDS needs more");
    check(b"]t.", "TUPLE needs more");
    check(b"]K\x01\x87.", "TUPLE3 needs more");
    check(b"q\x00.", "PUT needs more");
    check(b"]h\x00.", "the number of a repeated object is not valid");
    check(b"]q\x05h\x04.", "the number of a repeated object is not valid");
    check(b"]r\xff\xff\xff\xff.", "more than 262144 repeated objects");
    check(b"]p99999999999999999999\n.", "the number of a repeated object is not valid");
    check(b"]\x8a\x20", "ends before");
    check(&[&b"]\x8a\x11"[..], &[1; 17], b"."].concat(), "more than 128 bits");
    check(b"]L1x\n.", "a number is not valid");
    check(b"]Sabc\n.", "a string is not valid");
    check(b"]S'\n.", "a string is not valid");
    check(b"]S'\\q'\n.", "a string is not valid");
    check(b"]S'\\x4'\n.", "a string is not valid");
    check(b"]V\\ud800\n.", "a string is not valid");
}

/// Each of these would take gigabytes in a general interpreter.
#[test]
fn bombs_take_bounded_memory() {
    let account = Account::new("bombs", 64 << 20);
    let run = |pickle: &[u8]| {
        let (mut decoder, mut batch) = (<Decoder as crate::Decoder>::new(1), Batch::default());
        let mut memory = account.reserve(0).unwrap();
        let body = Body { encoding: Encoding::Identity, bytes: pickle };
        let error =
            crate::Decoder::decode(&mut decoder, Request { format: WHOLE, body }, &mut batch, &mut memory);
        assert!(memory.bytes() < 48 << 20, "{} bytes", memory.bytes());
        error.unwrap_err().to_string()
    };
    let frame = FRAME_BYTES_MAX;
    let marks = vec![b'('; frame];
    assert!(run(&marks).contains("objects on the stack"));
    let memoized = [&b"]"[..], &vec![0x94; frame]].concat();
    assert!(run(&memoized).contains("repeated objects"));
    // a long path, repeated with two bytes for each point
    let path = vec![b'x'; 30_000];
    let repeated = b"h\x00".repeat(100_000);
    let paths =
        [&b"]("[..], b"X\x30\x75\x00\x00", &path, b"K\x01K\x02\x86\x86q\x00", &repeated, b"e."].concat();
    assert!(run(&paths).contains("bytes of paths"));
    // lists that contain each other
    assert!(run(&b"]q\x00]q\x01(h\x00h\x01e".repeat(1000)).contains("ends before"));
    assert!(run(&vec![b']'; frame]).contains("objects on the stack"));
    let lists = [&b"]"[..], &b"](]ea".repeat(frame / 5)].concat();
    assert!(run(&lists).contains("262144 lists"));
}

/// A frame of seven bytes must not cost as much work as the largest memo, because a body has thousands of frames.
#[test]
fn the_memo_grows_with_the_pickle() {
    let at = |number: u32| [b"]r", &number.to_le_bytes()[..], b"."].concat();
    assert_eq!(whole(&at(6)), Ok((vec![], vec![])), "a gap");
    for number in [7, MEMO_NUMBER_MAX] {
        let refused = whole(&at(number)).unwrap_err();
        assert!(refused.contains("the number of a repeated object"), "{refused}");
    }
}

#[test]
fn a_refused_frame_leaves_the_others() {
    let frame = |pickle: &[u8]| [&(pickle.len() as u32).to_be_bytes()[..], pickle].concat();
    let good = |name: u8| frame(&[b"](U\x01", &[name][..], b"K\x01K\x02\x86\x86e."].concat());
    // the second frame is refused after its first point
    let second = frame(b"](U\x01xK\x01K\x02\x86\x86U\x01yK\x01K\x02\x86\x86ecos\nsystem\n.");
    let body = [good(b'a'), second, good(b'b'), vec![0, 0]].concat();
    let (samples, refused) = decoded::<Decoder>(FRAMES, &body).unwrap();
    assert_eq!(samples, [sample("a{}", 1000, 2.0), sample("b{}", 1000, 2.0)]);
    assert_eq!(
        refused,
        [concat!(
            "message 2: invalid pickle at byte 21: opcode GLOBAL is not allowed in a list of points, in ",
            r#""](U\u{1}xK\u{1}K\u{2}\x86\x86U\u{1}yK\u{1}K\u{2}\x86\x86ecos\nsystem\n.""#
        )]
    );
}
