//! Limits on the text of a statement, and which statements are allowed.
//!
//! Planning is recursive: each operator of a long chain, such as `a OR a OR …`, adds a level. So the number of operators is
//! limited, and with it the depth of everything that is made of the statement. Depth in parentheses has a limit of its own.

use crate::dialect::Counted;
use crate::error::SqlError;
use crate::plan::COLUMNS_MAX;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, ObjectName, Query, Select, Statement as Ast, Value, ValueWithSpan, Visit, Visitor,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// A longer text is refused before it is read. Reading it takes up to a hundred times as much memory.
const BYTES_MAX: usize = 64 << 10;

/// Lists of a few thousand values fit.
const TOKENS_MAX: usize = 10_000;

/// Operators, of which each may be a level of an expression.
const OPERATORS_MAX: usize = 300;

/// Queries within the statement.
const QUERIES_MAX: usize = 50;

/// Tables that the statement reads, each as often as it is read. Each scan holds memory, and a plan has the queries of `WITH` as
/// often as they are named, so that a few of them could make it very large.
const TABLES_MAX: u64 = 30;

/// They keep all rows, and reserve nothing.
const WINDOWS: &str = "windows are not supported yet; use GROUP BY, or a join with what is grouped";

const PARENTHESES_MAX: usize = 50;

/// Words without a sign or a constant in between. Each may be a level of the parser's, which does not limit the depth of, for
/// example, `INTERVAL INTERVAL …`.
const WORDS_MAX: usize = 100;

/// Parses the only statement of a text.
pub(crate) fn parse(text: &str) -> Result<Statement, SqlError> {
    if text.len() > BYTES_MAX {
        return Err(too_long(&format!("{} bytes; the limit is {BYTES_MAX}", text.len())));
    }
    let dialect = Counted::default();
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| SqlError::Statement(format!("SQL error: {error}")))?;
    check(tokens.iter().map(|token| &token.token))?;
    let parse = |tokens| {
        let builder =
            DFParserBuilder::new(tokens).with_dialect(&dialect).with_recursion_limit(PARENTHESES_MAX);
        builder.build()?.parse_statements()
    };
    let parsed = dialect.limit(|| parse(tokens)).ok_or_else(|| {
        SqlError::Statement(
            "the statement takes too long to parse; it should have fewer nested functions or parentheses"
                .into(),
        )
    })?;
    let mut statements = parsed.map_err(|error| SqlError::of(&error, true))?;
    let one = statements.pop_front().ok_or_else(|| SqlError::Statement("there is no statement".into()))?;
    if !statements.is_empty() {
        return Err(SqlError::Statement("there is more than one statement".into()));
    }
    allow(&one)?;
    Ok(one)
}

fn too_long(why: &str) -> SqlError {
    SqlError::Statement(format!("the statement is too long: {why}"))
}

fn check<'a>(tokens: impl Iterator<Item = &'a Token>) -> Result<(), SqlError> {
    let (mut count, mut operators, mut queries, mut depth, mut words) = (0, 0, 0, 0usize, 0);
    for token in tokens {
        count += 1;
        match token {
            Token::Whitespace(_) => {}
            Token::Word(_) => words += 1,
            _ => words = 0,
        }
        match token {
            Token::Whitespace(_) => count -= 1,
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Word(word) => match word.keyword {
                Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::XOR
                | Keyword::DIV
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::BETWEEN
                | Keyword::COLLATE
                | Keyword::AT
                | Keyword::CASE => operators += 1,
                Keyword::SELECT
                | Keyword::FROM
                | Keyword::JOIN
                | Keyword::VALUES
                | Keyword::UNION
                | Keyword::EXCEPT
                | Keyword::INTERSECT
                | Keyword::EXPLAIN
                | Keyword::DESC
                | Keyword::DESCRIBE => queries += 1,
                _ => {}
            },
            Token::Number(..)
            | Token::Char(_)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Comma
            | Token::Period
            | Token::SemiColon
            | Token::EOF => {}
            // whatever is left is an operator, or rare
            _ => operators += 1,
        }
        for (is, most, what) in [
            (count, TOKENS_MAX, "words and signs"),
            (operators, OPERATORS_MAX, "operators"),
            (queries, QUERIES_MAX, "queries"),
            (depth, PARENTHESES_MAX, "nested parentheses"),
            (words, WORDS_MAX, "words in a row"),
        ] {
            if is > most {
                return Err(too_long(&format!("more than {most} {what}")));
            }
        }
    }
    Ok(())
}

