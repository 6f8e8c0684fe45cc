//! Documents speak of commands and flags that exist.

use super::Cli;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use std::collections::BTreeSet;
use std::path::Path;

const CONFIGURATION: &str = include_str!("../../../../docs/reference/configuration.md");

const BENCHMARKS: &str = include_str!("../../../../docs/benchmarks.md");
const LAB: &str = include_str!("../../../../docs/lab.md");

const DOCUMENTS: [(&str, &str); 11] = [
    ("README.md", include_str!("../../../../README.md")),
    ("bench/README.md", include_str!("../../../../bench/README.md")),
    ("benchmarks.md", BENCHMARKS),
    ("commands.md", include_str!("../../../../docs/reference/commands.md")),
    ("configuration.md", CONFIGURATION),
    ("http.md", include_str!("../../../../docs/reference/http.md")),
    ("lab.md", LAB),
    ("metrics-table.md", include_str!("../../../../docs/formats/metrics-table.md")),
    ("operating.md", include_str!("../../../../docs/operating.md")),
    ("recording.md", include_str!("../../../../docs/formats/recording.md")),
    ("sql.md", include_str!("../../../../docs/sql.md")),
];

/// Flags of other programs that documents name: Prometheus'.
const OF_OTHERS: [&str; 1] = ["enable-feature"];

/// Their flags are those of the scripts in `bench/`.
const OF_SCRIPTS: [&str; 2] = ["bench/README.md", "benchmarks.md"];

/// Lines of code in a document, with those that go on in the next joined.
fn code(text: &str) -> Vec<String> {
    let (mut lines, mut fenced, mut begun) = (Vec::new(), false, String::new());
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            match line.strip_suffix('\\') {
                Some(part) => begun += part,
                None => lines.push(std::mem::take(&mut begun) + line.trim_start()),
            }
        }
    }
    lines
}

/// The words of a shell's line, up to a comment, a pipe or the like. What a command would print is `1`.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote, mut chars) = (vec![String::new()], None, line.chars().peekable());
    while let Some(c) = chars.next() {
        let last = words.last_mut().expect("BUG: there is one");
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => last.push(c),
            ('\'' | '"', None) => quote = Some(c),
            ('$', None) if chars.peek() == Some(&'(') => {
                chars.by_ref().find(|c| *c == ')');
                last.push('1');
            }
            ('#' | '|' | '>' | '&' | ';', None) => break,
            (' ', None) if !last.is_empty() => words.push(String::new()),
            (' ', None) => {}
            (c, None) => last.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn all_flags(command: &Command, flags: &mut BTreeSet<String>) {
    flags.extend(
        command
            .get_arguments()
            .flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default())
            .map(String::from),
    );
    flags.extend(["help".into(), "version".into()]);
    command.get_subcommands().for_each(|command| all_flags(command, flags));
}

#[test]
fn commands_can_be_given_as_they_are_written() {
    let mut count = 0;
    for (name, text) in DOCUMENTS {
        for line in code(text).iter().filter(|line| line.starts_with("floodmark ")) {
            count += 1;
            if let Err(error) = Cli::try_parse_from(words(line)) {
                let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                assert!(is_help, "{name}: {line}\n{error}");
            }
        }
    }
    assert!(count > 20, "{count} commands found");
}

#[test]
fn flags_exist() {
    let mut flags = BTreeSet::new();
    all_flags(&Cli::command(), &mut flags);
    let mut unknown = BTreeSet::new();
    for (name, text) in DOCUMENTS.into_iter().filter(|(name, _)| !OF_SCRIPTS.contains(name)) {
        for span in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            for flag in span.split([' ', '=']).filter_map(|word| word.strip_prefix("--")) {
                if !flags.contains(flag) && !OF_OTHERS.contains(&flag) {
                    unknown.insert((name, flag));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn scripts_scenarios_and_flags_of_scripts_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for (name, text) in DOCUMENTS {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)));
        for word in words.map(|word| word.trim_start_matches("../").trim_end_matches('.')) {
            let named = ["bench/", "scenarios/", "scripts/"].iter().any(|folder| word.starts_with(folder));
            assert!(!named || root.join(word).exists(), "{name} names {word}");
        }
        // code in a sentence goes on in the next line
        let parts = text.split("\n\n").flat_map(|part| part.split(['`', '#']));
        for code in parts.filter(|code| code.contains(".py ")) {
            let mut words = code.split_whitespace();
            let Some(script) = words.find(|word| word.ends_with(".py")) else { continue };
            let source = std::fs::read_to_string(root.join(script)).expect(script);
            // what comes after it is for a server
            for flag in words.take_while(|word| *word != "--").filter(|word| word.starts_with("--")) {
                let flag = flag.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
                assert!(source.contains(&format!("\"{flag}\"")), "{name}: {script} has no {flag}");
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count} flags found");
}

#[test]
fn scenarios_can_be_used_as_they_are_written() {
    let mut count = 0;
    for text in [LAB, BENCHMARKS] {
        for scenario in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            lab::Scenario::parse(scenario).unwrap_or_else(|error| panic!("{error}\n{scenario}"));
            count += 1;
        }
    }
    assert_eq!(count, 2, "a small one, and that of the search for a limit");
}

#[test]
fn the_reference_has_every_flag_of_serve() {
    let serve = Cli::command().find_subcommand("serve").expect("there is such a command").clone();
    let expected: BTreeSet<_> = serve
        .get_arguments()
        .filter_map(|arg| {
            let (long, env) = (arg.get_long()?, arg.get_env()?.to_str()?);
            Some((format!("--{long} {}", arg.get_value_names()?[0]), env.to_owned()))
        })
        .collect();
    let part = CONFIGURATION.split_once("## Flags").expect("there is such a part").1;
    let rows =
        part.lines().take_while(|line| !line.starts_with("## ")).filter(|row| row.starts_with("| `--"));
    let named: BTreeSet<_> = rows
        .map(|row| {
            let spans: Vec<_> = row.split('`').skip(1).step_by(2).collect();
            (spans[0].to_owned(), spans[1].to_owned())
        })
        .collect();
    assert_eq!(named, expected, "on the left what docs/reference/configuration.md says");
}
