//! Checks that the documents use only commands and flags that exist, and that the help texts are complete.

use super::Cli;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use expect_test::expect;
use server::settings::SETTINGS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const BENCHMARKS: &str = include_str!("../../../../docs/benchmarks.md");
const LAB: &str = include_str!("../../../../docs/lab.md");

const DOCUMENTS: [(&str, &str); 16] = [
    ("README.md", include_str!("../../../../README.md")),
    ("bench/README.md", include_str!("../../../../bench/README.md")),
    ("benchmarks.md", BENCHMARKS),
    ("commands.md", include_str!("../../../../docs/reference/commands.md")),
    ("configuration.md", include_str!("../../../../docs/reference/configuration.md")),
    ("formats.md", include_str!("../../../../docs/formats/README.md")),
    ("http.md", include_str!("../../../../docs/reference/http.md")),
    ("ingest-rules.md", include_str!("../../../../docs/ingest-rules.md")),
    ("lab.md", LAB),
    ("metrics-table.md", include_str!("../../../../docs/formats/metrics-table.md")),
    ("operating.md", include_str!("../../../../docs/operating.md")),
    ("recording.md", include_str!("../../../../docs/formats/recording.md")),
    ("result.md", include_str!("../../../../docs/reference/result.md")),
    ("scenario.md", include_str!("../../../../docs/reference/scenario.md")),
    ("sql.md", include_str!("../../../../docs/sql.md")),
    ("upgrading.md", include_str!("../../../../docs/upgrading.md")),
];

/// Flags of Prometheus that occur in the documents.
const OF_OTHERS: [&str; 1] = ["enable-feature"];

/// Pages that also show flags of the scripts in `bench/`.
const OF_SCRIPTS: [&str; 2] = ["bench/README.md", "benchmarks.md"];

/// Returns the lines of code in a document. A line that ends with a backslash is joined with the next one.
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

