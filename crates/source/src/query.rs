//! Provides what expressions and queries share: parsing, a session, checks for unsupported features, and error
//! conversion.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error;
use crate::ignored_clauses::ignored_clause;
use crate::{SourceOptions, SourceProblem};
use shardmill_core::Error;
use shardmill_core::catch_panic::{catch, one_line};

/// The name of the only table.
pub(crate) const TABLE: &str = "source";

/// The deepest nesting of an expression or query.
const MAX_DEPTH: usize = 50;

/// Creates a session with reproducible results: one partition, names as spelled, no clock.
pub(crate) fn session(options: &SourceOptions, batch_rows: usize) -> Result<SessionContext, Error> {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(batch_rows.max(1))
        .with_information_schema(false);
    let parser = &mut config.options_mut().sql_parser;
    // Keep the case of column names: in lower case, columns with upper-case letters could not be found.
    parser.enable_ident_normalization = false;
    parser.map_string_types_to_utf8view = false;
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(limit) = options.resources.memory_limit {
        // The memory that a sort reserves for merging must leave it enough to sort.
        let execution = &mut config.options_mut().execution;
        let share = usize::try_from(limit / 4).unwrap_or(usize::MAX);
        execution.sort_spill_reservation_bytes = execution.sort_spill_reservation_bytes.min(share);
        runtime = runtime.with_memory_limit(usize::try_from(limit).unwrap_or(usize::MAX), 1.0);
    }
    if let Some(directory) = &options.resources.temp_dir {
        let mode = DiskManagerMode::Directories(vec![directory.clone()]);
        runtime = runtime.with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode));
    }
    let runtime = runtime.build_arc().map_err(|error| {
        SourceProblem::Option.at("--memory-limit", one_line(&error.strip_backtrace()))
    })?;
    Ok(SessionContext::new_with_config_rt(config, runtime))
}

fn syntax(clause: &'static str, error: &ParserError) -> Error {
    let reason = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => one_line(text),
        ParserError::RecursionLimitExceeded => format!("nested deeper than {MAX_DEPTH}"),
    };
    SourceProblem::SqlSyntax.at(clause, reason)
}

/// Parses one scalar expression.
pub(crate) fn parse_expr(clause: &'static str, text: &str) -> Result<ast::Expr, Error> {
    let expr = parse_with(clause, text, |parser| parser.parse_expr())?;
    refuse_queries(clause, &expr)?;
    Ok(expr)
}

/// Parses a select list.
pub(crate) fn parse_select(
    clause: &'static str,
    text: &str,
) -> Result<Vec<ast::SelectItem>, Error> {
    let items = parse_with(clause, text, |parser| parser.parse_projection())?;
    refuse_queries(clause, &items)?;
    Ok(items)
}

