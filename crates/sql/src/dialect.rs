//! A dialect that ends a parser which takes too long.
//!
//! Where a text can be read in two ways, the parser tries the first, and if that fails the second, also within what it tries. So
//! forty levels of `position(position(…` would take years. The parser asks its dialect for something at each of its steps.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use std::any::TypeId;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A statement of ten thousand words and signs takes less than half of this.
const STEPS_MAX: u32 = 500_000;

/// DataFusion's dialect.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    inner: GenericDialect,
    steps: Cell<u32>,
}

/// What ends the parser. It has no error that is passed on in all cases.
struct TooManySteps;

impl Counted {
    /// Returns what `parse` returns with this dialect, or `None` if it took too many steps.
    pub(crate) fn limit<T>(&self, parse: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(parse)) {
            Ok(parsed) => Some(parsed),
            Err(cause) if cause.is::<TooManySteps>() => None,
            Err(bug) => resume_unwind(bug),
        }
    }

    fn step(&self) {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX {
            resume_unwind(Box::new(TooManySteps));
        }
    }
}

/// Passes on what the generic dialect says.
macro_rules! pass_on {
    ($($name:ident)*) => {
        $(fn $name(&self) -> bool {
            self.step();
            self.inner.$name()
        })*
    };
}

impl Dialect for Counted {
    fn dialect(&self) -> TypeId {
        self.inner.dialect()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.inner.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.inner.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.inner.is_identifier_part(ch)
    }

    fn parse_prefix(&self, _: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        self.step();
        None
    }

    pass_on! {
        supports_unicode_string_literal
        supports_partition_by_after_order_by
        supports_array_join_syntax
        supports_group_by_expr
        supports_group_by_with_modifier
        supports_left_associative_joins_without_parens
        supports_connect_by
        supports_match_recognize
        supports_pipe_operator
        supports_start_transaction_modifier
        supports_window_function_null_treatment_arg
        supports_dictionary_syntax
        supports_window_clause_named_window_reference
        supports_parenthesized_set_variables
        supports_select_wildcard_except
        support_map_literal_syntax
        allow_extract_custom
        allow_extract_single_quotes
        supports_extract_comma_syntax
        supports_create_view_comment_syntax
        supports_parens_around_table_factor
        supports_values_as_table_factor
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_limit_comma
        supports_update_order_by
        supports_from_first_select
        supports_projection_trailing_commas
        supports_asc_desc_in_column_definition
        supports_try_convert
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_assignment_operator
        supports_struct_literal
        supports_empty_projections
        supports_nested_comments
        supports_multiline_comment_hints
        supports_user_host_grantee
        supports_string_escape_constant
        supports_array_typedef_with_brackets
        supports_match_against
        supports_set_names
        supports_comma_separated_set_assignments
        supports_filter_during_aggregation
        supports_select_wildcard_exclude
        supports_data_type_signed_suffix
        supports_interval_options
        supports_quote_delimited_string
        supports_select_wildcard_replace
        supports_select_wildcard_ilike
        supports_select_wildcard_rename
        supports_optimize_table
        supports_install
        supports_detach
        supports_prewhere
        supports_with_fill
        supports_limit_by
        supports_interpolate
        supports_settings
        supports_select_format
        supports_comment_optimizer_hint
        supports_constraint_keyword_without_name
        supports_key_column_option
        supports_comma_separated_trim
        supports_cte_without_as
        supports_select_item_multi_column_alias
        supports_xml_expressions
    }
}
