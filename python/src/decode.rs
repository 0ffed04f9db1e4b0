//! Decoding of sample bytes to Python values.
//!
//! Each schema is compiled once. Rust creates the objects for text, bytes and numbers. A Python callable decodes values
//! for which Python has a library, such as images, JSON and decimals.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use shardmill_core::{ErrorKind, Limits, lock};
use shardmill_dataset::{KEY_COLUMN, SampleForm, Schema};
use shardmill_mds::{DType, Encoding, Layout, Value, decode};
use shardmill_mmap::{Buffer, Pool};
use shardmill_reader::{Batch, BatchData, BatchWindow, ColumnData};

use crate::block::{Block, numpy_array, type_string};
use crate::errors::{bug, null_value, raise_with};
use crate::windows::{merged, padding_of, stacked, width_of};

/// The size of the memory pool for arrays with a shape in each value, in bytes.
const POOL_BYTES: usize = 32 << 20;

/// How the values of a column become objects.
#[derive(Debug)]
enum Kind {
    Bytes,
    Str,
    /// A Python integer.
    Int,
    /// A NumPy scalar.
    Number(DType),
    /// A NumPy array with the type and shape of its column.
    Array(DType, Vec<u64>),
    /// A NumPy array with a header that describes it.
    AnyArray(Encoding),
    /// A value decoded by the callable, with the name of the encoding.
    Other(Py<PyString>),
    /// A field decoded by the callable for fields, with the name of the field.
    Field,
    /// A value of an encoding of this name, whose class another process registered and this one did not.
    Missing(Py<PyString>),
}

pub(crate) struct Column {
    name: String,
    key: Py<PyString>,
    kind: Kind,
    size: Option<usize>,
    /// The position of the column that marks its nulls.
    null_mask: Option<usize>,
    /// Whether it marks the nulls of another column, and is none of the samples.
    is_mask: bool,
}

/// The compiled columns of a schema.
pub(crate) enum Plan {
    Columns(Vec<Column>),
    /// Lines of text, which `decode_line` of the package decodes with this layout.
    Lines(Py<PyAny>),
}

impl Plan {
    /// Returns whether no callable is needed.
    pub(crate) fn is_native(&self) -> bool {
        match self {
            Self::Columns(columns) => !columns.iter().any(|column| {
                matches!(column.kind, Kind::Other(_) | Kind::Field | Kind::Missing(_))
            }),
            Self::Lines(_) => false,
        }
    }
}

/// A schema, its plan, and the encodings that Rust decodes in place of their classes in Python.
struct Compiled {
    // Holding the schema keeps its address from being reused.
    _schema: Arc<Schema>,
    plan: Arc<Plan>,
    /// The names of the encodings, with their classes.
    native: Vec<(Py<PyString>, Py<PyAny>)>,
}

impl Compiled {
    /// Returns whether the program has not registered other classes since.
    fn is_current(&self, py: Python<'_>) -> bool {
        let same = |(name, class): &(Py<PyString>, Py<PyAny>)| {
            let found = encodings(py).and_then(|encodings| encodings.get_item(name));
            found.is_ok_and(|found| found.is_some_and(|found| found.is(class)))
        };
        self.native.iter().all(same)
    }
}

/// Plans by the address of their schema.
type Plans = HashMap<usize, Compiled>;

/// Compiles schemas and decodes samples.
pub(crate) struct Decoder {
    /// `decode(encoding, data)` for values that Rust does not decode; by default `mds_decode` of the package.
    decode_value: Option<Py<PyAny>>,
    /// `decode_field(field, data)` for fields of tar files; without it fields are bytes.
    decode_field: Option<Py<PyAny>>,
    /// The class of the samples, which is a dict, if they have different columns.
    sample_class: Option<Py<PyAny>>,
    /// Whether columns that mark nulls are columns of the samples, and nulls are zeros.
    shows_masks: bool,
    plans: Mutex<Plans>,
    pool: Arc<Pool>,
    limits: Limits,
}

/// A column of a batch for Python, prepared without the interpreter lock.
enum Ready {
    /// Numbers, each value of the given shape.
    Numbers(Buffer, DType, Vec<u64>),
    /// Values that are decoded one by one.
    Values(ColumnData),
}

/// Which values of a column of a batch are null.
struct Nulls {
    /// 1 for each null.
    marks: Vec<u8>,
    /// The first sample with a null.
    first: u64,
}

