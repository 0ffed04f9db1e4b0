//! Computes columns and filters rows, batch by batch, within each unit.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, DFSchema, Result as EngineResult, TableReference};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;
use shardmill_core::{Error, escape};

use crate::base::{batch, project, rows_from};
use crate::error;
use crate::query::{
    Phase, TABLE, check_scalar, convert, parse_expr, parse_select, run_engine, session,
};
use crate::{
    RowOrigin, Rows, SelectColumn, Source, SourceOptions, SourceProblem, TableFacts, Unit,
};

const WHERE: &str = "--where";
const SELECT: &str = "--select";
const COLUMN: &str = "--column";

/// An output column before it is compiled.
pub(crate) struct Item {
    clause: &'static str,
    name: String,
    expr: Expr,
}

impl Item {
    /// Copies a column.
    fn copy(clause: &'static str, name: &str) -> Self {
        Self {
            clause,
            name: name.to_owned(),
            expr: Expr::Column(Column::new(Some(TableReference::bare(TABLE)), name)),
        }
    }
}

/// Computes columns from the columns of a batch.
pub(crate) struct Projection {
    schema: SchemaRef,
    /// For each column, the option that it comes from, and its expression.
    outputs: Vec<(&'static str, Arc<dyn PhysicalExpr>)>,
}

/// Computed columns and a filter on top of a source.
pub(crate) struct Computed {
    base: Arc<dyn Source>,
    program: Arc<Program>,
    /// The columns of the base that the expressions need, ascending.
    needed: Vec<usize>,
    /// For each output that merely copies a column of the base, that column.
    copies: Vec<Option<usize>>,
    /// For each unit, its number in the base.
    base_units: Vec<usize>,
    facts: TableFacts,
}

struct Program {
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// What the columns are computed from; `None` if that are the columns of the base.
    inner: Option<Projection>,
    outer: Projection,
}

/// Returns a schema whose columns can be referred to as `name` and `source.name`.
pub(crate) fn named_schema(clause: &'static str, schema: &Schema) -> Result<DFSchema, Error> {
    DFSchema::try_from_qualified_schema(TableReference::bare(TABLE), schema)
        .map_err(|error| convert(error, clause, schema, Phase::Plan, None))
}

/// Plans a parsed expression.
pub(crate) fn plan_expr(
    context: &SessionContext,
    clause: &'static str,
    schema: &Schema,
    parsed: ast::Expr,
) -> Result<Expr, Error> {
    let named = named_schema(clause, schema)?;
    let aliased = ast::ExprWithAlias {
        expr: parsed,
        alias: None,
    };
    let expr = run_engine(clause, schema, Phase::Plan, || {
        context
            .state_ref()
            .read()
            .create_logical_expr_from_sql_expr(aliased, &named)
    })?;
    check_scalar(clause, &expr)?;
    Ok(expr)
}

/// Compiles an expression over the columns of a schema.
fn compile(
    context: &SessionContext,
    clause: &'static str,
    schema: &Schema,
    expr: Expr,
) -> Result<Arc<dyn PhysicalExpr>, Error> {
    let named = named_schema(clause, schema)?;
    run_engine(clause, schema, Phase::Plan, || {
        // Some functions (`coalesce`, `nvl`) cannot be executed: the simplifier replaces them.
        let simplifier = ExprSimplifier::new(
            SimplifyContext::builder()
                .with_schema(Arc::new(named.clone()))
                .build(),
        );
        let expr = simplifier.simplify(simplifier.coerce(expr, &named)?)?;
        checked(context.create_physical_expr(expr, &named)?)
    })
}

/// Makes arithmetic fail on overflow instead of wrapping.
fn checked(expr: Arc<dyn PhysicalExpr>) -> EngineResult<Arc<dyn PhysicalExpr>> {
    let changed = expr.transform(|expr| {
        Ok(match expr.downcast_ref::<BinaryExpr>() {
            Some(binary) => Transformed::yes(Arc::new(binary.clone().with_fail_on_overflow(true))),
            None => Transformed::no(expr),
        })
    })?;
    Ok(changed.data)
}

/// Returns the columns that `--column` options name or rename, and that its star therefore excludes.
pub(crate) fn named_columns(columns: &[SelectColumn]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for column in columns.iter().filter(|column| !column.is_rest) {
        names.insert(column.name.clone());
        let expr = column.expr.as_deref();
        // Planning the expression itself reports an error in it.
        if let Some(Ok(ast::Expr::Identifier(renamed))) = expr.map(|text| parse_expr(COLUMN, text))
        {
            names.insert(renamed.value);
        }
    }
    names
}

/// Replaces the star of `--column` by the columns of a schema that are not named.
pub(crate) fn expanded(columns: &[SelectColumn], schema: &Schema) -> Vec<SelectColumn> {
    let named = named_columns(columns);
    let names = schema.fields().iter().map(|field| field.name());
    let rest: Vec<SelectColumn> = names
        .filter(|name| !named.contains(*name))
        .map(SelectColumn::named)
        .collect();
    let expanded = columns.iter().flat_map(|column| match column.is_rest {
        true => rest.clone(),
        false => vec![column.clone()],
    });
    expanded.collect()
}

/// Plans `--column NAME[=EXPR]` over a schema.
pub(crate) fn column_items(
    context: &SessionContext,
    schema: &Schema,
    wanted: &[SelectColumn],
) -> Result<Vec<Item>, Error> {
    let mut items = Vec::with_capacity(wanted.len());
    for SelectColumn { name, expr, .. } in wanted {
        items.push(match expr {
            Some(text) => Item {
                clause: COLUMN,
                name: name.clone(),
                expr: plan_expr(context, COLUMN, schema, parse_expr(COLUMN, text)?)?,
            },
            None if schema.column_with_name(name).is_some() => Item::copy(COLUMN, name),
            None => return Err(error::no_column(COLUMN, name, schema)),
        });
    }
    Ok(items)
}

/// Plans `--select LIST` over a schema.
fn select_items(
    context: &SessionContext,
    schema: &Schema,
    parsed: Vec<ast::SelectItem>,
) -> Result<Vec<Item>, Error> {
    let mut items = Vec::with_capacity(parsed.len());
    for item in parsed {
        let (name, expr) = match item {
            ast::SelectItem::Wildcard(options) => {
                let left_out = wildcard_exceptions(&options);
                check_wildcard(schema, &options, &left_out)?;
                let names = schema.fields().iter().map(|field| field.name());
                let names = names.filter(|name| !left_out.contains(*name));
                items.extend(names.map(|name| Item::copy(SELECT, name)));
                continue;
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => (alias.value, expr),
            ast::SelectItem::UnnamedExpr(expr) => (own_name(&expr)?, expr),
            other => {
                let reason = format!("`{}` is not supported here", escape(&other.to_string()));
                return Err(SourceProblem::SqlPlan.at(SELECT, reason));
            }
        };
        items.push(Item {
            clause: SELECT,
            name,
            expr: plan_expr(context, SELECT, schema, expr)?,
        });
    }
    Ok(items)
}

/// Returns the name of an expression without an alias. Only columns have one.
fn own_name(expr: &ast::Expr) -> Result<String, Error> {
    match expr {
        ast::Expr::Identifier(name) => Ok(name.value.clone()),
        ast::Expr::CompoundIdentifier(parts) => Ok(parts
            .last()
            .map_or_else(String::new, |part| part.value.clone())),
        ast::Expr::Nested(inner) => own_name(inner),
        other => {
            let text = other.to_string();
            let text = escape(&text);
            let reason = format!("`{text}` has no name: write `{text} AS name`");
            Err(SourceProblem::SqlPlan.at(SELECT, reason))
        }
    }
}

/// Returns the columns that a wildcard excludes.
pub(crate) fn wildcard_exceptions(options: &ast::WildcardAdditionalOptions) -> BTreeSet<String> {
    let excluded = match &options.opt_exclude {
        None => &[],
        Some(ast::ExcludeSelectItem::Single(name)) => std::slice::from_ref(name),
        Some(ast::ExcludeSelectItem::Multiple(list)) => list.as_slice(),
    };
    let excepted = options.opt_except.iter().flat_map(|except| {
        let first = std::iter::once(&except.first_element);
        first.chain(&except.additional_elements)
    });
    let excepted = excepted.map(|name| name.value.clone());
    excluded.iter().map(last_part).chain(excepted).collect()
}

fn check_wildcard(
    schema: &Schema,
    options: &ast::WildcardAdditionalOptions,
    left_out: &BTreeSet<String>,
) -> Result<(), Error> {
    if options.opt_ilike.is_some() || options.opt_replace.is_some() || options.opt_rename.is_some()
    {
        return Err(
            SourceProblem::SqlPlan.at(SELECT, format!("`*{options}` is not supported here"))
        );
    }
    let mut names = left_out.iter();
    match names.find(|name| schema.column_with_name(name).is_none()) {
        None => Ok(()),
        Some(name) => Err(error::no_column(SELECT, name, schema)),
    }
}

fn last_part(name: &ast::ObjectName) -> String {
    let part = name.0.last().and_then(ast::ObjectNamePart::as_ident);
    part.map(|part| part.value.clone()).unwrap_or_default()
}

impl Projection {
    /// Compiles output columns over the columns of a schema.
    pub(crate) fn compile(
        context: &SessionContext,
        schema: &Schema,
        items: Vec<Item>,
    ) -> Result<Self, Error> {
        let mut fields: Vec<FieldRef> = Vec::with_capacity(items.len());
        let mut outputs = Vec::with_capacity(items.len());
        for Item { clause, name, expr } in items {
            if fields.iter().any(|field| field.name() == &name) {
                return Err(error::duplicate_column(clause, &name));
            }
            let copied = copied_column(&expr, schema).and_then(|index| schema.fields().get(index));
            let compiled = compile(context, clause, schema, expr.clone())?;
            let field = match copied {
                // A copy keeps the column's metadata, such as a suggested encoding.
                Some(field) => Field::clone(field).with_name(name),
                None => {
                    let failed = |error| convert(error, clause, schema, Phase::Plan, None);
                    let data_type = compiled.data_type(schema).map_err(failed)?;
                    Field::new(name, data_type, compiled.nullable(schema).map_err(failed)?)
                }
            };
            fields.push(Arc::new(field));
            outputs.push((clause, compiled));
        }
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            outputs,
        })
    }

