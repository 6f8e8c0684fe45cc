//! `/tags`: tags of series, and the series that have them. A tag is a label; the tag `name` is the metric name. Series
//! without other labels than the metric name are not tagged, so they are not listed.

use super::answer::{limit, respond};
use super::ask::Ask;
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::{AnswerSize, Json};
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::http::queries::admission::{answers_of, check_canceled};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::label_queries::{LabelQueries, LabelRequest, Limited, is_tagged};
use axum::extract::{Path, State};
use axum::response::Response;
use model::caps::{SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::METRIC_NAME;
use model::{LabelsRef, TimeRange};
use query::graphite::tag::{NAME_TAG, label_of, parse, parse_all, tag_of, write_full_name};
use query::{Allowance, Interrupt, Matcher, QueryError};
use std::collections::{BTreeMap, BTreeSet};
use stdx::budget::{Account, IncrementalReservation, Reservation};

/// Number of suggestions if the request names no limit, as in graphite-web.
const SUGGESTIONS: usize = 100;

/// Number of texts between two checks for cancellation.
const CHECK_TEXTS: usize = 1_000;

/// A request, whose expressions are not parsed yet.
#[derive(Debug)]
struct Request {
    ask: Ask,
    expressions: Vec<String>,
    /// Keeps the memory of the parameters reserved while the request waits and runs.
    params: Params,
}

impl Request {
    fn of(
        path: &'static str,
        peer: Peer,
        tenant: Result<ReadTenant, ApiError>,
        params: Params,
    ) -> Result<Self, ApiError> {
        let ReadTenant(tenant) = tenant?;
        let expressions = repeated(&params, "expr");
        let ask = Ask { tenant, path, text: expressions.join(", ").into(), peer };
        Ok(Self { ask, expressions, params })
    }

    /// Runs `work` on a query thread, with the parsed expressions.
    async fn answer(
        self,
        app: &App,
        work: impl Fn(&LabelQueries<'_>, Vec<Matcher>, &mut Json, &Turn, &mut Allowance) -> Result<(), ApiError>
        + Send
        + 'static,
    ) -> Result<Response, TextError> {
        let Self { ask, expressions, params } = self;
        let answer = ask.answer(app, "application/json", move |asked, json| {
            let _reserved = &params;
            let mut parsed = asked.allowance();
            let matchers = match expressions.is_empty() {
                true => Vec::new(),
                false => parse_all(expressions.iter().map(String::as_str), &mut parsed)
                    .map_err(ApiError::bad_data)?,
            };
            work(&asked.queries(&parsed), matchers, json, asked.turn, &mut parsed)?;
            check_canceled(asked.turn)
        });
        answer.await
    }
}

/// The values of a parameter that may be repeated, with or without brackets behind its name.
fn repeated(params: &Params, name: &str) -> Vec<String> {
    let values: Vec<_> = params.all(name).map(str::to_owned).collect();
    match values.is_empty() {
        true => params.all(&format!("{name}[]")).map(str::to_owned).collect(),
        false => values,
    }
}

pub(super) fn paths_of(params: &Params) -> Vec<String> {
    repeated(params, "path")
}

/// Lists tags.
pub(super) async fn list(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let params = params?;
    let (filter, most) = (params.last("filter").map(str::to_owned), limit(&params)?);
    let request = Request::of("/tags", peer, tenant, params)?;
    let answer = request.answer(&app, move |queries, matchers, json, turn, allowance| {
        let filter = Filter::parse(filter.as_deref(), allowance)?;
        let found = tags(queries, matchers, json)?;
        let mut memory = nothing_of(&turn.limits.answers);
        let tags = sorted_tags(&found, turn, &mut memory)?;
        let mut wanted = tags.into_iter();
        json.raw("[");
        for i in 0..most {
            let Some(tag) = filter.next(&mut wanted, |tag| *tag, turn)? else { break };
            json.comma(i);
            json.raw(r#"{"tag":"#);
            json.string(tag);
            json.raw("}");
        }
        json.raw("]");
        Ok(())
    });
    answer.await
}

/// Describes a tag: its values, each with the number of its series.
pub(super) async fn details(
    State(app): State<App>,
    Path(tag): Path<String>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let params = params?;
    let (filter, most) = (params.last("filter").map(str::to_owned), limit(&params)?);
    let request = Request::of("/tags/<tag>", peer, tenant, params)?;
    let answer = request.answer(&app, move |queries, _, json, turn, allowance| {
        let has_tag = parse(&format!("{tag}!="), allowance).map_err(ApiError::bad_data)?;
        let filter = Filter::parse(filter.as_deref(), allowance)?;
        let range = TimeRange::ALL;
        let found =
            queries.series(&LabelRequest { selectors: &[vec![has_tag]], range, limit: usize::MAX })?;
        json.warn(&found.left_out);
        let mut memory = nothing_of(&turn.limits.answers);
        let tagged = found.all.iter().map(LabelsRef::from_canonical).filter(|labels| is_tagged(*labels));
        let values = tagged.map(|labels| labels.get(label_of(&tag)).unwrap_or_default());
        let values = sorted(values, turn, &mut memory)?;
        if values.is_empty() {
            json.raw("null");
            return Ok(());
        }
        json.raw(r#"{"tag":"#);
        json.string(&tag);
        json.raw(r#","values":["#);
        let mut runs = values.chunk_by(PartialEq::eq);
        for i in 0..most {
            let Some(run) = filter.next(&mut runs, |run| run[0], turn)? else { break };
            json.comma(i);
            json.raw(r#"{"value":"#);
            json.string(run[0]);
            json.raw(r#","count":"#);
            json.integer(run.len() as i64);
            json.raw("}");
        }
        json.raw("]}");
        Ok(())
    });
    answer.await
}

/// Lists the full names of the series that pass all expressions.
pub(super) async fn find_series(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let request = Request::of("/tags/findSeries", peer, tenant, params?)?;
    if request.expressions.is_empty() {
        return Err(ApiError::bad_data("no tag expressions specified").into());
    }
    let answer = request.answer(&app, |queries, matchers, json, turn, _| {
        let found = queries.tagged_series(matchers)?;
        texts(json, turn, &found, &mut found.all.iter())
    });
    answer.await
}

/// Suggests tags of the series that pass all expressions, without the tags in these.
pub(super) async fn complete_tags(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let params = params?;
    let (prefix, most) = (params.last("tagPrefix").unwrap_or("").to_owned(), suggestions(&params)?);
    let request = Request::of("/tags/autoComplete/tags", peer, tenant, params)?;
    let answer = request.answer(&app, move |queries, matchers, json, turn, _| {
        let searched: BTreeSet<_> = matchers.iter().map(|matcher| tag_of(&matcher.name).to_owned()).collect();
        let found = tags(queries, matchers, json)?;
        let mut memory = nothing_of(&turn.limits.answers);
        let mut tags = sorted_tags(&found, turn, &mut memory)?;
        tags.retain(|tag| tag.starts_with(&prefix) && !searched.contains(*tag));
        tags.truncate(most);
        json.strings(&tags);
        Ok(())
    });
    answer.await
}

/// Suggests values of a tag, among the series that pass all expressions.
pub(super) async fn complete_values(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let params = params?;
    let tag = params.last("tag").ok_or_else(|| ApiError::bad_data("no tag specified"))?.to_owned();
    let (prefix, most) = (params.last("valuePrefix").unwrap_or("").to_owned(), suggestions(&params)?);
    let mut request = Request::of("/tags/autoComplete/values", peer, tenant, params)?;
    // this one requires a value, so the others need not
    request.expressions.push(match prefix.is_empty() {
        true => format!("{tag}!="),
        false => format!("{tag}=~^{}", escaped(&prefix)),
    });
    let answer = request.answer(&app, move |queries, matchers, json, turn, _| {
        let found = match tag.as_str() {
            // untagged series have this tag, too, but are not tagged
            NAME_TAG => queries.tagged_metrics(matchers)?,
            tag => {
                let request = LabelRequest { selectors: &[matchers], range: TimeRange::ALL, limit: most };
                queries.label_values(label_of(tag), &request)?
            }
        };
        texts(json, turn, &found, &mut found.all.iter().take(most))
    });
    answer.await
}

/// Answers with the name under which a tagged series is stored. Series need not be registered.
pub(super) async fn tag_series(
    State(app): State<App>,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let ReadTenant(tenant) = tenant?;
    let params = params?;
    let path = params.last("path").ok_or_else(|| ApiError::bad_data("no path specified"))?;
    let mut json = Json::within(&answers_of(&app, &tenant));
    json.string(&canonical(path)?);
    Ok(respond(json.finish()?, "application/json"))
}

pub(super) async fn tag_multi_series(
    State(app): State<App>,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let ReadTenant(tenant) = tenant?;
    let params = params?;
    let paths = paths_of(&params);
    if paths.is_empty() {
        return Err(ApiError::bad_data("no paths specified").into());
    }
    let names = paths.iter().map(|path| canonical(path)).collect::<Result<Vec<_>, _>>()?;
    let mut json = Json::within(&answers_of(&app, &tenant));
    json.strings(&names);
    Ok(respond(json.finish()?, "application/json"))
}

/// The labels of the tagged series that pass all matchers.
fn tags(queries: &LabelQueries<'_>, matchers: Vec<Matcher>, json: &mut Json) -> Result<Limited, ApiError> {
    let selectors: &[_] = if matchers.is_empty() { &[] } else { &[matchers] };
    let found = queries.label_names(&LabelRequest { selectors, range: TimeRange::ALL, limit: usize::MAX })?;
    json.warn(&found.left_out);
    Ok(found)
}

/// The tags of these labels, sorted.
fn sorted_tags<'f>(
    found: &'f Limited,
    turn: &Turn,
    memory: &mut Reservation,
) -> Result<Vec<&'f str>, ApiError> {
    let tag = |text| tag_of(std::str::from_utf8(text).expect("BUG: a label name is not UTF-8"));
    let mut tags = sorted(found.all.iter().map(tag), turn, memory)?;
    tags.dedup();
    // a metric name alone is not a tag
    Ok(if tags == [NAME_TAG] { Vec::new() } else { tags })
}

fn nothing_of(account: &Account) -> Reservation {
    account.reserve(0).expect("BUG: cannot reserve 0 bytes")
}

/// Sorts texts. The texts themselves are held by whoever found them; the memory of the list is reserved.
fn sorted<'t>(
    texts: impl Iterator<Item = &'t str>,
    turn: &Turn,
    memory: &mut Reservation,
) -> Result<Vec<&'t str>, ApiError> {
    let (mut all, mut memory) = (Vec::new(), IncrementalReservation::new(memory));
    for (i, text) in texts.enumerate() {
        if i.is_multiple_of(CHECK_TEXTS) {
            check_canceled(turn)?;
        }
        memory.room(&mut all, 1).map_err(|full| AnswerSize(full.into()))?;
        all.push(text);
    }
    all.sort_unstable();
    Ok(all)
}

fn texts(
    json: &mut Json,
    turn: &Turn,
    found: &Limited,
    texts: &mut dyn Iterator<Item = &[u8]>,
) -> Result<(), ApiError> {
    json.warn(&found.left_out);
    json.raw("[");
    for (i, text) in texts.enumerate() {
        if i.is_multiple_of(CHECK_TEXTS) {
            check_canceled(turn)?;
        }
        json.comma(i);
        json.string(std::str::from_utf8(text).expect("BUG: a label is not UTF-8"));
    }
    json.raw("]");
    Ok(())
}

fn suggestions(params: &Params) -> Result<usize, ApiError> {
    Ok(if params.last("limit").is_some() { limit(params)? } else { SUGGESTIONS })
}

/// Optional regular expression, anchored at the start of the text.
#[derive(Debug)]
struct Filter(Option<Matcher>);

impl Filter {
    fn parse(filter: Option<&str>, allowance: &mut Allowance) -> Result<Self, ApiError> {
        let matcher = filter.map(|filter| parse(&format!("filter=~{filter}"), allowance)).transpose();
        matcher.map(Self).map_err(|error| ApiError::bad_data(format!("Invalid filter: {error}")))
    }

    /// The next item whose text passes. One test of a long text may take a tenth of a second, so this asks before each one
    /// whether the query is canceled.
    fn next<T>(
        &self,
        items: &mut impl Iterator<Item = T>,
        text_of: impl Fn(&T) -> &str,
        canceled: &dyn Interrupt,
    ) -> Result<Option<T>, ApiError> {
        for item in items {
            if canceled.is_set() {
                return Err(QueryError::Canceled.into());
            }
            if self.0.as_ref().is_none_or(|matcher| matcher.matches(text_of(&item))) {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }
}

fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(2 * text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The name of a series with its tags in order.
fn canonical(path: &str) -> Result<String, ApiError> {
    Ok(Named::parse(path)?.canonical())
}

/// The name of a series, and its tags in order.
#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    pub(super) tags: BTreeMap<&'a str, &'a str>,
}

impl<'a> Named<'a> {
    /// Of several values of a tag, the last one counts, and the name takes the place of a tag `name`, as in carbon. A path that no series
    /// can have is an error: it would take much more memory than its text.
    pub(super) fn parse(path: &'a str) -> Result<Self, ApiError> {
        let shown = &path[..path.floor_char_boundary(1_000)];
        let invalid = |why: &str| ApiError::bad_data(format!("Invalid path {shown:?}: {why}"));
        if path.len() > SERIES_LABEL_BYTES_MAX {
            return Err(invalid(&format!(
                "it has {} bytes, the limit is {SERIES_LABEL_BYTES_MAX}",
                path.len()
            )));
        }
        let mut parts = path.split(';');
        let name = parts.next().filter(|name| !name.is_empty()).ok_or_else(|| invalid("it has no name"))?;
        let mut tags = BTreeMap::new();
        for part in parts {
            let (tag, value) = part.split_once('=').ok_or_else(|| invalid("a tag has no value"))?;
            if tag.is_empty() || value.is_empty() {
                return Err(invalid("a tag or its value is empty"));
            }
            if tags.len() + 1 == SERIES_LABELS_MAX {
                return Err(invalid(&format!("it has more than {} tags", SERIES_LABELS_MAX - 1)));
            }
            if tag == METRIC_NAME {
                return Err(invalid(&format!("a tag cannot be called {tag}")));
            }
            if tag != NAME_TAG {
                tags.insert(tag, value);
            }
        }
        Ok(Self { name, tags })
    }

    /// The name with its tags in order.
    pub(super) fn canonical(&self) -> String {
        let mut full = String::new();
        write_full_name(&mut full, self.name, self.tags.iter().map(|(tag, value)| (*tag, *value)));
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An interrupt that is set from question number `last` on.
    #[derive(Debug)]
    struct Questions {
        asked: AtomicUsize,
        last: usize,
    }

    impl Interrupt for Questions {
        fn is_set(&self) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed) + 1 >= self.last
        }
    }

    #[test]
    fn a_filter_tests_no_text_of_a_canceled_query() {
        let filter = Filter::parse(Some("[ab]*c"), &mut Allowance::new(16 << 20)).unwrap();
        let canceled = Questions { asked: AtomicUsize::new(0), last: 8 };
        let texts = ["ab", "abc", "b", "c", "a", "b", "a", "b", "c"];
        let mut rest = texts.iter();
        let mut next = || filter.next(&mut rest, |text| text, &canceled);
        assert_eq!(next().unwrap(), Some(&"abc"));
        assert_eq!(next().unwrap(), Some(&"c"));
        assert!(next().is_err());
        assert_eq!((canceled.asked.into_inner(), rest.len()), (8, 1));
        let all = Filter::parse(None, &mut Allowance::new(1 << 20)).unwrap();
        let canceled = Questions { asked: AtomicUsize::new(0), last: usize::MAX };
        assert_eq!(all.next(&mut texts.iter(), |text| text, &canceled).unwrap(), Some(&"ab"));
        assert_eq!(all.next(&mut [""; 0].iter(), |text| text, &canceled).unwrap(), None);
    }

    #[test]
    fn paths_are_brought_into_order() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(canonical(path).ok().as_deref(), expected, "{path}");
        };
        check("a.b", Some("a.b"));
        check("a;z=1;b=x=y", Some("a;b=x=y;z=1"));
        check("a;dc=b;dc1=a", Some("a;dc1=a;dc=b"));
        check("", None);
        check(";a=b", None);
        check("a;b", None);
        check("a;b=", None);
        check("a;=b", None);
        check("a;b=1;b=2", Some("a;b=2"));
        check("a;name=b", Some("a"));
        // a series has at most 128 labels, with its name
        let tags = |count: usize| (100..100 + count).map(|i| format!(";t{i}=v")).collect::<String>();
        check(&format!("a{}", tags(127)), Some(&format!("a{}", tags(127))));
        check(&format!("a{}", tags(128)), None);
        let long = "a".repeat(SERIES_LABEL_BYTES_MAX);
        check(&long, Some(&long));
        let error = format!("{:?}", canonical(&format!("{long}a")).unwrap_err());
        assert!(error.contains("it has 65537 bytes, the limit is 65536") && error.len() < 2_000, "{error}");
    }
}
