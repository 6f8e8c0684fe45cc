//! Completion scripts for shells and man pages, generated from the definition of the command line.

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::output::{print, say};
use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;

const NAME: &str = "floodmark";

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    print(String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let Some(dir) = &args.output else {
        let mut page = Vec::new();
        Man::new(Cli::command()).render(&mut page)?;
        return print(String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("cannot write to {}", dir.display()))?;
    say(format_args!("wrote the man pages to {}; man -l {0}/{NAME}.1 shows the main page", dir.display()))
}