/// The mark of a list of numbers with a null inside.
const NULL_INSIDE: u8 = 2;

/// A batch whose columns are ready for conversion to objects.
pub(crate) struct ReadyBatch {
    samples: usize,
    data: ReadyData,
    window: Option<BatchWindow>,
}

enum ReadyData {
    Columns(Arc<Plan>, Vec<(Ready, Option<Nulls>)>),
    Samples(Vec<Arc<Plan>>, Vec<u64>, Buffer),
}

impl Decoder {
    pub(crate) fn new(
        decode_value: Option<Py<PyAny>>,
        decode_field: Option<Py<PyAny>>,
        limits: Limits,
    ) -> Self {
        Self {
            decode_value,
            decode_field,
            sample_class: None,
            shows_masks: false,
            plans: Mutex::new(HashMap::new()),
            pool: Pool::new(POOL_BYTES),
            limits,
        }
    }

    /// Returns the decoder for which columns that mark nulls are columns like others.
    pub(crate) fn with_masks(mut self) -> Self {
        self.shows_masks = true;
        self
    }

    /// Returns the decoder of samples of these schemas, whose class shows if they have different columns.
    pub(crate) fn for_schemas(mut self, py: Python<'_>, schemas: &[Arc<Schema>]) -> PyResult<Self> {
        let is_partial = |schema: &Arc<Schema>| matches!(**schema, Schema::Fields(_));
        let is_same = |pair: &[Arc<Schema>]| match pair {
            [one, other] => one.names() == other.names(),
            _ => true,
        };
        if schemas.iter().any(is_partial) || !schemas.windows(2).all(is_same) {
            let class = py.import("shardmill.base._collate")?;
            self.sample_class = Some(class.call_method0("partial_samples")?.unbind());
        }
        Ok(self)
    }

