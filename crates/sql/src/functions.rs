//! Which functions there are, and limits on those whose results may take much memory.
//!
//! DataFusion does not account for the values of expressions. `repeat('x', 1000000000)` would take a gigabyte, and
//! `replace(replace(text, 'a', 'aaaaaaaa'), 'a', 'aaaaaaaa')` multiplies. So such functions are [`Bounded`]: what a call may
//! return is reserved before it is made, for some rows at a time, and what it has returned stays reserved until it is dropped.
//! This is so for all functions that make texts, because their arguments are views, of which many may share one long text.
//! Functions that nobody has looked at are left out ([`PLAIN`]).

use crate::memory::hold;
use crate::prepare::lengths;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder, new_empty_array};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::DFSchema;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::functions::datetime::planner::DatetimeFunctionPlanner;
use datafusion::functions::unicode::planner::UnicodeFunctionPlanner;
use datafusion::functions_aggregate::planner::AggregateFunctionPlanner;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls that return more are made for some rows at a time.
const CALL_BYTES: usize = 256 << 10;

/// Constants are computed before rows are read.
const CONSTANT_BYTES_MAX: usize = 64 << 10;

/// Results that take less need no reservation of their own.
const SMALL_BYTES: usize = 16 << 10;

/// Functions whose results are numbers, times or parts of their arguments, which they share. All others that are not bounded are
/// left out: those of lists, because a list is copied for each row that has it; `arrow_cast`, because it makes values of any
/// length; `levenshtein`, whose time is the product of two lengths.
const PLAIN: [&str; 85] = [
    "arrow_typeof",
    "coalesce",
    "greatest",
    "least",
    "nullif",
    "nvl",
    "nvl2",
    "version",
    // times
    "current_date",
    "current_time",
    "date_bin",
    "date_part",
    "date_trunc",
    "from_unixtime",
    "make_date",
    "make_time",
    "now",
    "to_date",
    "to_local_time",
    "to_time",
    "to_timestamp",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_nanos",
    "to_timestamp_seconds",
    "to_unixtime",
    // numbers
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "cot",
    "degrees",
    "exp",
    "factorial",
    "floor",
    "gcd",
    "isnan",
    "iszero",
    "lcm",
    "ln",
    "log",
    "log10",
    "log2",
    "nanvl",
    "pi",
    "power",
    "radians",
    "random",
    "round",
    "signum",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    // texts
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "chr",
    "contains",
    "ends_with",
    "find_in_set",
    "left",
    "ltrim",
    "octet_length",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "right",
    "rtrim",
    "starts_with",
    "strpos",
    "substr",
    "to_hex",
    "uuid",
];

/// Aggregates that are left out: those that make lists or join texts without an account, and those that allocate as much as a
/// number in the statement says.
const AGGREGATES_LEFT_OUT: [&str; 5] =
    ["approx_percentile_cont", "approx_percentile_cont_with_weight", "array_agg", "nth_value", "string_agg"];

/// How large a result may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// This many times as large as all arguments.
    Sum(usize),
    /// All arguments, with the first between each two of the others.
    Join,
    /// The first argument, as often as the second says.
    Repeat,
    /// As many characters as the second argument says.
    Pad,
    /// The first argument, in which each occurrence of the second becomes the third.
    Replace,
    /// The same, with a pattern.
    ReplacePattern,
}

fn growth(name: &str) -> Option<Growth> {
    Some(match name {
        "concat" | "reverse" => Growth::Sum(2),
        // a part of the first, which is copied
        "split_part" | "substr_index" => Growth::Sum(1),
        "concat_ws" => Growth::Join,
        // a letter may become three, of up to four bytes
        "initcap" | "lower" | "translate" | "upper" => Growth::Sum(4),
        "to_char" => Growth::Sum(20),
        "repeat" => Growth::Repeat,
        "lpad" | "rpad" => Growth::Pad,
        "replace" => Growth::Replace,
        "regexp_replace" => Growth::ReplacePattern,
        _ => return None,
    })
}