    pub(crate) const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Computes some columns of a batch.
    pub(crate) fn apply(
        &self,
        input: &RecordBatch,
        columns: &[usize],
    ) -> Result<RecordBatch, Error> {
        let outputs = columns.iter().filter_map(|at| self.outputs.get(*at));
        let arrays = outputs.map(|(clause, expr)| evaluate(expr, input, clause));
        let arrays = arrays.collect::<Result<_, _>>()?;
        batch(&project(&self.schema, columns), arrays, input.num_rows())
    }
}

fn evaluate(
    expr: &Arc<dyn PhysicalExpr>,
    input: &RecordBatch,
    clause: &'static str,
) -> Result<ArrayRef, Error> {
    run_engine(clause, &input.schema(), Phase::Run, || {
        expr.evaluate(input)?.into_array(input.num_rows())
    })
}

/// Returns the column that an expression merely copies.
fn copied_column(expr: &Expr, schema: &Schema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of(&column.name).ok(),
        Expr::Alias(alias) => copied_column(&alias.expr, schema),
        _ => None,
    }
}

impl Program {
    /// Returns which rows meet the condition; `None` without a condition.
    fn mask(&self, input: &RecordBatch) -> Result<Option<BooleanArray>, Error> {
        let Some(filter) = &self.filter else {
            return Ok(None);
        };
        let value = evaluate(filter, input, WHERE)?;
        let mask = value
            .as_boolean_opt()
            .ok_or_else(|| error::bug("a condition that is not a boolean"))?;
        Ok(Some(mask.clone()))
    }