    /// Returns a sample without values.
    fn new_sample<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match &self.sample_class {
            Some(class) => Ok(class.bind(py).call0()?.cast_into()?),
            None => Ok(PyDict::new(py)),
        }
    }

    /// Returns the plan for a schema.
    pub(crate) fn plan(&self, py: Python<'_>, schema: &Arc<Schema>) -> PyResult<Arc<Plan>> {
        let address = Arc::as_ptr(schema).addr();
        // Do not hold the lock while Python runs. Looking up a class runs no code of Python.
        let known = lock(&self.plans)
            .get(&address)
            .filter(|compiled| compiled.is_current(py))
            .map(|compiled| Arc::clone(&compiled.plan));
        if let Some(plan) = known {
            return Ok(plan);
        }
        let mut native = Vec::new();
        let decodes_fields = self.decode_field.is_some();
        let plan = compile(py, schema, decodes_fields, self.shows_masks, &mut native)?;
        let compiled = Compiled {
            _schema: Arc::clone(schema),
            plan: Arc::new(plan),
            native,
        };
        let plan = Arc::clone(&compiled.plan);
        lock(&self.plans).insert(address, compiled);
        Ok(plan)
    }

    /// Returns the plans for a batch, for [`Self::ready`].
    pub(crate) fn plans_of(&self, py: Python<'_>, batch: &Batch) -> PyResult<Vec<Arc<Plan>>> {
        match &batch.data {
            BatchData::Columns { schema, .. } => Ok(vec![self.plan(py, schema)?]),
            BatchData::Samples { schemas, .. } => {
                schemas.iter().map(|schema| self.plan(py, schema)).collect()
            }
        }
    }

    /// Checks and prepares a batch without the interpreter lock.
    pub(crate) fn ready(&self, batch: Batch, mut plans: Vec<Arc<Plan>>) -> PyResult<ReadyBatch> {
        let samples = batch.len();
        let (entries, window) = (batch.entries, batch.window);
        let sample_of = |position: usize| entries.get(position).map_or(0, |entry| entry.sample.0);
        let data = match batch.data {
            BatchData::Columns { columns, .. } => {
                let plan = plans.pop().ok_or_else(|| bug("a batch without a plan"))?;
                let Plan::Columns(kinds) = &*plan else {
                    return Err(bug("lines in columns"));
                };
                let nulls = kinds
                    .iter()
                    .map(|column| nulls_of(column, &columns, &sample_of));
                let nulls = nulls.collect::<PyResult<Vec<_>>>()?;
                let mut ready = Vec::with_capacity(columns.len());
                for ((column, data), nulls) in kinds.iter().zip(columns).zip(nulls) {
                    let width = width_of(window.as_ref(), &column.name);
                    let values = match (&column.kind, &nulls) {
                        // The zero in place of a null has another shape.
                        (Kind::AnyArray(_), Some(_)) => Ready::Values(data),
                        _ => self.ready_column(column, data, (samples, width), &sample_of)?,
                    };
                    ready.push((values, nulls));
                }
                ReadyData::Columns(plan, ready)
            }
            BatchData::Samples { offsets, bytes, .. } => ReadyData::Samples(plans, offsets, bytes),
        };
        Ok(ReadyBatch {
            samples,
            data,
            window,
        })
    }

    fn ready_column(
        &self,
        column: &Column,
        data: ColumnData,
        (samples, width): (usize, Option<usize>),
        sample_of: &dyn Fn(usize) -> u64,
    ) -> PyResult<Ready> {
        let values = samples.saturating_mul(width.unwrap_or(1));
        // The values of a window are the first dimension of each sample.
        let shaped = |shape: &[u64]| {
            let width = width.map(|width| width as u64);
            width.iter().chain(shape).copied().collect::<Vec<u64>>()
        };
        match (&column.kind, data) {
            (Kind::Number(dtype), ColumnData::Fixed { bytes, .. }) => {
                Ok(Ready::Numbers(bytes, *dtype, shaped(&[])))
            }
            (Kind::Array(dtype, shape), ColumnData::Fixed { bytes, .. }) => {
                Ok(Ready::Numbers(bytes, *dtype, shaped(shape)))
            }
            (Kind::AnyArray(encoding), data) => Ok(match self.dense(encoding, &data, values)? {
                Some((bytes, dtype, shape)) => Ready::Numbers(bytes, dtype, shaped(&shape)),
                None => Ready::Values(data),
            }),
            (Kind::Str, data) => {
                check_text(&data, values).map_err(|position| {
                    not_utf8(
                        sample_of(position / width.unwrap_or(1).max(1)),
                        &column.name,
                    )
                })?;
                Ok(Ready::Values(data))
            }
            (_, data) => Ok(Ready::Values(data)),
        }
    }

    /// Merges arrays of the same type and shape; `None` if they differ or one cannot be decoded.
    fn dense(
        &self,
        encoding: &Encoding,
        data: &ColumnData,
        samples: usize,
    ) -> PyResult<Option<(Buffer, DType, Vec<u64>)>> {
        let Some(first) = data.value(0) else {
            return Ok(None);
        };
        let Ok(Value::NdArray(array)) = decode(encoding, first, &self.limits) else {
            return Ok(None);
        };
        let Some(head) = first.len().checked_sub(array.data.len()) else {
            return Ok(None);
        };
        let header = first.get(..head).unwrap_or_default();
        let same = |value: &[u8]| value.len() == first.len() && value.starts_with(header);
        if !(0..samples).all(|sample| data.value(sample).is_some_and(same)) {
            return Ok(None);
        }
        let bytes = array.data.len().saturating_mul(samples);
        let mut buffer = self.pool.take(bytes).map_err(memory)?;
        buffer.clear();
        for sample in 0..samples {
            let value = data.value(sample).and_then(|value| value.get(head..));
            buffer
                .extend_from_slice(value.unwrap_or_default())
                .map_err(memory)?;
        }
        Ok(Some((buffer, array.dtype, array.shape)))
    }

    /// Returns the samples of a batch as dicts.
    pub(crate) fn dicts<'py>(
        &self,
        py: Python<'py>,
        batch: ReadyBatch,
    ) -> PyResult<Bound<'py, PyList>> {
        let samples = batch.samples;
        match batch.data {
            ReadyData::Columns(plan, ready) => {
                let Plan::Columns(columns) = &*plan else {
                    return Err(bug("lines in columns"));
                };
                let mut dicts = Vec::with_capacity(samples);
                for _ in 0..samples {
                    dicts.push(self.new_sample(py)?);
                }
                let window = batch.window.as_ref();
                for (column, (data, nulls)) in columns.iter().zip(ready) {
                    if column.is_mask {
                        continue;
                    }
                    let width = width_of(window, &column.name);
                    let values = self.values_of(py, column, (data, nulls), samples, width)?;
                    for (dict, value) in dicts.iter().zip(values) {
                        dict.set_item(column.key.bind(py), value)?;
                    }
                    if let Some((name, mask)) = padding_of(py, window, &column.name, samples)? {
                        for (dict, flags) in dicts.iter().zip(mask.try_iter()?) {
                            dict.set_item(&name, flags?)?;
                        }
                    }
                }
                PyList::new(py, dicts)
            }
            ReadyData::Samples(plans, offsets, bytes) => {
                let list = PyList::empty(py);
                for (plan, range) in plans.iter().zip(offsets.windows(2)) {
                    let &[begin, end] = range else {
                        return Err(bug("an offset without a neighbour"));
                    };
                    let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
                    let sample = range.and_then(|(begin, end)| bytes.as_slice().get(begin..end));
                    let sample = sample.ok_or_else(|| bug("a sample beyond its batch"))?;
                    list.append(self.sample(py, plan, sample)?)?;
                }
                match &batch.window {
                    Some(window) => merged(py, window, &list, || self.new_sample(py)),
                    None => Ok(list),
                }
            }
        }
    }

    /// Returns the values of a column, one for each sample.
    fn values_of<'py>(
        &self,
        py: Python<'py>,
        column: &Column,
        (data, nulls): (Ready, Option<Nulls>),
        samples: usize,
        width: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let is_null = |at| is_null(nulls.as_ref(), at);
        let null = || py.None().into_bound(py);
        match data {
            Ready::Numbers(buffer, dtype, shape) => {
                let values = array(py, buffer, dtype, shape, samples)?;
                let values = values.try_iter()?.enumerate();
                values
                    .map(|(at, value)| if is_null(at) { Ok(null()) } else { value })
                    .collect()
            }
            Ready::Values(data) => {
                let value = |at| match is_null(at) {
                    true => Ok(null()),
                    false => self.value_of(py, column, &data, at, width),
                };
                (0..samples).map(value).collect()
            }
        }
    }

    /// Returns the value of a column of a sample, or its window.
    fn value_of<'py>(
        &self,
        py: Python<'py>,
        column: &Column,
        data: &ColumnData,
        sample: usize,
        width: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let value = |position| {
            let value = data.value(position);
            let value = value.ok_or_else(|| bug("a value beyond its column"))?;
            self.value(py, column, value)
        };
        let Some(width) = width else {
            return value(sample);
        };
        let positions = sample * width..(sample + 1) * width;
        let values = positions.map(value).collect::<PyResult<Vec<_>>>()?;
        stacked(py, &PyList::new(py, values)?)
    }

    /// Returns the columns of a batch as a dict: a [`Block`] for numbers, a list for other values. If samples have
    /// different columns, returns a list of dicts. With `only`, other columns are not decoded.
    pub(crate) fn columns_or_dicts<'py>(
        &self,
        py: Python<'py>,
        batch: ReadyBatch,
        only: Option<&HashSet<String>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ReadyData::Columns(plan, ready) = batch.data else {
            return Ok(self.dicts(py, batch)?.into_any());
        };
        let (samples, window) = (batch.samples, batch.window.as_ref());
        let Plan::Columns(columns) = &*plan else {
            return Err(bug("lines in columns"));
        };
        let dict = PyDict::new(py);
        for (column, (data, nulls)) in columns.iter().zip(ready) {
            if column.is_mask || only.is_some_and(|only| !only.contains(&column.name)) {
                continue;
            }
            let key = column.key.bind(py);
            match data {
                Ready::Numbers(..) if let Some(nulls) = nulls => {
                    return Err(null_in_batch(column, nulls.first));
                }
                Ready::Numbers(buffer, dtype, shape) => {
                    dict.set_item(key, block(py, buffer, dtype, shape, samples)?)?;
                }
                data @ Ready::Values(_) => {
                    let width = width_of(window, &column.name);
                    let values = self.values_of(py, column, (data, nulls), samples, width)?;
                    dict.set_item(key, PyList::new(py, values)?)?;
                }
            }
            if let Some((name, mask)) = padding_of(py, window, &column.name, samples)? {
                dict.set_item(name, mask)?;
            }
        }
        Ok(dict.into_any())
    }

    /// Returns one sample as a dict.
    pub(crate) fn sample<'py>(
        &self,
        py: Python<'py>,
        plan: &Plan,
        sample: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let columns = match plan {
            Plan::Columns(columns) => columns,
            Plan::Lines(layout) => {
                static DECODE_LINE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let decode = DECODE_LINE.import(py, "shardmill.base._lines", "decode_line")?;
                let sample = decode.call1((layout, sample))?;
                return match &self.sample_class {
                    Some(class) => class.bind(py).call1((sample,)),
                    None => Ok(sample),
                };
            }
        };
        let short = || {
            let message = "a sample is shorter than its columns".to_owned();
            raise_with(ErrorKind::Corrupt, "sample-size", message)
        };
        let dict = self.new_sample(py)?;
        let mut cells = Vec::with_capacity(columns.len());
        let variable = columns.iter().filter(|column| column.size.is_none());
        let mut head = sample;
        let mut rest = sample.get(variable.count() * 4..).ok_or_else(short)?;
        for column in columns {
            let size = match column.size {
                Some(size) => size,
                None => {
                    let (length, tail) = head.split_first_chunk::<4>().ok_or_else(short)?;
                    head = tail;
                    usize::try_from(u32::from_le_bytes(*length)).map_err(|_| short())?
                }
            };
            let (value, tail) = rest.split_at_checked(size).ok_or_else(short)?;
            rest = tail;
            cells.push(value);
        }
        if !rest.is_empty() {
            let message = format!("a sample has {} bytes after its columns", rest.len());
            return Err(raise_with(ErrorKind::Corrupt, "sample-size", message));
        }
        for (column, value) in columns.iter().zip(&cells) {
            if column.is_mask {
                continue;
            }
            let mark = column.null_mask.and_then(|at| cells.get(at)?.first());
            let value = match mark.copied() {
                None | Some(0) => self.value(py, column, value)?,
                Some(NULL_INSIDE) => return Err(null_inside(column, None)),
                Some(_) => py.None().into_bound(py),
            };
            dict.set_item(column.key.bind(py), value)?;
        }
        Ok(dict.into_any())
    }

    fn value<'py>(
        &self,
        py: Python<'py>,
        column: &Column,
        value: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        match &column.kind {
            Kind::Bytes => Ok(PyBytes::new(py, value).into_any()),
            Kind::Str => {
                let text = simdutf8::basic::from_utf8(value).map_err(|_| {
                    let message = format!("column `{}`: a value is not UTF-8", column.name);
                    raise_with(ErrorKind::Corrupt, "value-utf8", message)
                })?;
                Ok(PyString::new(py, text).into_any())
            }
            Kind::Int => match value.first_chunk::<8>() {
                Some(bytes) => Ok(i64::from_le_bytes(*bytes).into_pyobject(py)?.into_any()),
                None => Err(bug("an integer of another length")),
            },
            Kind::Number(dtype) => numpy_array(py, value, type_string(*dtype))?.get_item(0),
            Kind::Array(dtype, shape) => {
                let array = numpy_array(py, value, type_string(*dtype))?;
                array.call_method1("reshape", (shape.clone(),))
            }
            Kind::AnyArray(encoding) => {
                let array = match decode(encoding, value, &self.limits) {
                    Ok(Value::NdArray(array)) => array,
                    Ok(_) => return Err(bug("an array that is something else")),
                    Err(error) => {
                        let message = format!("column `{}`: {error}", column.name);
                        return Err(raise_with(ErrorKind::Corrupt, "array", message));
                    }
                };
                let numbers = numpy_array(py, array.data, type_string(array.dtype))?;
                numbers.call_method1("reshape", (array.shape,))
            }
            Kind::Other(encoding) => {
                static MDS_DECODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let decode = match &self.decode_value {
                    Some(decode) => decode.bind(py),
                    None => MDS_DECODE.import(py, ENCODINGS, "mds_decode")?,
                };
                decode.call1((encoding, value))
            }
            Kind::Missing(encoding) => {
                let message = format!(
                    "column `{}`: the process that opened the dataset registered the encoding `{encoding}`, and this \
                     process did not; register it when its module is imported, or in worker_init_fn",
                    column.name
                );
                Err(raise_with(
                    ErrorKind::Unsupported,
                    "encoding-unknown",
                    message,
                ))
            }
            Kind::Field => match &self.decode_field {
                Some(decode) => decode.bind(py).call1((&column.key, value)),
                None => Ok(PyBytes::new(py, value).into_any()),
            },
        }
    }
}

