//! `/metrics/find`: the nodes that a pattern selects, in the formats of graphite-web, and in the one of go-carbon for
//! carbonapi.
//!
//! The parameters `from` and `until` are ignored, as by graphite-web over Whisper files.

use super::answer::{Callback, flag, integer};
use super::ask::Ask;
use super::{msgpack, pickle, protobuf};
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::{AnswerSize, Json};
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::http::queries::admission::check_canceled;
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::label_queries::{FoundNode, NodeOrder, Nodes};
use crate::settings::Settings;
use axum::extract::State;
use axum::response::Response;
use paths::{Pattern, PatternError};
use query::Interrupt as _;
use std::borrow::Cow;
use std::sync::Arc;
use stdx::budget::IncrementalReservation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    TreeJson,
    NodeList,
    Json,
    Completer,
    Pickle,
    MsgPack,
    Protobuf,
}

/// Number of nodes between two checks for cancellation.
const CHECK_NODES: usize = 1_000;

/// A list of names begins with room for this many.
const NAMES_MIN: usize = 64;

#[derive(Debug, Clone)]
struct Request {
    query: Arc<str>,
    format: Format,
    callback: Callback,
    has_wildcards: bool,
    leaves_only: bool,
    position: i64,
    until_s: i64,
}

pub(super) async fn find(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let request = Request::of(&params, app.node.settings(), app.node.reads().clock.now_ms() / 1000)?;
    let ask = Ask { tenant, path: "/metrics/find", text: Arc::clone(&request.query), peer };
    let answer = ask.answer(&app, request.content_type(), move |asked, json| {
        let query = request.expanded_query();
        let queries = asked.path_queries();
        let order = match request.format {
            Format::Json => NodeOrder::ByPath,
            _ => NodeOrder::ByName,
        };
        let nodes = queries.nodes(&mut std::iter::once(asked.parse(&query)), order)?;
        request.answer(asked.turn, &nodes, json)
    });
    answer.await
}

pub(super) fn invalid(error: &PatternError) -> ApiError {
    ApiError::bad_data(format!("Invalid value for param query: {error}"))
}

impl Request {
    fn of(params: &Params, settings: &Settings, now_s: i64) -> Result<Self, TextError> {
        let query: Arc<str> = match (params.last("query"), params.all("query").next()) {
            (Some(query), _) => query.into(),
            (None, Some(_)) => return Err(ApiError::bad_data("Required parameter 'query' is empty").into()),
            (None, None) => return Err(ApiError::bad_data("Missing required parameter 'query'").into()),
        };
        // a query that is too long is refused before it is copied, and before the request waits for its turn
        Pattern::check_length(&query).map_err(|error| invalid(&error))?;
        let format = match params.last("format").unwrap_or("treejson") {
            "treejson" => Format::TreeJson,
            "nodelist" => Format::NodeList,
            "json" => Format::Json,
            "completer" => Format::Completer,
            "pickle" => Format::Pickle,
            "msgpack" => Format::MsgPack,
            "protobuf" | "protobuf3" | "carbonapi_v2_pb" => Format::Protobuf,
            _ => return Err(ApiError::bad_data("Invalid value for 'format' parameter").into()),
        };
        let mut request = Self {
            query,
            format,
            callback: Callback::of(params, settings)?,
            has_wildcards: flag(params, "wildcards")?,
            leaves_only: flag(params, "leavesOnly")?,
            position: integer(params, "position")?.unwrap_or(-1),
            until_s: now_s,
        };
        if format == Format::Completer && flag(params, "automatic_variants")? {
            request.query = with_variants(&request.query).into();
        }
        Ok(request)
    }

