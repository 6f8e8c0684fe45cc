//! `floodmark inspect`: shows the contents of a data directory without changing it, even while a server uses
//! it.

mod file;
mod journal;
mod table;

use crate::cli::inspect::InspectCommand;
use comfy_table::{CellAlignment, Table, presets};

pub(crate) fn run(command: InspectCommand) -> anyhow::Result<()> {
    match command {
        InspectCommand::Journal(args) => journal::run(&args),
        InspectCommand::Floodmarks(args) => table::floodmarks(&args),
        InspectCommand::Table(args) => table::files(&args),
        InspectCommand::File(args) => file::run(&args),
    }
}

/// Formats a table with headings. A column is aligned to the right if all its values are numbers.
fn columns(names: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(names);
    let numeric = |i: usize| rows.iter().all(|row| row[i].parse::<f64>().is_ok());
    let right: Vec<bool> = (0..names.len()).map(|i| !rows.is_empty() && numeric(i)).collect();
    table.add_rows(rows);
    for (column, right) in table.column_iter_mut().zip(right) {
        if right {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |t| t.to_string())
}