/// The module of the encodings in Python.
const ENCODINGS: &str = "shardmill.base.format.mds.encodings";

/// Returns the classes of all encodings, by name.
fn encodings(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    CLASSES.import(py, ENCODINGS, "_encodings")
}

/// Returns the limits of readers, where indexes may name encodings that the program registered in this process, or in
/// the one that opened the dataset.
pub(crate) fn reader_limits(py: Python<'_>, opened: &BTreeSet<String>) -> PyResult<Limits> {
    let mut limits = Limits::default();
    let names = py.import(ENCODINGS)?.call_method0("registered_names")?;
    let names: BTreeSet<String> = names.extract()?;
    limits.program_encodings = Some(&names | opened);
    Ok(limits)
}

/// Returns whether Rust decodes the values of an encoding, and adds its class to `native`. `encoding` is the name with
/// parameters.
fn is_native(
    py: Python<'_>,
    encoding: &str,
    native: &mut Vec<(Py<PyString>, Py<PyAny>)>,
) -> PyResult<bool> {
    let name = PyString::intern(py, encoding.split(':').next().unwrap_or_default());
    if native.iter().any(|(known, _)| known.is(&name)) {
        return Ok(true);
    }
    static REGISTERED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let registered = REGISTERED.import(py, ENCODINGS, "registered")?;
    let is_registered = !registered.call1((&name,))?.is_none();
    match encodings(py)?.get_item(&name)? {
        Some(class) if !is_registered => native.push((name.unbind(), class.unbind())),
        _ => return Ok(false),
    }
    Ok(true)
}

