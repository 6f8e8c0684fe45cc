//! Test of the tables in `docs/reference/configuration.md`. With `UPDATE_EXPECT=1`, the test writes the tables.

use crate::settings::{DefaultValue, SETTINGS, Setting, Takes};
use expect_test::expect_file;
use std::fmt::Write;

const PAGE: &str = include_str!("../../../../../docs/reference/configuration.md");
const BEGIN: &str = "<!-- generated from crates/server/src/settings/table.rs: UPDATE_EXPECT=1 cargo test -p server settings -->\n";
const END: &str = "<!-- end of the generated part -->\n";

fn takes(setting: &Setting) -> String {
    let kind = match setting.takes {
        Takes::Directory | Takes::File => "path".to_owned(),
        Takes::Address => "address".to_owned(),
        Takes::Url => "URL".to_owned(),
        Takes::Size => "size".to_owned(),
        Takes::Duration => "duration".to_owned(),
        Takes::Count => "count".to_owned(),
        Takes::Label => "label name".to_owned(),
        Takes::Tenant => "tenant".to_owned(),
        Takes::Names => "names".to_owned(),
        Takes::Durations => "durations".to_owned(),
        Takes::Networks => "networks".to_owned(),
        Takes::TenantAddresses => "addresses with tenants".to_owned(),
        Takes::Word(words) => {
            words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
    };
    let none = setting.none.map_or_else(String::new, |none| format!(" or `{none}`"));
    let bounds = setting.bounds_text().map_or_else(String::new, |bounds| format!(", {bounds}"));
    kind + &none + &bounds
}

fn row(setting: &Setting) -> String {
    let default = match setting.default {
        DefaultValue::Fixed(text) => format!("`{text}`"),
        DefaultValue::Derived(how) => how.to_owned(),
    };
    let meanings = setting.takes.words().iter().filter(|(_, meaning)| !meaning.is_empty());
    let meanings: Vec<_> = meanings.map(|(word, meaning)| format!("`{word}`: {meaning}")).collect();
    let mut what = vec![setting.about.to_owned(), meanings.join("; "), setting.why.to_owned()];
    if setting.is_per_tenant {
        what.push("[Per tenant](#one-tenant)".to_owned());
    }
    what.retain(|sentence| !sentence.is_empty());
    format!("| `{}` | {} | {default} | {} |", setting.key, takes(setting), what.join(". "))
}

fn tables() -> String {
    let mut text = String::new();
    for group in SETTINGS.chunk_by(|a, b| a.group == b.group) {
        let heading = group[0].group;
        writeln!(
            text,
            "\n### {heading}\n\n| key | takes | default | what it is |\n| --- | --- | --- | --- |"
        )
        .unwrap();
        group.iter().for_each(|setting| writeln!(text, "{}", row(setting)).unwrap());
    }
    text + "\n"
}

#[test]
fn the_reference_is_that_of_the_declarations() {
    let (before, rest) = PAGE.split_once(BEGIN).expect("the page has the marker before the tables");
    let (_, after) = rest.split_once(END).expect("the page has the marker after the tables");
    expect_file!["../../../../../docs/reference/configuration.md"]
        .assert_eq(&format!("{before}{BEGIN}{}{END}{after}", tables()));
}
