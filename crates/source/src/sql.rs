//! Runs a whole query: the engine reads a source, and the result is one unit.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result as EngineResult};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use futures::StreamExt as _;
use tokio::runtime::{Builder, Runtime};

use crate::base::{open_columns, pick, project, rows_from};
use crate::error;
use crate::expr::{Projection, column_items, column_text, expanded};
use crate::query::{Phase, TABLE, check_plan, convert, external, parse_query, run_engine, session};
use crate::slices::Slices;
use crate::{Rows, Source, SourceDescription, SourceOptions, SourceProblem, TableFacts, Unit};
use shardmill_core::Error;
use shardmill_core::catch_panic::catch;

const SQL: &str = "--sql";

/// A query over a source.
pub(crate) struct Query {
    engine: Arc<Engine>,
    columns: Option<Arc<Projection>>,
    facts: TableFacts,
    batch_bytes: usize,
}

struct Engine {
    context: SessionContext,
    plan: LogicalPlan,
    input: SchemaRef,
    memory_limit: Option<u64>,
}

impl Query {
    /// Parses and plans the query.
    pub(crate) fn new(base: Arc<dyn Source>, options: &SourceOptions) -> Result<Self, Error> {
        let statement = parse_query(SQL, options.query.sql.as_deref().unwrap_or_default())?;
        let mut text = statement.to_string();
        let batch_bytes = options.resources.batch_bytes;
        let context = session(options, engine_rows(base.description(), batch_bytes))?;
        let input = base.schema();
        let table = Arc::new(SourceTable(Arc::clone(&base)));
        let runtime = runtime()?;
        let plan = run_engine(SQL, &input, Phase::Plan, || {
            context.register_table(TABLE, table)?;
            runtime.block_on(logical_plan(&context, statement))
        })?;
        check_plan(SQL, &plan)?;
        let physical = run_engine(SQL, &input, Phase::Plan, || {
            runtime.block_on(context.state().create_physical_plan(&plan))
        })?;
        let mut schema = physical.schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        error::check_names(names, || SQL.to_owned())?;
        let mut columns = None;
        if !options.query.columns.is_empty() {
            let wanted = expanded(&options.query.columns, &schema);
            let items = column_items(&context, &schema, &wanted)?;
            let projection = Projection::compile(&context, &schema, items)?;
            schema = Arc::clone(projection.schema());
            columns = Some(Arc::new(projection));
            let list = column_text(&wanted)?;
            text = format!("SELECT {list} FROM ({text})");
        }
        let mut description = base.description().clone();
        description.query = Some(text);
        description.rows = None;
        let unit = Unit {
            bytes: description.bytes,
            ..Unit::default()
        };
        Ok(Self {
            engine: Arc::new(Engine {
                context,
                plan,
                input,
                memory_limit: options.resources.memory_limit,
            }),
            columns,
            facts: TableFacts {
                null_counts: vec![None; schema.fields().len()],
                schema,
                units: vec![unit],
                description,
            },
            batch_bytes,
        })
    }
}

async fn logical_plan(context: &SessionContext, statement: Statement) -> EngineResult<LogicalPlan> {
    let plan = context.state().statement_to_plan(statement).await?;
    let read_only = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    read_only.verify_plan(&plan)?;
    Ok(plan)
}

fn runtime() -> Result<Runtime, Error> {
    Builder::new_current_thread()
        .build()
        .map_err(|error| error::io("start the query engine", "", error))
}

/// Returns how many rows the engine collects in a batch: fewer if rows are large.
fn engine_rows(description: &SourceDescription, batch_bytes: usize) -> usize {
    const MAX: u64 = 8192;
    let per_row = description
        .rows
        .map_or(0, |rows| description.bytes / rows.max(1))
        .max(1);
    let rows = (batch_bytes as u64).saturating_mul(4) / per_row;
    usize::try_from(rows.clamp(64, MAX)).unwrap_or(64)
}

impl Source for Query {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        if unit != 0 {
            return Err(error::no_unit(unit));
        }
        let engine = Arc::clone(&self.engine);
        let runtime = runtime()?;
        let stream = catch(|| {
            runtime.block_on(async {
                let physical = engine
                    .context
                    .state()
                    .create_physical_plan(&engine.plan)
                    .await?;
                execute_stream(physical, engine.context.task_ctx())
            })
        });
        let stream = stream
            .map_err(|panic| SourceProblem::SqlPlan.at(SQL, panic))?
            .map_err(|error| engine.failed(error))?;
        let mut rows = QueryRows {
            stream,
            runtime,
            engine,
            computed: self.columns.clone(),
            schema: project(&self.facts.schema, columns),
            columns: columns.to_vec(),
            slices: Slices::new(self.batch_bytes),
        };
        Ok(rows_from(move || rows.pull()))
    }
}

impl Engine {
    fn failed(&self, error: DataFusionError) -> Error {
        convert(error, SQL, &self.input, Phase::Run, self.memory_limit)
    }
}

struct QueryRows {
    /// Declared before the runtime that drives it, so that it is dropped first.
    stream: SendableRecordBatchStream,
    runtime: Runtime,
    engine: Arc<Engine>,
    computed: Option<Arc<Projection>>,
    schema: SchemaRef,
    columns: Vec<usize>,
    slices: Slices,
}

impl QueryRows {
    fn pull(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(slice) = self.slices.next() {
                return Ok(Some(slice));
            }
            match catch(|| self.runtime.block_on(self.stream.next())) {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(found))) => self.slices.push(match &self.computed {
                    Some(computed) => computed.apply(&found, &self.columns)?,
                    None => pick(&found, &self.columns, &self.schema)?,
                }),
                Ok(Some(Err(error))) => return Err(self.engine.failed(error)),
                Err(reason) => return Err(SourceProblem::SqlRun.at(SQL, reason)),
            }
        }
    }
}

impl fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TABLE)
    }
}

/// The table that a query reads.
#[derive(Debug)]
struct SourceTable(Arc<dyn Source>);

#[async_trait]
impl TableProvider for SourceTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let columns = projection
            .cloned()
            .unwrap_or_else(|| (0..self.0.facts().schema.fields().len()).collect());
        self.0.check_columns(&columns).map_err(external)?;
        let schema = project(&self.0.facts().schema, &columns);
        let scan = Scan {
            base: Arc::clone(&self.0),
            schema: Arc::clone(&schema),
            columns,
        };
        let scans: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(scan)];
        let plan = StreamingTableExec::try_new(schema, scans, None, Vec::new(), false, limit)?;
        Ok(Arc::new(plan))
    }
}

/// Reads some columns of all units, one after the other.
#[derive(Debug)]
struct Scan {
    base: Arc<dyn Source>,
    schema: SchemaRef,
    columns: Vec<usize>,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (base, columns) = (Arc::clone(&self.base), self.columns.clone());
        let mut units = 0..base.units().len();
        let mut current: Option<Box<dyn Rows>> = None;
        let mut pull = move || -> Result<Option<RecordBatch>, Error> {
            loop {
                if let Some(rows) = &mut current
                    && let Some(found) = rows.next_batch()?
                {
                    return Ok(Some(found));
                }
                let next = units.next();
                let open = |unit| open_columns(base.as_ref(), unit, &columns);
                current = next.map(open).transpose()?;
                if current.is_none() {
                    return Ok(None);
                }
            }
        };
        let batches = std::iter::from_fn(move || pull().map_err(external).transpose());
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(batches),
        ))
    }
}