fn compile(
    py: Python<'_>,
    schema: &Schema,
    decodes_fields: bool,
    shows_masks: bool,
    native: &mut Vec<(Py<PyString>, Py<PyAny>)>,
) -> PyResult<Plan> {
    let column = |name: &str, size, kind| Column {
        name: name.to_owned(),
        key: PyString::intern(py, name).unbind(),
        size,
        kind,
        null_mask: None,
        is_mask: false,
    };
    let field = || {
        if decodes_fields {
            Kind::Field
        } else {
            Kind::Bytes
        }
    };
    let (form, columns) = match schema {
        Schema::Binary { form, columns, .. } => (form, columns),
        // No sample uses this schema: it lists the fields that samples of the shard may have.
        Schema::Fields(_) => {
            let columns = schema.names().into_iter();
            let columns = columns.map(|name| match name {
                KEY_COLUMN => column(name, None, Kind::Str),
                name => column(name, None, field()),
            });
            return Ok(Plan::Columns(columns.collect()));
        }
        Schema::Text(layout) => return Ok(Plan::Lines(layout_of(py, layout)?)),
    };
    let compiled = columns.iter().map(|each| {
        let encoding = each.encoding.to_string();
        let kind = match &each.encoding {
            // Only in MDS do columns have encodings.
            _ if *form == SampleForm::Mds && !is_native(py, &encoding, native)? => {
                Kind::Other(PyString::intern(py, &encoding).unbind())
            }
            Encoding::Registered { .. } => Kind::Missing(PyString::intern(py, &encoding).unbind()),
            Encoding::Bytes if *form == SampleForm::WebDataset => field(),
            Encoding::Bytes => Kind::Bytes,
            Encoding::Str => Kind::Str,
            Encoding::Int => Kind::Int,
            Encoding::Number(dtype) => Kind::Number(*dtype),
            Encoding::NdArray {
                dtype: Some(dtype),
                shape: Some(shape),
            } => Kind::Array(*dtype, shape.clone()),
            encoding @ Encoding::NdArray { .. } => Kind::AnyArray(encoding.clone()),
            _ => Kind::Other(PyString::intern(py, &encoding).unbind()),
        };
        Ok(column(&each.name, each.size, kind))
    });
    let mut compiled = compiled.collect::<PyResult<Vec<Column>>>()?;
    if !shows_masks {
        for (position, each) in columns.iter().enumerate() {
            if let Some(mask) = each.null_mask.and_then(|at| compiled.get_mut(at)) {
                mask.is_mask = true;
                compiled[position].null_mask = each.null_mask;
            }
        }
    }
    Ok(Plan::Columns(compiled))
}

