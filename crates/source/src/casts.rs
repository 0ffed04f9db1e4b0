//! The types that expressions cast columns to: a column that is never used without the same cast is read as that
//! type from every file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::ExprSchemable as _;
use datafusion::sql::sqlparser::ast;

use crate::expr::{named_schema, plan_expr, wildcard_exceptions};
use crate::query::{parse_expr, parse_select, session};
use crate::{ReadAs, SourceError, SourceOptions};

/// How expressions use the columns of a source.
#[derive(Default)]
struct Uses {
    /// How often each column is used.
    all: BTreeMap<String, usize>,
    /// The casts of each column.
    casts: BTreeMap<String, Vec<ast::Expr>>,
    /// The names that are not used by the wildcards.
    unlisted: Option<BTreeSet<String>>,
}

/// The options, with the types that columns are cast to.
///
/// # Errors
///
/// `sql-*` errors of expressions that do not parse.
pub(crate) fn with_casts(options: &SourceOptions) -> Result<SourceOptions, SourceError> {
    let mut options = options.clone();
    if options.sql.is_some() {
        return Ok(options);
    }
    let mut uses = Uses::default();
    if let Some(text) = &options.filter {
        uses.add(&parse_expr("--where", text)?);
    }
    match &options.select {
        Some(text) => {
            for item in parse_select("--select", text)? {
                uses.add_item(&item);
            }
        }
        None if options.columns.is_empty() => uses.unlisted = Some(BTreeSet::new()),
        None => {
            for column in &options.columns {
                match &column.expr {
                    Some(text) => uses.add(&parse_expr("--column", text)?),
                    None => uses.count(&column.name),
                }
            }
        }
    }
    let found = uses.finish(&options)?;
    options.read_as.extend(found);
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

    /// The columns of which every use is a cast to the same type.
    fn finish(self, options: &SourceOptions) -> Result<Vec<ReadAs>, SourceError> {
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
                // A null has no type of its own, so the type of the cast is all that is left.
                if let ast::Expr::Cast { expr, .. } = &mut cast {
                    **expr = ast::Expr::value(ast::Value::Null);
                }
                let schema = Schema::empty();
                let named = named_schema("--column", &schema)?;
                let planned = plan_expr(&context, "--column", &schema, cast);
                // What cannot be planned is reported when the expression is.
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

/// The column that an expression is: `name` or `source.name`.
fn column_name(expr: &ast::Expr) -> Option<&str> {
    match expr {
        ast::Expr::Identifier(name) => Some(&name.value),
        ast::Expr::CompoundIdentifier(parts) => parts.last().map(|part| part.value.as_str()),
        _ => None,
    }
}