/// Refuses statements that do not only read, and those that would make too large a plan.
fn allow(statement: &Statement) -> Result<(), SqlError> {
    let refused = |why: &str| Err(SqlError::Statement(why.into()));
    match statement {
        Statement::Statement(statement) if is_read(statement) => {
            match statement.visit(&mut Tables::default()) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(error) => Err(error),
            }
        }
        Statement::Explain(explain) if explain.options.analyze || explain.options.verbose => {
            refused("EXPLAIN shows only the plan: without ANALYZE and VERBOSE")
        }
        Statement::Explain(explain) => allow(&explain.statement),
        // it is planned with lists
        Statement::Statement(of) if matches!(**of, Ast::ShowFunctions { .. }) => {
            refused("SHOW FUNCTIONS is not supported; information_schema.routines has the functions")
        }
        // it would open all tables
        Statement::Statement(of) if matches!(**of, Ast::ShowColumns { .. }) => {
            refused("SHOW COLUMNS is not supported; DESCRIBE shows the columns of a table")
        }
        _ => refused("SQL is read-only: only SELECT, VALUES, WITH, EXPLAIN, SHOW and DESCRIBE are allowed"),
    }
}

/// Counts the tables that a statement reads.
#[derive(Debug, Default)]
struct Tables {
    /// Counts of the queries that are being visited, from the outermost on.
    counts: Vec<u64>,
    /// Addresses of queries of `WITH`, and their names.
    with: HashMap<*const Query, String>,
    /// How many tables a name of `WITH` stands for. If several have the same name, the most.
    known: HashMap<String, u64>,
}

impl Tables {
    fn add(&mut self, count: u64) -> ControlFlow<SqlError> {
        let Some(sum) = self.counts.last_mut() else { return ControlFlow::Continue(()) };
        *sum = sum.saturating_add(count);
        match *sum > TABLES_MAX {
            true => ControlFlow::Break(too_long(&format!("it reads more than {TABLES_MAX} tables"))),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for Tables {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.with.extend(with.map(|one| (&raw const *one.query, one.alias.name.value.to_lowercase())));
        self.counts.push(0);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let count = self.counts.pop().unwrap_or(0);
        if let Some(name) = self.with.get(&(&raw const *query)) {
            let known = self.known.entry(name.clone()).or_default();
            *known = count.max(*known);
        }
        self.add(count)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        let refused = |why: String| ControlFlow::Break(SqlError::Statement(why));
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
        if !modifiers.is_empty() {
            return refused("modifiers of GROUP BY are not supported; use UNION ALL".into());
        }
        if select.qualify.is_some() || !select.named_window.is_empty() {
            return refused(format!("{WINDOWS}: QUALIFY and WINDOW"));
        }
        match select.projection.len() > COLUMNS_MAX {
            true => refused(format!("SELECT has more than {COLUMNS_MAX} columns")),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<SqlError> {
        use Value::{DoubleQuotedByteStringLiteral, TripleDoubleQuotedByteStringLiteral};
        use Value::{HexStringLiteral, SingleQuotedByteStringLiteral, TripleSingleQuotedByteStringLiteral};
        match value.value {
            HexStringLiteral(_)
            | SingleQuotedByteStringLiteral(_)
            | DoubleQuotedByteStringLiteral(_)
            | TripleSingleQuotedByteStringLiteral(_)
            | TripleDoubleQuotedByteStringLiteral(_) => ControlFlow::Break(SqlError::Statement(
                "constants of bytes are not supported, because they are copied for each row".into(),
            )),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<SqlError> {
        let name = relation.0.last().and_then(|part| part.as_ident());
        let known = name.and_then(|name| self.known.get(&name.value.to_lowercase()));
        self.add(known.copied().unwrap_or(1).max(1))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match expr {
            // each column more makes twice as many groups
            Expr::Cube(_) | Expr::Rollup(_) | Expr::GroupingSets(_) => ControlFlow::Break(
                SqlError::Statement("CUBE, ROLLUP and GROUPING SETS are not supported; use UNION ALL".into()),
            ),
            Expr::Function(function) if function.over.is_some() => {
                ControlFlow::Break(SqlError::Statement(format!("{WINDOWS}: {}() OVER", function.name)))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn is_read(statement: &Ast) -> bool {
    match statement {
        Ast::Query(_) | Ast::ShowTables { .. } | Ast::ShowVariable { .. } | Ast::ExplainTable { .. } => true,
        Ast::Explain { statement, analyze: false, verbose: false, options: None, .. } => is_read(statement),
        _ => false,
    }
}