    const fn content_type(&self) -> &'static str {
        match self.format {
            Format::Pickle => "application/pickle",
            Format::MsgPack => "application/x-msgpack",
            Format::Protobuf => "application/x-protobuf",
            _ => self.callback.content_type(),
        }
    }

    /// The pattern to search for. For a completer, the last level and each level before two dots end with `*`.
    fn expanded_query(&self) -> String {
        if self.format != Format::Completer {
            return self.query.to_string();
        }
        let mut query = self.query.replace("..", "*.");
        if !query.ends_with('*') {
            query.push('*');
        }
        query
    }

    fn answer(&self, turn: &Turn, nodes: &Nodes, json: &mut Json) -> Result<(), ApiError> {
        check_canceled(turn)?;
        json.warn(&nodes.left_out);
        let is_wanted = |node: &FoundNode<'_>| node.is_leaf || !self.leaves_only;
        let mut wanted = || until(|| turn.is_set(), nodes.iter().filter(is_wanted));
        match self.format {
            Format::Pickle => pickle::nodes(json, &mut wanted(), self.until_s),
            Format::MsgPack => msgpack::nodes(json, wanted().count(), &mut wanted(), self.until_s),
            Format::Protobuf => protobuf::nodes(json, &self.query, &mut wanted()),
            _ => {
                self.callback.begin(json);
                match self.format {
                    Format::TreeJson => self.tree(json, &mut wanted),
                    Format::NodeList => self.names_at(turn, json, &mut wanted())?,
                    Format::Completer => self.completions(json, &mut wanted()),
                    _ => self.details(json, &mut wanted()),
                }
                self.callback.end(json);
            }
        }
        check_canceled(turn)
    }

    /// Writes branches before leaves. Of nodes with the same name, only one is written, because the name is all that the
    /// reader of a tree sees. It is a branch if there is one, so that the reader can go on.
    fn tree<'n, I: Iterator<Item = FoundNode<'n>>>(&self, json: &mut Json, nodes: &mut dyn FnMut() -> I) {
        let base = self.query.rfind('.').map_or("", |dot| &self.query[..=dot]);
        let mut count = 0;
        json.raw("[");
        if self.has_wildcards && nodes().nth(1).is_some() {
            tree_node(json, "*", base, "*", nodes().all(|node| node.is_leaf));
            count += 1;
        }
        for is_leaf in [false, true] {
            let mut last = None;
            for node in nodes() {
                let name = node.name();
                if last.replace(name) == Some(name) || node.is_leaf != is_leaf {
                    continue;
                }
                json.comma(count);
                count += 1;
                tree_node(json, &unquoted(name), base, name, is_leaf);
            }
        }
        json.raw("]");
    }

    /// Writes the distinct texts that the paths have at one level, counted from the end if negative.
    fn names_at<'n>(
        &self,
        turn: &Turn,
        json: &mut Json,
        nodes: &mut dyn Iterator<Item = FoundNode<'n>>,
    ) -> Result<(), ApiError> {
        let mut memory = turn.limits.answers.reserve(0).expect("BUG: cannot reserve 0 bytes");
        let names = self.sorted_names(nodes, &mut IncrementalReservation::new(&mut memory))?;
        json.raw(r#"{"nodes":"#);
        json.strings(&names);
        json.raw("}");
        Ok(())
    }

    fn sorted_names<'n>(
        &self,
        nodes: &mut dyn Iterator<Item = FoundNode<'n>>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<Vec<&'n str>, ApiError> {
        let mut names: Vec<&str> = Vec::new();
        for node in nodes {
            let levels = node.path.split('.');
            let name = match usize::try_from(self.position) {
                Ok(position) => levels.clone().nth(position),
                Err(_) => levels.clone().rev().nth(self.position.unsigned_abs() as usize - 1),
            };
            let none = || ApiError::bad_data(format!("Invalid position: {} has no such level", node.path));
            let name = name.ok_or_else(none)?;
            // nodes are sorted by the last level, so its repetitions are adjacent
            if names.last() == Some(&name) {
                continue;
            }
            if names.len() == names.capacity() {
                tidy(&mut names);
                if names.len() >= names.capacity() / 2 {
                    let more = names.len().max(NAMES_MIN);
                    memory.room(&mut names, more).map_err(|full| AnswerSize(full.into()))?;
                }
            }
            names.push(name);
        }
        tidy(&mut names);
        Ok(names)
    }

    fn completions<'n>(&self, json: &mut Json, nodes: &mut dyn Iterator<Item = FoundNode<'n>>) {
        let mut count = 0;
        json.raw(r#"{"metrics":["#);
        for node in nodes {
            json.comma(count);
            count += 1;
            json.raw(r#"{"path":"#);
            match node.is_leaf {
                true => json.string(node.path),
                false => json.string(&format!("{}.", node.path)),
            }
            json.raw(r#","name":"#);
            json.string(node.name());
            json.raw(if node.is_leaf { r#","is_leaf":"1"}"# } else { r#","is_leaf":"0"}"# });
        }
        if self.has_wildcards && count > 1 {
            json.raw(r#",{"name":"*"}"#);
        }
        json.raw("]}");
    }

    fn details<'n>(&self, json: &mut Json, nodes: &mut dyn Iterator<Item = FoundNode<'n>>) {
        json.raw("[");
        for (i, node) in nodes.enumerate() {
            json.comma(i);
            json.raw(r#"{"path":"#);
            json.string(node.path);
            if node.is_leaf {
                json.raw(r#","is_leaf":true,"intervals":[{"start":0,"end":"#);
                json.integer(self.until_s);
                json.raw("}]}");
            } else {
                json.raw(r#","is_leaf":false}"#);
            }
        }
        json.raw("]");
    }
}

/// Puts braces around the levels of a query that are lists of names: `a,b` becomes `{a,b}`.
fn with_variants(query: &str) -> String {
    let mut out = String::with_capacity(query.len());
    for (number, part) in query.split('.').enumerate() {
        out.push_str(if number > 0 { "." } else { "" });
        match part.contains(',') && !part.contains('{') {
            true => out.extend(["{", part, "}"]),
            false => out.push_str(part),
        }
    }
    out
}

/// Sorts names, and removes repetitions.
fn tidy(names: &mut Vec<&str>) {
    names.sort_unstable();
    names.dedup();
}

/// The nodes, until the query is canceled. What has been written of them is then discarded.
fn until<T>(is_canceled: impl Fn() -> bool, nodes: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let goes_on = move |i: usize| !i.is_multiple_of(CHECK_NODES) || !is_canceled();
    nodes.enumerate().map_while(move |(i, node)| goes_on(i).then_some(node))
}

fn tree_node(json: &mut Json, text: &str, base: &str, name: &str, is_leaf: bool) {
    let (is_leaf, is_branch) = if is_leaf { ("1", "0") } else { ("0", "1") };
    json.raw(r#"{"text":"#);
    json.string(text);
    json.raw(r#","id":"#);
    json.string(&[base, name].concat());
    json.raw(&format!(r#","allowChildren":{is_branch},"expandable":{is_branch},"leaf":{is_leaf}}}"#));
}

/// Percent-decodes a name for display, with `+` as a space. Senders escape characters that have a meaning in Graphite, such as
/// the dot (`%2E`).
fn unquoted(name: &str) -> Cow<'_, str> {
    if !name.contains(['%', '+']) {
        return Cow::Borrowed(name);
    }
    let (bytes, mut text, mut i) = (name.as_bytes(), Vec::with_capacity(name.len()), 0);
    while let Some(byte) = bytes.get(i) {
        let digits =
            bytes.get(i + 1..i + 3).filter(|two| *byte == b'%' && two.iter().all(u8::is_ascii_hexdigit));
        let decoded = digits.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        i += if decoded.is_some() { 3 } else { 1 };
        text.push(decoded.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
    }
    Cow::Owned(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::budget::Account;

    #[test]
    fn lists_of_names_become_variants() {
        for (query, expected) in
            [("a,b.c", "{a,b}.c"), ("{a,b}.c,d.", "{a,b}.{c,d}."), (".a{b,c},d", ".a{b,c},d"), ("", "")]
        {
            assert_eq!(with_variants(query), expected);
        }
    }

    #[test]
    fn a_canceled_query_writes_no_further_nodes() {
        let asked = std::cell::Cell::new(0);
        let is_canceled = || asked.replace(asked.get() + 1) == 3;
        assert_eq!(until(is_canceled, 0..1_000_000).count(), 3 * CHECK_NODES);
        assert_eq!(until(|| false, 0..2_500).count(), 2_500);
        assert_eq!(until(|| true, 0..10).count(), 0);
    }

    /// The list may have a name for each series, or very few.
    #[test]
    fn the_memory_of_a_list_of_names_is_reserved() {
        let request = |position| Request {
            query: "**".into(),
            format: Format::NodeList,
            callback: Callback::NONE,
            has_wildcards: false,
            leaves_only: false,
            position,
            until_s: 0,
        };
        let paths: Vec<_> = (0..1000).map(|n| format!("{}.{n:03}.x", n % 3)).collect();
        let names = |position, bytes| {
            let account = Account::new("answers", bytes);
            let mut memory = account.reserve(0).unwrap();
            let mut nodes = paths.iter().map(|path| FoundNode { path, is_leaf: true });
            request(position)
                .sorted_names(&mut nodes, &mut IncrementalReservation::new(&mut memory))
                .map_err(|_| ())
        };
        assert_eq!(names(-1, 1 << 10), Ok(vec!["x"]));
        assert_eq!(names(0, 2 << 10), Ok(vec!["0", "1", "2"]));
        assert_eq!(names(1, 64 << 10).unwrap().len(), 1000);
        assert_eq!(names(1, 8 << 10), Err(()));
    }

    #[test]
    fn names_are_unquoted() {
        for (name, text) in [
            ("a", "a"),
            ("a+b", "a b"),
            ("%2Fvar%2flog", "/var/log"),
            ("50%", "50%"),
            ("%2", "%2"),
            ("%zz%+1", "%zz% 1"),
            ("%C3%A4%ff", "ä\u{fffd}"),
        ] {
            assert_eq!(unquoted(name), text, "{name:?}");
        }
    }
}