    fn project(&self, mut input: RecordBatch, columns: &[usize]) -> Result<RecordBatch, Error> {
        if let Some(inner) = &self.inner {
            let all: Vec<usize> = (0..inner.outputs.len()).collect();
            input = inner.apply(&input, &all)?;
        }
        self.outer.apply(&input, columns)
    }

    /// Returns how many of the nulls of a column remain, if that is known: filtered rows have no more nulls.
    fn kept_nulls(&self, count: Option<u64>) -> Option<u64> {
        count.filter(|count| *count == 0 || self.filter.is_none())
    }
}

impl Computed {
    /// Plans the condition and the columns of the options.
    pub(crate) fn new(base: Arc<dyn Source>, options: &SourceOptions) -> Result<Self, Error> {
        let context = session(options, 8192)?;
        let full = base.schema();
        let columns = &options.query.columns;
        let mut condition = String::new();
        let filter = match &options.query.filter {
            Some(given) => {
                let parsed = parse_expr(WHERE, given)?;
                condition = format!(" WHERE {parsed}");
                Some(plan_expr(&context, WHERE, &full, parsed)?)
            }
            None => None,
        };
        let (list, first) = match &options.query.select {
            Some(given) => {
                let parsed = parse_select(SELECT, given)?;
                let list: Vec<String> = parsed.iter().map(ToString::to_string).collect();
                (list.join(", "), select_items(&context, &full, parsed)?)
            }
            None if !columns.is_empty() => {
                let columns = expanded(columns, &full);
                (
                    column_text(&columns)?,
                    column_items(&context, &full, &columns)?,
                )
            }
            None => {
                let all = full.fields().iter();
                let all = all.map(|field| Item::copy(SELECT, field.name()));
                ("*".to_owned(), all.collect())
            }
        };
        let mut text = format!("SELECT {list} FROM {TABLE}{condition}");
        let needed = needed_columns(
            &full,
            filter.iter().chain(first.iter().map(|item| &item.expr)),
        );
        base.check_columns(&needed)?;
        let input = project(&full, &needed);
        let mut copies: Vec<Option<usize>> = first
            .iter()
            .map(|item| copied_column(&item.expr, &full))
            .collect();
        let pruning = match &filter {
            Some(filter) => {
                let compiled = compile(&context, WHERE, &full, filter.clone())?;
                let found = compiled
                    .data_type(&full)
                    .map_err(|error| convert(error, WHERE, &full, Phase::Plan, None))?;
                if found != DataType::Boolean {
                    let reason = format!("the condition is {found}, neither true nor false");
                    return Err(SourceProblem::SqlPlan.at(WHERE, reason));
                }
                Some(compiled)
            }
            None => None,
        };
        let filter = match filter {
            Some(filter) => Some(compile(&context, WHERE, &input, filter)?),
            None => None,
        };
        let mut outer = Projection::compile(&context, &input, first)?;
        let mut inner = None;
        if options.query.select.is_some() && !columns.is_empty() {
            let schema = Arc::clone(&outer.schema);
            let columns = expanded(columns, &schema);
            let items = column_items(&context, &schema, &columns)?;
            let copied = |item: &Item| *copies.get(copied_column(&item.expr, &schema)?)?;
            copies = items.iter().map(copied).collect();
            inner = Some(outer);
            outer = Projection::compile(&context, &schema, items)?;
            text = format!("SELECT {} FROM ({text})", column_text(&columns)?);
        }
        let filtered = filter.is_some();
        let program = Program {
            filter,
            inner,
            outer,
        };
        let may_match = pruning.and_then(|condition| base.may_match(&condition));
        let mut units = Vec::new();
        let mut base_units = Vec::new();
        for (number, unit) in base.units().iter().enumerate() {
            if may_match.as_ref().and_then(|units| units.get(number)) == Some(&false) {
                continue;
            }
            units.push(Unit {
                first_row: unit.first_row.filter(|_| !filtered),
                rows: unit.rows.filter(|_| !filtered),
                ..*unit
            });
            base_units.push(number);
        }
        base.will_read(&base_units);
        let mut description = base.description().clone();
        description.query = Some(text);
        description.rows = description.rows.filter(|_| !filtered);
        let nulls = |copied: &Option<usize>| program.kept_nulls(base.null_count((*copied)?));
        Ok(Self {
            facts: TableFacts {
                schema: Arc::clone(&program.outer.schema),
                units,
                null_counts: copies.iter().map(nulls).collect(),
                description,
            },
            base,
            program: Arc::new(program),
            needed,
            copies,
            base_units,
        })
    }