/// The same function, within the limits of a query's memory. `None` if it is left out.
fn bounded(function: Arc<ScalarUDF>, constants: &Arc<Constants>) -> Option<Arc<ScalarUDF>> {
    match growth(function.name()) {
        Some(growth) => {
            let constants = Arc::clone(constants);
            Some(Arc::new(ScalarUDF::new_from_impl(Bounded { inner: function, growth, constants })))
        }
        None => PLAIN.contains(&function.name()).then_some(function),
    }
}

/// The constants that a statement's functions compute. The optimizer computes all of them, and keeps and copies them.
#[derive(Debug)]
pub(crate) struct Constants {
    pool: Arc<dyn MemoryPool>,
    memory: MemoryReservation,
    is_planning: AtomicBool,
}

/// So many copies of a constant are reserved.
const CONSTANT_COPIES: usize = 4;

impl Constants {
    pub(crate) fn within(pool: &Arc<dyn MemoryPool>) -> Arc<Self> {
        let memory = MemoryConsumer::new("constants").register(pool);
        Arc::new(Self { pool: Arc::clone(pool), memory, is_planning: AtomicBool::new(true) })
    }

    /// What is computed from now on is dropped with its batch.
    pub(crate) fn end_planning(&self) {
        self.is_planning.store(false, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) -> Result<()> {
        match self.is_planning.load(Ordering::Relaxed) {
            true => self.memory.try_grow(CONSTANT_COPIES * bytes),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    constants: Arc<Constants>,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(viewed(&self.inner.return_type(types)?))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(args)?;
        Ok(Arc::new(Field::new(field.name(), viewed(field.data_type()), field.is_nullable())))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let args = self.with_inner_field(args)?;
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let costs = self.costs(&args.args, if is_constant { 1 } else { args.number_rows })?;
        if is_constant {
            return self.constant(args, costs.first().copied().unwrap_or(0));
        }
        let memory = MemoryConsumer::new(format!("{}()", self.name())).register(&self.constants.pool);
        let (mut pieces, mut from, mut held) = (Vec::<ArrayRef>::new(), 0, 0);
        while from < args.number_rows {
            let (mut to, mut bytes) = (from + 1, costs[from]);
            while to < args.number_rows && bytes.saturating_add(costs[to]) <= CALL_BYTES {
                bytes += costs[to];
                to += 1;
            }
            memory.try_resize(bytes.saturating_add(held))?;
            let piece = self.call(&args, from, to)?;
            held += piece.get_array_memory_size();
            memory.try_resize(held)?;
            pieces.push(piece);
            from = to;
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        let result = match pieces.as_slice() {
            [] => new_empty_array(&viewed(args.return_field.data_type())),
            // concatenated views share what they point to
            pieces => concat(pieces)?,
        };
        Ok(ColumnarValue::Array(match held < SMALL_BYTES {
            true => result,
            false => hold(&result, &Arc::new(memory))?,
        }))
    }
}

impl Bounded {
    /// Names the result as the inner function does.
    fn with_inner_field(&self, args: ScalarFunctionArgs) -> Result<ScalarFunctionArgs> {
        let scalar = |arg: &'_ ColumnarValue| match arg {
            ColumnarValue::Scalar(value) => Some(value.clone()),
            ColumnarValue::Array(_) => None,
        };
        let scalars: Vec<Option<ScalarValue>> = args.args.iter().map(scalar).collect();
        let scalars: Vec<Option<&ScalarValue>> = scalars.iter().map(Option::as_ref).collect();
        let of = ReturnFieldArgs { arg_fields: &args.arg_fields, scalar_arguments: &scalars };
        let return_field = self.inner.return_field_from_args(of)?;
        Ok(ScalarFunctionArgs { return_field, ..args })
    }

    fn constant(&self, args: ScalarFunctionArgs, cost: usize) -> Result<ColumnarValue> {
        if cost > CONSTANT_BYTES_MAX {
            return exec_err!(
                "the constant result of {}() is too large: computing it could take {cost} bytes of memory; the limit is {CONSTANT_BYTES_MAX}",
                self.name()
            );
        }
        self.constants.add(cost)?;
        let to = viewed(args.return_field.data_type());
        match self.inner.invoke_with_args(args)? {
            ColumnarValue::Scalar(value) => Ok(ColumnarValue::Scalar(value.cast_to(&to)?)),
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(cast(&array, &to)?)),
        }
    }

    /// Calls the function for some rows.
    fn call(&self, args: &ScalarFunctionArgs, from: usize, to: usize) -> Result<ArrayRef> {
        let slice = |arg: &ColumnarValue| match arg {
            ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, to - from)),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.clone()),
        };
        let sliced = ScalarFunctionArgs {
            args: args.args.iter().map(slice).collect(),
            arg_fields: args.arg_fields.clone(),
            number_rows: to - from,
            return_field: Arc::clone(&args.return_field),
            config_options: Arc::clone(&args.config_options),
        };
        let result = self.inner.invoke_with_args(sliced)?.into_array(to - from)?;
        Ok(cast(&result, &viewed(result.data_type()))?)
    }

    /// For each row, how many bytes the result may have.
    fn costs(&self, args: &[ColumnarValue], rows: usize) -> Result<Vec<usize>> {
        let size = |at: usize| args.get(at).map_or_else(|| Ok(Numbers::Same(0)), sizes);
        let number = |at: usize| args.get(at).map_or_else(|| Ok(Numbers::Same(0)), numbers);
        let of = |each: &dyn Fn(usize) -> usize| (0..rows).map(|row| each(row).saturating_add(16)).collect();
        Ok(match self.growth {
            Growth::Sum(times) => {
                let all = args.iter().map(sizes).collect::<Result<Vec<_>>>()?;
                let sum = |row| all.iter().map(|one| one.at(row)).fold(0, usize::saturating_add);
                of(&|row| sum(row).saturating_mul(times))
            }
            Growth::Join => {
                let all = args.iter().map(sizes).collect::<Result<Vec<_>>>()?;
                let sum = |row| all.iter().map(|one| one.at(row)).fold(0, usize::saturating_add);
                let between = |row| all.first().map_or(0, |first| first.at(row).saturating_mul(all.len()));
                of(&|row| sum(row).saturating_add(between(row)).saturating_mul(2))
            }
            Growth::Repeat => {
                let (text, times) = (size(0)?, number(1)?);
                // the largest is also in a buffer
                of(&|row| text.at(row).saturating_mul(times.at(row)).saturating_mul(2))
            }
            Growth::Pad => {
                let (text, length, fill) = (size(0)?, number(1)?, size(2)?);
                of(&|row| length.at(row).saturating_mul(4).saturating_add(text.at(row) + fill.at(row)))
            }
            Growth::Replace => {
                let (text, what, by) = (size(0)?, size(1)?, size(2)?);
                of(&|row| {
                    let times = text.at(row) / what.at(row).max(1) + 1;
                    times.saturating_mul(by.at(row)).saturating_add(text.at(row))
                })
            }
            Growth::ReplacePattern => {
                let (text, by) = (size(0)?, size(2)?);
                of(&|row| (text.at(row) + 1).saturating_mul(by.at(row) + 1))
            }
        })
    }
}