/// Splits a shell command into words. It ends at a comment, a pipe or the like. A substitution `$(…)` is
/// replaced with `1`.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote, mut chars) = (vec![String::new()], None, line.chars().peekable());
    while let Some(c) = chars.next() {
        let last = words.last_mut().expect("BUG: no word was begun");
        match (c, quote) {
            ('$', None | Some('"')) if chars.peek() == Some(&'(') => {
                chars.by_ref().find(|c| *c == ')');
                last.push('1');
            }
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => last.push(c),
            ('\'' | '"', None) => quote = Some(c),
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
        // inline code may continue on the next line
        let parts = text.split("\n\n").flat_map(|part| part.split(['`', '#']));
        for code in parts.filter(|code| code.contains(".py ")) {
            let mut words = code.split_whitespace();
            let Some(script) = words.find(|word| word.ends_with(".py")) else { continue };
            let source = std::fs::read_to_string(root.join(script)).expect(script);
            // the arguments after `--` are those of a server, not of this program
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
    assert_eq!(count, 3, "a small scenario, and the scenarios of the searches for a limit and for a minimum");
}

#[test]
fn every_setting_is_a_flag_of_serve_and_of_config_print() {
    let settings: Vec<_> = SETTINGS.iter().map(|setting| setting.flag()).collect();
    for path in [["serve"].as_slice(), &["config", "print"]] {
        let command = path.iter().fold(Cli::command(), |command, name| {
            command.find_subcommand(name).expect("the command exists").clone()
        });
        let flags = command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
        let flags: Vec<_> = flags.filter(|flag| !["--config", "--json"].contains(&flag.as_str())).collect();
        assert_eq!(flags, settings, "{path:?}");
    }
}

#[test]
fn short_help_of_serve() {
    let mut cli = Cli::command().term_width(100);
    cli.build();
    let serve = cli.find_subcommand_mut("serve").expect("the command exists").clone();
    let help = serve.mut_arg("config", |config| config.hide_env_values(true)).render_help();
    expect![[r#"
        Run the server: accept metrics, keep them durably, answer queries

        Usage: floodmark serve [OPTIONS]

        Options:
              --config <FILE>  TOML file with settings [env: FLOODMARK_CONFIG]
          -h, --help           Print help (see more with '--help')

        Server:
              --http <ADDR>       Address to serve HTTP on, such as `127.0.0.1:9009`, `localhost:9009`, or
                                  `:9009` for all addresses [default: 127.0.0.1:9009]
              --auth-file <FILE>  File with credentials, and with the services that identify callers
                                  [default: none]
              --tls-cert <FILE>   Certificate of the server, as PEM; connections to `http` are then
                                  encrypted [default: none]
              --tls-key <FILE>    Private key of `tls_cert`, as PEM [default: none]
              --memory <SIZE>     Memory budget of the process, such as `2GiB` [at least 64MiB] [default:
                                  half of the control group's limit or of the machine's memory]

        Storage:
              --data-dir <DIR>         Directory of the journal, and of the tables unless `tables` is set
                                       [default: floodmark-data]
              --durability <WORD>      When a write counts as durable [default: fsync] [possible values:
                                       fsync, os]
              --tables <URL>           URL of the tables: `file:///…`, `s3://…`, `gs://…` or `az://…`
                                       [default: the folder `tables` in the data directory]
              --seal-after <DURATION>  Age at which data in memory is sealed into tables [default: 15m]

        Retention and rollups:
              --retention <DURATION>  Age at which samples are dropped, such as `90d` [default: never]

        OpenTelemetry:
              --otlp-grpc <ADDR>  Address that receives OpenTelemetry's metrics over gRPC, such as
                                  `127.0.0.1:4317` [default: none]

        Graphite:
              --graphite <ADDR>  Address that receives Graphite's plaintext protocol over TCP and UDP, such
                                 as `127.0.0.1:2003` [default: none]

        Each setting is also an environment variable and a key of the file: --seal-after is
        FLOODMARK_SEAL_AFTER and seal_after. Flags take precedence over the environment, the environment
        over the file. Settings of single tenants are in the file or in the file of --overrides.
    "#]]
    .assert_eq(&help.to_string());
}

#[test]
fn old_flag_names_still_work() {
    for line in [
        "floodmark lab write --url http://127.0.0.1:1/api/v1/write",
        "floodmark lab replay r.rec --url http://127.0.0.1:1/api/v1/write --report r.html",
        "floodmark lab record r.rec --backend http://127.0.0.1:1",
        "floodmark lab run first --report r.html",
        "floodmark lab merge a.json b.json --report r.html",
    ] {
        if let Err(error) = Cli::try_parse_from(words(line)) {
            panic!("{line}\n{error}");
        }
    }
}

/// Calls the visitor with a command and each of its subcommands, and with the full name of each.
fn each_command(command: &Command, path: &str, visit: &mut impl FnMut(&str, &Command)) {
    let path = format!("{path} {}", command.get_name());
    visit(path.trim_start(), command);
    command.get_subcommands().for_each(|inner| each_command(inner, &path, visit));
}

#[test]
fn every_command_and_flag_has_help() {
    each_command(&Cli::command(), "", &mut |path, command| {
        assert!(command.get_about().is_some(), "{path} has no description");
        for arg in command.get_arguments() {
            let name = arg.get_id();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 3 && !help.ends_with('.'), "{path}: {name}: {help:?}");
        }
    });
}

#[test]
fn flags_with_equal_meaning_have_equal_names() {
    let mut described = BTreeMap::new();
    each_command(&Cli::command(), "", &mut |path, command| {
        for arg in command.get_arguments() {
            let (id, help) =
                (arg.get_id().as_str(), arg.get_help().map(ToString::to_string).unwrap_or_default());
            assert!(!["url", "backend", "report"].contains(&id), "{path} has --{id}");
            if ["json", "out"].contains(&id) {
                described.entry(id.to_owned()).or_insert_with(BTreeSet::new).insert(help);
            }
        }
    });
    assert_eq!(described["json"].len(), 1, "{described:?}");
    assert_eq!(described["out"].len(), 1, "{described:?}");
}

/// If a help text states bounds, such as `[1 to 250000]`, they must be those that are enforced.
#[test]
fn bounds_in_help_are_those_that_are_checked() {
    let mut count = 0;
    each_command(&Cli::command(), "", &mut |path, command| {
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let Some((low, high)) =
                help.rsplit_once('[').and_then(|(_, end)| end.strip_suffix(']')?.split_once(" to "))
            else {
                continue;
            };
            let (Ok(low), Ok(high)) = (low.parse::<i64>(), high.parse::<i64>()) else { continue };
            let long = arg.get_long().expect("only options have bounds");
            let accepts = |number: i64| {
                let alone = Command::new("x").no_binary_name(true).arg(arg.clone());
                alone.try_get_matches_from([format!("--{long}={number}")]).is_ok()
            };
            let found = [low - 1, low, high, high + 1].map(accepts);
            assert_eq!(found, [false, true, true, false], "{path}: --{long}: {low} to {high}");
            count += 1;
        }
    });
    assert!(count > 10, "{count} bounds found");
}