    /// Returns the number of a row in a unit of the base before the filter. A filter is evaluated again; `None` if that
    /// fails, because the origin of a row is only shown in messages.
    fn unfiltered(&self, base_unit: usize, row: u64) -> Option<u64> {
        if self.program.filter.is_none() {
            return Some(row);
        }
        let mut rows = self.base.open(base_unit, &self.needed).ok()?;
        let (mut before, mut left) = (0, row);
        loop {
            let input = rows.next_batch().ok()??;
            let count = input.num_rows() as u64;
            let (kept, at) = match self.program.mask(&input).ok()? {
                Some(mask) => (mask.true_count() as u64, nth_kept(&mask, left)),
                None => (count, Some(left)),
            };
            if left < kept {
                return Some(before + at?);
            }
            before += count;
            left -= kept;
        }
    }
}

/// Returns `--column` options as the text of a select list.
pub(crate) fn column_text(columns: &[SelectColumn]) -> Result<String, Error> {
    let mut list = Vec::with_capacity(columns.len());
    for SelectColumn { name, expr, .. } in columns {
        let name = ast::Ident::with_quote('"', name);
        list.push(match expr {
            Some(text) => format!("{} AS {name}", parse_expr(COLUMN, text)?),
            None => name.to_string(),
        });
    }
    Ok(list.join(", "))
}

