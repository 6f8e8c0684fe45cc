//! Attacks on HTTP/2.

use super::super::gauge_in_protobuf;
use super::frames::*;
use super::server;
use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};

const MIB: u64 = 1 << 20;

/// A request on a new connection is answered with a message.
pub(super) fn works(address: SocketAddr) {
    Frames::open(address, &[]).exports(1, &gauge_in_protobuf(now_ms()));
}

/// The most series of frames that a flood sends: more than fits into the buffers of the sockets.
const FLOOD: usize = 10_000;

fn rapid_reset(frames: &mut Frames) {
    let pair = |number: u32| {
        let stream = 2 * number + 1;
        [frame(HEADERS, END_HEADERS, stream, &export()), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())]
            .concat()
    };
    let _ = frames.0.write_all(&(0..2000).flat_map(pair).collect::<Vec<_>>());
    frames.closed();
}

fn endless_headers(frames: &mut Frames) {
    let _ = frames.send(HEADERS, 0, 1, &export());
    let block = fields(&[("x", &"y".repeat(100))]).repeat(100);
    let sent = frames.flood(&frame(CONTINUATION, 0, 1, &block), FLOOD);
    assert!(sent < FLOOD, "100 MB of headers were read");
    frames.closed();
}

fn endless_headers_in_empty_frames(frames: &mut Frames) {
    let _ = frames.send(HEADERS, 0, 1, &export());
    let sent = frames.flood(&frame(CONTINUATION, 0, 1, &[]).repeat(1000), FLOOD);
    assert!(sent < FLOOD, "ten million empty frames were read");
    frames.closed();
}

/// An entry of the table of headers, to which many headers refer.
fn hpack_bomb(frames: &mut Frames) {
    let mut block = export();
    block.extend([0x40, 1, b'x', 0x7f, 0x80, 0x1e]); // a field that is indexed, with a value of 3967 bytes
    block.extend(vec![b'y'; 127 + (0x1e << 7)]);
    block.extend(vec![0x80 | 62; 10_000]); // the newest entry of the table
    frames.send(HEADERS, END_HEADERS, 1, &block).unwrap();
    assert!(frames.read(HEADERS).is_none_or(|(flags, ..)| flags & END_STREAM != 0), "it was accepted");
}

/// More requests at a time than allowed, none of which ends.
fn too_many_requests(frames: &mut Frames) {
    let request = |number: u32| frame(HEADERS, END_HEADERS, 2 * number + 1, &export());
    frames.0.write_all(&(0..50).flat_map(request).collect::<Vec<_>>()).unwrap();
    let (_, stream, code) = frames.read(RST_STREAM).expect("a request is refused");
    assert!(stream > 2 * 3, "request {stream} is refused");
    assert_eq!(code, 7_u32.to_be_bytes(), "REFUSED_STREAM");
}

/// More of a body than there is room for: the message is shorter than what is sent.
fn more_than_the_window(frames: &mut Frames) {
    frames.send(HEADERS, END_HEADERS, 1, &export()).unwrap();
    let sent = frames.flood(&frame(DATA, 0, 1, &[0; 16_000]), FLOOD);
    assert!(sent < FLOOD, "160 MB were sent without a window");
    frames.closed();
}

fn empty_data(frames: &mut Frames) {
    frames.send(HEADERS, END_HEADERS, 1, &export()).unwrap();
    let sent = frames.flood(&frame(DATA, 0, 1, &[]).repeat(1000), FLOOD);
    assert!(sent < FLOOD, "ten million empty frames were read");
    frames.closed();
}

/// Pings whose answers are not read.
fn pings(frames: &mut Frames) {
    let sent = frames.flood(&frame(PING, 0, 0, &[7; 8]).repeat(1000), FLOOD);
    assert!(sent < FLOOD, "170 MB of pings were answered");
}

/// Answers to pings that the server never sent. They are ignored, and not logged.
fn pongs(frames: &mut Frames) {
    frames.0.write_all(&frame(PING, ACK, 0, &[7; 8]).repeat(100_000)).unwrap();
}

/// Settings whose acknowledgments are not read.
fn settings(frames: &mut Frames) {
    let sent = frames.flood(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]).repeat(1000), FLOOD);
    assert!(sent < FLOOD, "150 MB of settings were acknowledged");
}

type Attack = fn(&mut Frames);