/// Returns which values of a column are null; `None` if none is.
fn nulls_of(
    column: &Column,
    columns: &[ColumnData],
    sample_of: &dyn Fn(usize) -> u64,
) -> PyResult<Option<Nulls>> {
    let Some(ColumnData::Fixed { bytes, .. }) = column.null_mask.and_then(|at| columns.get(at))
    else {
        return Ok(None);
    };
    let marks = bytes.as_slice();
    if let Some(position) = marks.iter().position(|mark| *mark == NULL_INSIDE) {
        return Err(null_inside(column, Some(sample_of(position))));
    }
    let first = marks.iter().position(|mark| *mark != 0);
    Ok(first.map(|position| Nulls {
        marks: marks.to_vec(),
        first: sample_of(position),
    }))
}

fn is_null(nulls: Option<&Nulls>, position: usize) -> bool {
    nulls.is_some_and(|nulls| nulls.marks.get(position).is_some_and(|mark| *mark != 0))
}

fn null_in_batch(column: &Column, sample: u64) -> PyErr {
    let message = format!(
        "sample {sample}: column `{}` is null, and a batch of numbers has no place for it",
        column.name
    );
    let hint = "pass nulls='mask' for zeros and a column that marks them, replace the null in get_item, or pass a \
                collate_fn";
    null_value(&message, &column.name, hint)
}