/// A number for each row.
#[derive(Debug, Clone)]
enum Numbers<N> {
    Same(N),
    Each(Vec<N>),
}

impl<N: Copy> Numbers<N> {
    fn at(&self, row: usize) -> N {
        match self {
            Self::Same(number) => *number,
            Self::Each(numbers) => numbers[row],
        }
    }
}

/// Bytes of an argument in each row.
fn sizes(value: &ColumnarValue) -> Result<Numbers<usize>> {
    let array = match value {
        ColumnarValue::Scalar(value) => {
            let text = value.try_as_str().flatten().map(str::len);
            return Ok(Numbers::Same(text.unwrap_or_else(|| value.size())));
        }
        ColumnarValue::Array(array) => array,
    };
    let lengths = lengths(array);
    Ok(match lengths.is_empty() {
        true => Numbers::Same(array.data_type().primitive_width().unwrap_or(16)),
        false => Numbers::Each(lengths),
    })
}

fn signed(value: &ColumnarValue) -> Result<Numbers<i64>> {
    Ok(match value {
        ColumnarValue::Scalar(value) => match value.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(number) => Numbers::Same(number.unwrap_or(0)),
            _ => Numbers::Same(0),
        },
        ColumnarValue::Array(array) => {
            let array = cast(array, &DataType::Int64)?;
            Numbers::Each(
                array.as_primitive::<Int64Type>().iter().map(|number| number.unwrap_or(0)).collect(),
            )
        }
    })
}