#[test]
fn attacks_leave_the_server_within_its_memory() {
    let (mut server, address) = server("");
    works(address);
    let before = server.peak_bytes();
    let attacks: [(&str, Attack); 10] = [
        ("rapid reset", rapid_reset),
        ("endless headers", endless_headers),
        ("empty frames of headers", endless_headers_in_empty_frames),
        ("HPACK bomb", hpack_bomb),
        ("too many requests", too_many_requests),
        ("more than the window", more_than_the_window),
        ("empty data", empty_data),
        ("pings", pings),
        ("pongs", pongs),
        ("settings", settings),
    ];
    let mut open = Vec::new();
    for (name, attack) in attacks {
        eprintln!("{name}");
        let mut frames = Frames::open(address, &[]);
        attack(&mut frames);
        open.push(frames);
        works(address);
    }
    drop(open);
    let grown = server.peak_bytes().saturating_sub(before) / MIB;
    eprintln!("memory has grown by {grown} MiB");
    assert!(grown < 16, "memory has grown by {grown} MiB");
    server.wait_until_zero("floodmark_grpc_connections");
    server.wait_until_zero("floodmark_write_inflight_bytes");
    assert!(server.is_running());
}

/// Each connection stays within its limits: it has as many requests as it may, whose bodies stop before their end, and large
/// headers.
#[test]
fn many_connections_leave_room_for_other_senders() {
    const MEMORY: u64 = 64;
    let options = Options::default().arg("--otlp-grpc=127.0.0.1:0");
    let server = Server::start(options.arg("--memory").arg(&format!("{MEMORY}MiB")));
    let address = server.logged_address("grpc");
    let mut open = Vec::new();
    for round in 0..30 {
        let mut frames = Frames::open(address, &[]);
        let large = [export(), fields(&[("x", &"y".repeat(90))]).repeat(50)].concat();
        let mut bytes = Vec::new();
        for stream in (1..8).step_by(2) {
            bytes.extend(frame(HEADERS, END_HEADERS, stream, &large));
            bytes.extend(frame(DATA, 0, stream, &[&[0, 0, 16, 0, 0][..], &[0; 15_000]].concat()));
        }
        let _ = frames.0.write_all(&bytes); // may have been closed already
        open.push(frames);
        let now = now_ms();
        let body = wire::v1(&[Series::named("m").sample(now, f64::from(round))]);
        server.send(&Request::write(&body)).expect(204, &[]);
        assert_eq!(server.value("m", now), Some(f64::from(round)));
    }
    works(address);
    let open_connections = server.metric("floodmark_grpc_connections");
    assert!((1.0..=3.0).contains(&open_connections), "{open_connections} connections");
    server.assert_peak_within(MEMORY * MIB);
    drop(open);
    server.wait_until_zero("floodmark_grpc_connections");
    server.wait_until_zero("floodmark_write_inflight_bytes");
}

/// Shuts a connection down when it is dropped, so that a thread which reads from it ends.
struct ShutDown(TcpStream);

impl Drop for ShutDown {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both); // the server may have closed it
    }
}

/// Clients that send nothing, or that read nothing. The server waits up to a minute for each of them.
#[test]
fn clients_that_do_nothing_are_disconnected() {
    let (server, address) = server("body_timeout = \"3s\"\n");
    let silent = TcpStream::connect(address).unwrap();
    let mut part = TcpStream::connect(address).unwrap();
    part.write_all(&PREFACE[..20]).unwrap();
    let after_preface = Frames::open(address, &[]);
    let mut in_headers = Frames::open(address, &[]);
    in_headers.send(HEADERS, 0, 1, &export()).unwrap();
    // the client has no window for the answer, and answers pings
    let mut without_window = Frames::open(address, &[(4, 0)]);
    without_window.send(HEADERS, END_HEADERS, 1, &export()).unwrap();
    let message = message(&gauge_in_protobuf(now_ms()));
    without_window.send(DATA, END_STREAM, 1, &message).unwrap();
    // the body does not go on
    let mut in_body = Frames::open(address, &[]);
    in_body.send(HEADERS, END_HEADERS, 1, &export()).unwrap();
    in_body.send(DATA, 0, 1, &message[..10]).unwrap();
    let (flags, ..) = in_body.read(HEADERS).expect("an answer");
    assert_ne!(flags & END_STREAM, 0, "the request is refused");
    let mut unread = Frames::open(address, &[]);
    pings(&mut unread);
    let socket = without_window.0.try_clone().unwrap();
    std::thread::scope(|threads| {
        let _end = ShutDown(socket); // after a panic, too
        threads.spawn(|| {
            while let Some((flags, _, payload)) = without_window.read(PING) {
                if flags & ACK == 0 && without_window.send(PING, ACK, 0, &payload).is_err() {
                    break;
                }
            }
        });
        wait_for("the connections to end", || {
            (server.metric("floodmark_grpc_connections") == 0.0).then_some(())
        });
    });
    works(address);
    drop((silent, part, after_preface, in_headers, in_body, unread));
}