fn needed_columns<'a>(schema: &Schema, exprs: impl Iterator<Item = &'a Expr>) -> Vec<usize> {
    let columns = exprs.flat_map(Expr::column_refs);
    let needed = columns.filter_map(|column| schema.index_of(&column.name).ok());
    needed.collect::<BTreeSet<usize>>().into_iter().collect()
}

impl Source for Computed {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let number = self.base_units.get(unit).copied();
        let number = number.ok_or_else(|| error::no_unit(unit))?;
        let mut rows = self.base.open(number, &self.needed)?;
        let (program, columns) = (Arc::clone(&self.program), columns.to_vec());
        Ok(rows_from(move || {
            while let Some(input) = rows.next_batch()? {
                let kept = match program.mask(&input)? {
                    Some(mask) if mask.true_count() == 0 => continue,
                    Some(mask) if mask.true_count() < input.num_rows() => {
                        filter_record_batch(&input, &mask)
                            .map_err(|error| SourceProblem::SqlRun.at(WHERE, error.to_string()))?
                    }
                    _ => input,
                };
                return program.project(kept, &columns).map(Some);
            }
            Ok(None)
        }))
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let copied = self.copies.get(column).copied().flatten()?;
        let count = self
            .base
            .unit_null_count(*self.base_units.get(unit)?, copied);
        self.program.kept_nulls(count)
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        let number = self.base_units.get(unit).copied();
        let unfiltered = number.and_then(|number| Some((number, self.unfiltered(number, row)?)));
        match unfiltered {
            Some((number, row)) => self.base.row_origin(number, row),
            None => RowOrigin::of_result(row),
        }
    }
}

/// Returns the position in the input of the `nth` row that a mask keeps.
fn nth_kept(mask: &BooleanArray, nth: u64) -> Option<u64> {
    let nth = usize::try_from(nth).ok()?;
    let kept = mask
        .iter()
        .enumerate()
        .filter(|(_, value)| *value == Some(true));
    kept.map(|(at, _)| at as u64).nth(nth)
}