fn parse_with<T>(
    clause: &'static str,
    text: &str,
    parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<T, Error> {
    let parsed = catch(|| {
        let mut parser = Parser::new(&GenericDialect {})
            .with_recursion_limit(MAX_DEPTH)
            .try_with_sql(text)?;
        let parsed = parse(&mut parser)?;
        let rest = parser.peek_token();
        if rest.token == Token::EOF {
            Ok(parsed)
        } else {
            Err(ParserError::ParserError(format!(
                "nothing may follow here, found: {rest}"
            )))
        }
    });
    let parsed = parsed.map_err(|reason| SourceProblem::SqlSyntax.at(clause, reason))?;
    parsed.map_err(|error| syntax(clause, &error))
}

/// Refuses subqueries and window functions, because they depend on more than one row.
fn refuse_queries<V: ast::Visit>(clause: &'static str, parsed: &V) -> Result<(), Error> {
    let found = ast::visit_expressions(parsed, |expr| match expr {
        ast::Expr::Subquery(_) | ast::Expr::Exists { .. } | ast::Expr::InSubquery { .. } => {
            ControlFlow::Break("a subquery")
        }
        ast::Expr::Function(function) if function.over.is_some() => {
            ControlFlow::Break("a window function")
        }
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(what) => Err(refused(clause, what)),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn refused(clause: &'static str, what: &str) -> Error {
    SourceProblem::SqlRefused
        .at(clause, format!("{what} looks at more than one row"))
        .with_hint("use --sql, which can read the whole table")
}

/// Parses a query: exactly one statement, which only reads.
pub(crate) fn parse_query(clause: &'static str, text: &str) -> Result<Statement, Error> {
    let parsed = catch(|| {
        DFParserBuilder::new(text)
            .with_dialect(&GenericDialect {})
            .with_recursion_limit(MAX_DEPTH)
            .build()?
            .parse_statements()
    });
    let parsed = parsed.map_err(|reason| SourceProblem::SqlSyntax.at(clause, reason))?;
    let mut statements = parsed.map_err(|error| not_planned(error, clause))?;
    let only_select = |what: String| {
        SourceProblem::SqlRefused
            .at(clause, what)
            .with_hint("write one SELECT over the table `source`")
    };
    let count = statements.len();
    if count > 1 {
        return Err(only_select(format!("{count} statements are more than one")));
    }
    let Some(statement) = statements.pop_front() else {
        return Err(only_select("there is no statement".to_owned()));
    };
    if let Statement::Statement(inner) = &statement
        && let ast::Statement::Query(query) = inner.as_ref()
        && only_reads(&query.body)
    {
        return match ignored_clause(query) {
            None => Ok(statement),
            Some(name) => Err(SourceProblem::SqlRefused
                .at(clause, format!("{name} is not supported"))
                .with_hint("remove it, or use WHERE, ORDER BY and LIMIT")),
        };
    }
    let text = statement.to_string();
    let verb = text.split_whitespace().next().unwrap_or_default();
    let verb = one_line(verb);
    Err(only_select(format!("{verb} does not only read")))
}

fn only_reads(body: &ast::SetExpr) -> bool {
    match body {
        ast::SetExpr::Select(select) => select.into.is_none(),
        ast::SetExpr::Query(query) => only_reads(&query.body),
        ast::SetExpr::SetOperation { left, right, .. } => only_reads(left) && only_reads(right),
        ast::SetExpr::Values(_) => true,
        _ => false,
    }
}

/// Refuses anything that makes an expression more than a function of one row.
pub(crate) fn check_scalar(clause: &'static str, expr: &Expr) -> Result<(), Error> {
    let check = |expr: &Expr| {
        let what = match expr {
            Expr::AggregateFunction(function) => {
                &format!("the aggregate `{}`", function.func.name())
            }
            Expr::Unnest(_) => "`unnest`",
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Err(external(refused(clause, what)))
    };
    expr.apply(check)
        .map_err(|error| not_planned(error, clause))?;
    check_repeatable(clause, expr)
}

/// Refuses functions whose value does not depend on the row alone: the same input must produce the same bytes.
pub(crate) fn check_repeatable(clause: &'static str, expr: &Expr) -> Result<(), Error> {
    let check = |expr: &Expr| match expr {
        Expr::ScalarFunction(function)
            if function.func.signature().volatility != Volatility::Immutable =>
        {
            let name = one_line(function.func.name());
            let reason = format!("`{name}` gives another value each time");
            let hint = "write the value itself, so that the same input gives the same bytes";
            let error = SourceProblem::SqlRefused.at(clause, reason);
            Err(external(error.with_hint(hint)))
        }
        _ => Ok(TreeNodeRecursion::Continue),
    };
    expr.apply(check)
        .map_err(|error| not_planned(error, clause))?;
    Ok(())
}

/// Applies [`check_repeatable`] to every expression of a plan.
pub(crate) fn check_plan(clause: &'static str, plan: &LogicalPlan) -> Result<(), Error> {
    let walked = plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            check_repeatable(clause, expr).map_err(external)?;
            Ok(TreeNodeRecursion::Continue)
        })
    });
    walked.map_err(|error| not_planned(error, clause))?;
    Ok(())
}

/// Wraps an error so that it passes through the engine; [`convert`] unwraps it.
pub(crate) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn not_planned(error: DataFusionError, clause: &'static str) -> Error {
    convert(error, clause, &Schema::empty(), Phase::Plan, None)
}

/// Runs the engine, and converts its errors and panics.
pub(crate) fn run_engine<T>(
    clause: &'static str,
    schema: &Schema,
    phase: Phase,
    run: impl FnOnce() -> Result<T, DataFusionError>,
) -> Result<T, Error> {
    catch(run)
        .map_err(|panic| plain(clause, phase, &panic))?
        .map_err(|error| convert(error, clause, schema, phase, None))
}

/// When an error of the engine occurred.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Plan,
    Run,
}