fn null_inside(column: &Column, sample: Option<u64>) -> PyErr {
    let sample = sample.map_or(String::new(), |sample| format!("sample {sample}: "));
    let message = format!(
        "{sample}column `{}`: a list of numbers has a null inside, and an array has no place for it",
        column.name
    );
    let hint = "pass nulls='mask' for zeros and a column that marks them";
    null_value(&message, &column.name, hint)
}

/// Returns the layout for `decode_line`: `(format, names, encodings, separator, newline)`.
fn layout_of(py: Python<'_>, layout: &Layout) -> PyResult<Py<PyAny>> {
    let (format, columns, separator, newline) = match layout {
        Layout::Json {
            columns, newline, ..
        } => ("json", columns, None, newline),
        Layout::Xsv {
            columns,
            separator,
            newline,
            ..
        } => ("xsv", columns, Some(separator), newline),
        Layout::Mds { .. } => return Err(bug("MDS as lines")),
    };
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let encodings: Vec<String> = columns
        .iter()
        .map(|column| column.encoding.to_string())
        .collect();
    let layout = (format, names, encodings, separator, newline).into_pyobject(py)?;
    Ok(layout.into_any().unbind())
}

/// Checks that all values are UTF-8; otherwise returns the position of one that is not.
fn check_text(data: &ColumnData, samples: usize) -> Result<(), usize> {
    // PERF: validate all values at once, then check that no character crosses the border of two values.
    if let Ok(text) = simdutf8::basic::from_utf8(data.buffer().as_slice())
        && let ColumnData::Variable { offsets, .. } = data
        && offsets
            .iter()
            .all(|at| usize::try_from(*at).is_ok_and(|at| text.is_char_boundary(at)))
    {
        return Ok(());
    }
    let bad = |position: &usize| {
        data.value(*position)
            .is_none_or(|value| simdutf8::basic::from_utf8(value).is_err())
    };
    (0..samples).find(bad).map_or(Ok(()), Err)
}

fn not_utf8(sample: u64, column: &str) -> PyErr {
    let message = format!("sample {sample}: the value of column `{column}` is not UTF-8");
    raise_with(ErrorKind::Corrupt, "value-utf8", message)
}

fn memory(error: std::io::Error) -> PyErr {
    raise_with(
        ErrorKind::Resource,
        "out-of-memory",
        format!("no memory for a batch: {error}"),
    )
}

fn block<'py>(
    py: Python<'py>,
    buffer: Buffer,
    dtype: DType,
    shape: Vec<u64>,
    samples: usize,
) -> PyResult<Bound<'py, Block>> {
    let mut whole = vec![samples as u64];
    whole.extend(shape);
    let block = Block::new(buffer, dtype, whole);
    Bound::new(
        py,
        block.ok_or_else(|| bug("a block of another size than its shape"))?,
    )
}

fn array<'py>(
    py: Python<'py>,
    buffer: Buffer,
    dtype: DType,
    shape: Vec<u64>,
    samples: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let block = block(py, buffer, dtype, shape, samples)?;
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let asarray = ASARRAY.import(py, "numpy", "asarray")?;
    asarray.call1((block,))
}
