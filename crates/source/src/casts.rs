//! Finds the types that expressions cast columns to. If every use of a column is a cast to the same type, all files are
//! read with that type.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use shardmill_core::Error;

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::ExprSchemable as _;
use datafusion::sql::sqlparser::ast;

use crate::expr::{named_columns, named_schema, plan_expr, wildcard_exceptions};
use crate::query::{parse_expr, parse_select, session};
use crate::{ReadAs, SourceOptions};

/// How expressions use the columns of a source.
#[derive(Default)]
struct Uses {
    /// How often each column occurs.
    all: BTreeMap<String, usize>,
    /// The casts of each column.
    casts: BTreeMap<String, Vec<ast::Expr>>,
    /// The columns that every wildcard excludes; `None` without a wildcard.
    unlisted: Option<BTreeSet<String>>,
}

/// Returns the options, extended by the types that columns are cast to.
pub(crate) fn with_casts(options: &SourceOptions) -> Result<SourceOptions, Error> {
    let mut options = options.clone();
    if options.query.sql.is_some() {
        return Ok(options);
    }
    let mut uses = Uses::default();
    if let Some(text) = &options.query.filter {
        uses.add(&parse_expr("--where", text)?);
    }
    match &options.query.select {
        Some(text) => {
            for item in parse_select("--select", text)? {
                uses.add_item(&item);
            }
        }
        None if options.query.columns.is_empty() => uses.unlisted = Some(BTreeSet::new()),
        None => {
            for column in &options.query.columns {
                match &column.expr {
                    _ if column.is_rest => {
                        uses.unlisted = Some(named_columns(&options.query.columns));
                    }
                    Some(text) => uses.add(&parse_expr("--column", text)?),
                    None => uses.count(&column.name),
                }
            }
        }
    }
    let found = uses.finish(&options)?;
    options.schema.read_as.extend(found);
    Ok(options)
}

impl Uses {
    fn count(&mut self, name: &str) {
        *self.all.entry(name.to_owned()).or_default() += 1;
    }

    fn add_item(&mut self, item: &ast::SelectItem) {
        match item {
            ast::SelectItem::UnnamedExpr(expr)
            | ast::SelectItem::ExprWithAlias { expr, .. }
            | ast::SelectItem::ExprWithAliases { expr, .. } => self.add(expr),
            ast::SelectItem::Wildcard(options) => {
                let names = wildcard_exceptions(options);
                self.unlisted = Some(match self.unlisted.take() {
                    None => names,
                    Some(before) => before.intersection(&names).cloned().collect(),
                });
            }
            ast::SelectItem::QualifiedWildcard(..) => self.unlisted = Some(BTreeSet::new()),
        }
    }

    fn add(&mut self, expr: &ast::Expr) {
        let walked: ControlFlow<()> = ast::visit_expressions(expr, |expr| {
            if let Some(name) = column_name(expr) {
                self.count(name);
            }
            if let ast::Expr::Cast { kind, expr: of, .. } = expr
                && !matches!(kind, ast::CastKind::TryCast | ast::CastKind::SafeCast)
                && let Some(name) = column_name(of)
            {
                let casts = self.casts.entry(name.to_owned()).or_default();
                casts.push(expr.clone());
            }
            ControlFlow::Continue(())
        });
        debug_assert!(walked.is_continue(), "nothing stops the walk");
    }

    /// Returns the columns of which every use is a cast to the same type.
    fn finish(self, options: &SourceOptions) -> Result<Vec<ReadAs>, Error> {
        let mut found = Vec::new();
        if self.casts.is_empty() {
            return Ok(found);
        }
        let context = session(options, 1)?;
        for (name, casts) in self.casts {
            let is_listed = |names: &BTreeSet<String>| !names.contains(&name);
            if self.unlisted.as_ref().is_some_and(is_listed)
                || self.all.get(&name) != Some(&casts.len())
            {
                continue;
            }
            let mut types: Vec<DataType> = Vec::new();
            for mut cast in casts {
                // A null has no type of its own, so the planned expression has the type of the cast.
                if let ast::Expr::Cast { expr, .. } = &mut cast {
                    **expr = ast::Expr::value(ast::Value::Null);
                }
                let schema = Schema::empty();
                let named = named_schema("--column", &schema)?;
                let planned = plan_expr(&context, "--column", &schema, cast);
                // Ignore a cast that cannot be planned: planning the expression itself reports the error.
                if let Some(data_type) = planned.ok().and_then(|expr| expr.get_type(&named).ok())
                    && !types.contains(&data_type)
                {
                    types.push(data_type);
                }
            }
            if let [data_type] = types.as_slice() {
                found.push(ReadAs {
                    name,
                    data_type: data_type.clone(),
                    exact: false,
                });
            }
        }
        Ok(found)
    }
}

/// Returns the name of the column that an expression consists of: `name` or `source.name`.
fn column_name(expr: &ast::Expr) -> Option<&str> {
    match expr {
        ast::Expr::Identifier(name) => Some(&name.value),
        ast::Expr::CompoundIdentifier(parts) => parts.last().map(|part| part.value.as_str()),
        _ => None,
    }
}