/// Converts an error of the engine. An [`Error`] wrapped in it is unwrapped; any other error is shortened to one
/// line.
pub(crate) fn convert(
    error: DataFusionError,
    clause: &'static str,
    schema: &Schema,
    phase: Phase,
    memory_limit: Option<u64>,
) -> Error {
    let again = |error| convert(error, clause, schema, phase, memory_limit);
    let plain = |reason: &str| plain(clause, phase, reason);
    let unwrapped =
        |error: Box<dyn std::error::Error + Send + Sync>| match error.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => plain(&other.to_string()),
        };
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => again(*inner),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => again(first),
            None => plain("no reason given"),
        },
        DataFusionError::Shared(shared) => match Arc::try_unwrap(shared) {
            Ok(inner) => again(inner),
            Err(shared) => plain(&shared.strip_backtrace()),
        },
        DataFusionError::External(inner) => unwrapped(inner),
        DataFusionError::ArrowError(inner, _) => match *inner {
            ArrowError::ExternalError(inner) => unwrapped(inner),
            other => plain(&other.to_string()),
        },
        DataFusionError::SQL(inner, _) => syntax(clause, &inner),
        DataFusionError::SchemaError(inner, _) => match *inner {
            SchemaError::FieldNotFound { field, .. } => {
                error::no_column(clause, &field.name, schema)
            }
            other => plain(&other.to_string()),
        },
        DataFusionError::ResourcesExhausted(reason) => SourceProblem::SqlMemory.at(
            "--sql",
            format!(
                "the query needs more memory than its limit of {} bytes: {}",
                memory_limit.unwrap_or(0),
                one_line(&reason)
            ),
        ),
        DataFusionError::Plan(reason)
        | DataFusionError::NotImplemented(reason)
        | DataFusionError::Execution(reason) => plain(&reason),
        other => plain(&other.strip_backtrace()),
    }
}

fn plain(clause: &'static str, phase: Phase, reason: &str) -> Error {
    let reason = one_line(reason);
    match phase {
        Phase::Plan => SourceProblem::SqlPlan.at(clause, reason),
        Phase::Run => SourceProblem::SqlRun.at(clause, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_read_only_query_is_accepted() {
        for text in [
            "SELECT 1",
            "select * from source where a > 1;",
            "WITH t AS (SELECT 1) SELECT * FROM t",
            "SELECT 1 UNION ALL SELECT 2",
            "VALUES (1)",
        ] {
            parse_query("--sql", text).unwrap();
        }
        for text in [
            "",
            ";",
            "SELECT 1; SELECT 2",
            "CREATE TABLE t AS SELECT 1",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
            "COPY source TO '/tmp/x.csv'",
            "INSERT INTO source VALUES (1)",
            "DROP TABLE source",
            "EXPLAIN SELECT 1",
            "SET datafusion.execution.target_partitions = 8",
            "SELECT * INTO t FROM source",
            "DELETE FROM source",
        ] {
            let error = parse_query("--sql", text).unwrap_err();
            assert_eq!(error.id(), "sql-refused", "{text}: {error}");
        }
        for text in ["SELEC 1", "SELECT (1", "SELECT 'a"] {
            assert_eq!(
                parse_query("--sql", text).unwrap_err().id(),
                "sql-syntax",
                "{text}"
            );
        }
        let deep = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert_eq!(
            parse_query("--sql", &deep).unwrap_err().to_string(),
            "nested deeper than 50"
        );
    }

    #[test]
    fn trailing_sql_and_subqueries_in_expressions_are_errors() {
        parse_expr("--where", "a > 1 AND b LIKE 'x%'").unwrap();
        for (text, id) in [
            ("a > 1; DROP TABLE source", "sql-syntax"),
            ("a > 1 FROM source", "sql-syntax"),
            ("", "sql-syntax"),
            ("a > (SELECT max(a) FROM source)", "sql-refused"),
            ("EXISTS (SELECT 1)", "sql-refused"),
            ("a IN (SELECT 1)", "sql-refused"),
            ("row_number() OVER () = 1", "sql-refused"),
        ] {
            let error = parse_expr("--where", text).unwrap_err();
            assert_eq!(error.id(), id, "{text}: {error}");
        }
        assert_eq!(parse_select("--select", "a, b AS c, *").unwrap().len(), 3);
        assert_eq!(
            parse_select("--select", "a FROM source").unwrap_err().id(),
            "sql-syntax"
        );
    }
}
