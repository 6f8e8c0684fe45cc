//! Where carbon keeps the Whisper file of a series, below its `LOCAL_DATA_DIR`.
//!
//! | series | file |
//! | --- | --- |
//! | `servers.web1.load` | `servers/web1/load.wsp` |
//! | `disk.used;host=a` | `_tagged/` and the first digits of the name's hash: `eff/aae/disk_DOT_used;host=a.wsp` |
//! | the same, with carbon's `TAG_HASH_FILENAMES` | the whole hash instead of the name |
//!
//! Carbon and graphite-web look for both files of a series with tags.

use anyhow::{Context, ensure};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef};
use query::graphite::label_source::write_name;
use ring::digest;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const TAGGED: &str = "_tagged";

/// Carbon writes this for a dot in the name of a file with tags.
const DOT: &str = "_DOT_";

const EXTENSION: &str = ".wsp";

/// Limits that file systems have in common. A path also needs room for the directory of the files.
const FILE_NAME_BYTES_MAX: usize = 255;
const PATH_BYTES_MAX: usize = 3 << 10;

/// Limit on the bytes of a list of names, which is held in memory.
const NAMES_BYTES_MAX: u64 = 1 << 30;

/// The file of a series.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WhisperPath {
    /// The path says which series it is.
    Named(PathBuf),
    /// The path has only the hash of the name.
    Hashed(PathBuf),
}

impl WhisperPath {
    /// Returns `None` if carbon cannot have this series. `name` is its full name.
    pub(crate) fn of(labels: LabelsRef<'_>, name: &str) -> Option<Self> {
        let metric = labels.get(METRIC_NAME)?;
        if labels.iter().count() == 1 {
            let is_other = name.starts_with("_tagged.");
            return path(&name.replace('.', "/"))
                .filter(|_| !name.contains('/') && !is_other)
                .map(Self::Named);
        }
        if !is_possible(metric, labels, name) {
            return None;
        }
        let hash = hash(name);
        let dir = format!("{TAGGED}/{}/{}", &hash[..3], &hash[3..6]);
        let shown = name.replace('.', DOT);
        let named = (shown.replace(DOT, ".") == name).then(|| path(&format!("{dir}/{shown}"))).flatten();
        Some(named.map_or_else(|| Self::Hashed(format!("{dir}/{hash}{EXTENSION}").into()), Self::Named))
    }
}

/// Whether carbon reads the full name of a series with tags as these tags.
fn is_possible(metric: &str, labels: LabelsRef<'_>, name: &str) -> bool {
    let is_metric = !metric.is_empty() && !metric.starts_with('~') && !metric.contains(';');
    let is_tag = |(tag, value): (&str, &str)| {
        tag == METRIC_NAME
            || tag != "name"
                && !tag.contains([';', '!', '^', '='])
                && !value.starts_with('~')
                && !value.contains(';')
    };
    // carbon takes names that end like this for those of OpenMetrics
    let is_open_metrics = name.contains('{') && name.ends_with("\"}");
    !is_open_metrics && is_metric && labels.iter().all(is_tag)
}

/// The path of a file with this name. Returns `None` if file systems do not have such a path.
fn path(name: &str) -> Option<PathBuf> {
    let is_part = |part: &str| {
        !part.is_empty() && part.len() + EXTENSION.len() <= FILE_NAME_BYTES_MAX && !part.contains('\0')
    };
    let is_path = name.len() <= PATH_BYTES_MAX && name.split('/').all(is_part);
    is_path.then(|| format!("{name}{EXTENSION}").into())
}

/// SHA-256 of a full name, in hexadecimal digits.
fn hash(name: &str) -> String {
    digest::digest(&digest::SHA256, name.as_bytes()).as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Names of series by their hashes, for files that have only the hash.
#[derive(Debug, Default)]
pub(crate) struct TaggedNames(HashMap<String, Labels>);

impl TaggedNames {
    /// Reads a list of names: the answer of graphite-web's `/tags/findSeries`.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut text = Vec::new();
        File::open(path)?.take(NAMES_BYTES_MAX + 1).read_to_end(&mut text)?;
        ensure!(text.len() as u64 <= NAMES_BYTES_MAX, "the list has more than {} MiB", NAMES_BYTES_MAX >> 20);
        let names: Vec<String> = serde_json::from_slice(&text)
            .context("the list is not a JSON array of names, like [\"disk;host=a\"]")?;
        let mut found = HashMap::with_capacity(names.len());
        for name in &names {
            let labels =
                parse(name).map_err(anyhow::Error::msg).with_context(|| format!("the name {name:?}"))?;
            let mut full = String::new();
            write_name(&mut full, labels.as_ref());
            found.insert(hash(&full), labels);
        }
        Ok(Self(found))
    }

    /// The labels of the series in a file. `parents` are the directories above it.
    pub(crate) fn labels(&self, parents: &[String], stem: &str) -> Result<Labels, String> {
        match parents {
            [root, _, _, rest @ ..] if root == TAGGED => {
                if is_hash(stem) {
                    let labels = self.0.get(stem).cloned();
                    return labels.ok_or_else(|| "named by a hash (--tagged-names names them)".into());
                }
                // a slash in a name makes a directory
                let rest = rest.iter().map(String::as_str).chain([stem]);
                parse(&rest.collect::<Vec<_>>().join("/").replace(DOT, "."))
            }
            _ => {
                let mut builder = LabelsBuilder::new();
                let parts = parents.iter().map(String::as_str).chain([stem]);
                builder.push(METRIC_NAME, &parts.collect::<Vec<_>>().join("."));
                builder.build_series().map_err(|refusal| refusal.to_string())
            }
        }
    }
}

fn is_hash(stem: &str) -> bool {
    stem.len() == 64 && stem.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Parses the full name of a series.
fn parse(name: &str) -> Result<Labels, String> {
    let mut builder = LabelsBuilder::new();
    let mut parts = name.split(';');
    builder.push(METRIC_NAME, parts.next().unwrap_or_default());
    for tag in parts {
        let (name, value) = tag.split_once('=').ok_or("a tag is not of the form name=value")?;
        builder.push(name, value);
    }
    builder.build_series().map_err(|refusal| refusal.to_string())
}

#[cfg(test)]
mod tests;
