//! Finds SQL clauses that the parser accepts but the engine ignores, and that would silently change the result.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Query, Select, TableFactor, Visit as _, Visitor};

/// Returns the first clause of a query that the engine ignores.
pub(crate) fn ignored_clause(query: &Query) -> Option<&'static str> {
    match query.visit(&mut Ignored) {
        ControlFlow::Break(clause) => Some(clause),
        ControlFlow::Continue(()) => None,
    }
}

struct Ignored;

/// Stops the visit at the first clause that is present.
fn first<const N: usize>(clauses: [(bool, &'static str); N]) -> ControlFlow<&'static str> {
    match clauses.iter().find(|(is_there, _)| *is_there) {
        Some((_, clause)) => ControlFlow::Break(clause),
        None => ControlFlow::Continue(()),
    }
}

impl Visitor for Ignored {
    type Break = &'static str;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        first([
            (!query.locks.is_empty(), "FOR UPDATE"),
            (query.for_clause.is_some(), "FOR"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
        ])
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        first([
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (select.value_table_mode.is_some(), "AS VALUE or AS STRUCT"),
            (select.exclude.is_some(), "EXCLUDE after `*`"),
            (select.select_modifiers.is_some(), "a modifier after SELECT"),
        ])
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => first([
                (sample.is_some(), "TABLESAMPLE"),
                (!partitions.is_empty(), "PARTITION"),
                (version.is_some(), "a version after the table name"),
                (
                    !with_hints.is_empty() || !index_hints.is_empty(),
                    "hints after the table name",
                ),
                (*with_ordinality, "WITH ORDINALITY"),
                (json_path.is_some(), "a path after the table name"),
            ]),
            TableFactor::Derived { sample, .. } => first([(sample.is_some(), "TABLESAMPLE")]),
            _ => ControlFlow::Continue(()),
        }
    }
}
