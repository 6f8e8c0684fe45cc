//! A small blocking HTTP/1.1 client.

use super::PATIENCE;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: "GET", path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn post(path: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: "POST", body, ..Self::get(path) }
    }

    /// Remote write 1.0, with Prometheus' headers.
    pub(crate) fn write(body: &[u8]) -> Self {
        Self::post("/api/v1/write", body.to_vec())
            .header("Content-Encoding", "snappy")
            .header("Content-Type", "application/x-protobuf")
            .header("X-Prometheus-Remote-Write-Version", "0.1.0")
    }

    pub(crate) fn write_v2(body: &[u8]) -> Self {
        Self::post("/api/v1/write", body.to_vec())
            .header("Content-Encoding", "snappy")
            .header("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
            .header("X-Prometheus-Remote-Write-Version", "2.0.0")
    }

    pub(crate) fn ask(path: &str, params: &[(&str, &str)]) -> Self {
        match params.is_empty() {
            true => Self::get(path),
            false => Self::get(format!("{path}?{}", encoded(params))),
        }
    }

    pub(crate) fn form(path: &str, params: &[(&str, &str)]) -> Self {
        let form = Self::post(path, encoded(params).into_bytes());
        form.header("Content-Type", "application/x-www-form-urlencoded")
    }

    /// Sets a header. Headers with the same name are replaced.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.and_header(name, value)
    }

    /// Adds a header, even if there is one with the same name.
    pub(crate) fn and_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn tenant(self, tenant: &str) -> Self {
        self.header("X-Scope-OrgID", tenant)
    }

    /// True for the paths to which samples are sent. Errors are plain text on these paths, and JSON on all
    /// others.
    pub(crate) fn is_write(&self) -> bool {
        let path = self.path.split('?').next().unwrap_or_default();
        ["/api/v1/write", "/api/v1/push", "/api/prom/push", "/api/v1/graphite"].contains(&path)
            || path.starts_with("/api/v1/import")
            || path.starts_with("/metrics/job")
    }

    pub(crate) fn path_is(&self, path: &str) -> bool {
        self.path.split('?').next() == Some(path)
    }

    /// True for paths of InfluxDB 1, whose errors are JSON of their own form.
    pub(crate) fn is_influx(&self) -> bool {
        self.path.starts_with("/write")
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    pub(crate) fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    /// Returns everything before the body. `Content-Length` is added if neither it nor `Transfer-Encoding`
    /// was set.
    pub(crate) fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("Host: localhost\r\n");
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let framed =
            |name: &str| ["content-length", "transfer-encoding"].contains(&&*name.to_ascii_lowercase());
        if ["POST", "PUT"].contains(&self.method) && !self.headers.iter().any(|(n, _)| framed(n)) {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head + "\r\n"
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head().as_bytes(), &self.body].concat()
    }
}

pub(crate) fn encoded(params: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(params).finish()
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("no JSON ({e}) in {} {}", self.status, self.text()))
    }

    /// Panics unless the status is `status` and the text contains all of `mentions`.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16, mentions: &[&str]) -> &Self {
        let text = self.text();
        assert_eq!(self.status, status, "{text}");
        for mention in mentions {
            assert!(text.contains(mention), "{mention:?} is not in: {text}");
        }
        self
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reader = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    pub(crate) fn send(&mut self, request: &Request) -> io::Result<Reply> {
        self.send_bytes(&request.bytes())?;
        self.reply()
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.reader)
    }
}

impl Reply {
    pub(crate) fn read(reader: &mut impl BufRead) -> io::Result<Self> {
        let first = line(reader)?;
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.ok_or_else(|| bad(format!("no status in {first:?}")))?;
        let mut reply = Self { status, headers: Vec::new(), body: Vec::new() };
        loop {
            let line = line(reader)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad(format!("no header: {line:?}")))?;
            reply.headers.push((name.to_ascii_lowercase(), value.trim().into()));
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            chunks(reader, &mut reply.body)?;
        } else if let Some(length) = reply.header("content-length") {
            let length = length.parse().map_err(|_| bad(format!("content-length {length:?}")))?;
            reply.body.resize(length, 0);
            reader.read_exact(&mut reply.body)?;
        }
        Ok(reply)
    }
}

fn chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let length = line(reader)?;
        let length =
            usize::from_str_radix(&length, 16).map_err(|_| bad(format!("chunk length {length:?}")))?;
        let from = body.len();
        body.resize(from + length, 0);
        reader.read_exact(&mut body[from..])?;
        line(reader)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).into())
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(crate) fn once(address: SocketAddr, request: &Request) -> io::Result<Reply> {
    Connection::open(address)?.send(request)
}