/// The same, with 0 for negative numbers.
fn numbers(value: &ColumnarValue) -> Result<Numbers<usize>> {
    let of = |number: i64| usize::try_from(number).unwrap_or(0);
    Ok(match signed(value)? {
        Numbers::Same(number) => Numbers::Same(of(number)),
        Numbers::Each(numbers) => Numbers::Each(numbers.into_iter().map(of).collect()),
    })
}

fn viewed(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        other => other.clone(),
    }
}

/// Plans the operator `||` as a function that is bounded.
#[derive(Debug)]
struct Concat(Arc<ScalarUDF>);

const CONCAT_TEXTS: &str = "||";

impl Concat {
    fn new(constants: &Arc<Constants>) -> Self {
        let inner = Arc::new(ScalarUDF::new_from_impl(ConcatTexts {
            signature: Signature::user_defined(Volatility::Immutable),
        }));
        let (growth, constants) = (Growth::Sum(2), Arc::clone(constants));
        Self(Arc::new(ScalarUDF::new_from_impl(Bounded { inner, growth, constants })))
    }
}

impl ExprPlanner for Concat {
    fn plan_binary_op(&self, expr: RawBinaryExpr, _: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op != BinaryOperator::StringConcat {
            return Ok(PlannerResult::Original(expr));
        }
        let call = match expr.left {
            // a chain is one call, because the time to plan calls within calls grows with the square of their depth
            Expr::ScalarFunction(mut left) if left.name() == CONCAT_TEXTS => {
                left.args.push(expr.right);
                left
            }
            left => ScalarFunction::new_udf(Arc::clone(&self.0), vec![left, expr.right]),
        };
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// All texts, one after the other; null if one of them is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ConcatTexts {
    signature: Signature,
}

impl ScalarUDFImpl for ConcatTexts {
    fn name(&self) -> &'static str {
        CONCAT_TEXTS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.iter().any(DataType::is_nested) {
            return plan_err!("|| joins texts");
        }
        Ok(vec![DataType::Utf8View; types.len()])
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows)).collect::<Result<Vec<_>>>()?;
        let texts: Vec<_> = arrays.iter().map(|array| array.as_string_view()).collect();
        let mut joined = StringViewBuilder::with_capacity(rows);
        let mut text = String::new();
        for row in 0..rows {
            if texts.iter().any(|one| one.is_null(row)) {
                joined.append_null();
                continue;
            }
            text.clear();
            texts.iter().for_each(|one| text.push_str(one.value(row)));
            joined.append_value(&text);
        }
        let joined: ArrayRef = Arc::new(joined.finish());
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
            false => ColumnarValue::Array(joined),
        })
    }
}

/// All scalar functions.
pub(crate) fn scalars(constants: &Arc<Constants>) -> Vec<Arc<ScalarUDF>> {
    let functions = SessionStateDefaults::default_scalar_functions().into_iter();
    functions.filter_map(|function| bounded(function, constants)).collect()
}

pub(crate) fn aggregates() -> Vec<Arc<AggregateUDF>> {
    let functions = SessionStateDefaults::default_aggregate_functions().into_iter();
    functions.filter(|function| !AGGREGATES_LEFT_OUT.contains(&function.name())).collect()
}

/// What plans operators and syntax as functions. The planner of `OVERLAY` and of structures is left out: it names functions that
/// are not bounded. The first planner that knows an operator plans it.
pub(crate) fn planners(constants: &Arc<Constants>) -> Vec<Arc<dyn ExprPlanner>> {
    vec![
        Arc::new(Concat::new(constants)),
        Arc::new(DatetimeFunctionPlanner),
        Arc::new(UnicodeFunctionPlanner),
        Arc::new(AggregateFunctionPlanner),
    ]
}
