//! Code blocks of the documentation, so that tests run exactly what a page shows.

use super::programs::cache;
use crate::reference::root;
use std::path::Path;
use std::process::Command;

#[derive(Debug)]
struct Block {
    heading: String,
    language: String,
    text: String,
}

/// The fenced code blocks of a page.
#[derive(Debug)]
pub(crate) struct Page {
    name: String,
    blocks: Vec<Block>,
}

impl Page {
    /// Reads a page. `name` is its path in the repository, such as `docs/influx.md`.
    pub(crate) fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (mut heading, mut open, mut blocks) = (String::new(), None::<Block>, Vec::new());
        for line in text.lines() {
            match (&mut open, line.strip_prefix("```")) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, Some(language)) => {
                    let (heading, language) = (heading.clone(), language.to_owned());
                    open = Some(Block { heading, language, text: String::new() });
                }
                (None, None) if line.starts_with('#') => {
                    heading = line.trim_start_matches('#').trim().to_owned();
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{name}: a code block has no end");
        Self { name: name.into(), blocks }
    }

    /// Returns all blocks in a language.
    pub(crate) fn all(&self, language: &str) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter(move |block| block.language == language).map(|block| &*block.text)
    }

    /// Returns the only block in a language below a heading.
    #[track_caller]
    pub(crate) fn block(&self, heading: &str, language: &str) -> &str {
        let mut found =
            self.blocks.iter().filter(|block| block.heading == heading && block.language == language);
        let block = found.next().unwrap_or_else(|| panic!("{}: no {language} below {heading}", self.name));
        assert!(found.next().is_none(), "{}: more than one {language} below {heading}", self.name);
        &block.text
    }
}

/// Replaces what a page names, such as an address, by what the test has. Each name must occur.
#[track_caller]
pub(crate) fn with(text: &str, pairs: &[(&str, String)]) -> String {
    for (name, _) in pairs {
        assert!(text.contains(name), "no {name} in:\n{text}");
    }
    // in one pass, because a port of a test may begin with a port of the page
    let (mut out, mut rest) = (String::new(), text);
    while let Some(next) = rest.chars().next() {
        if let Some((name, value)) = pairs.iter().find(|(name, _)| rest.starts_with(name)) {
            out.push_str(value);
            rest = &rest[name.len()..];
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// Prepares to run a script with `sh` in a folder. It finds the programs of the tests first.
pub(crate) fn shell(script: &str, dir: &Path) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [cache().join("bin"), cache().join("py/bin")];
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new("sh");
    command.current_dir(dir).env("PATH", path).args(["-c", &format!("set -eu\n{script}")]);
    command
}

/// Runs a script, and returns what it wrote. Panics if it fails.
#[track_caller]
pub(crate) fn run(script: &str, dir: &Path) -> String {
    let ended = shell(script, dir).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{script}\n{text}");
    text
}
