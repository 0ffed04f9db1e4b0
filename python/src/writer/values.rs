//! Encoding of Python objects. Common values are encoded in Rust with little use of the interpreter; all others by the
//! Python encoder of their column.

use std::io::Write as _;

use pyo3::exceptions::{PyAssertionError, PyKeyError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString, PyTuple};
use shardmill_mds::{
    DType, Encoding, Layout, ShardConfig, TextColumn, TextEncoding, f16, ndarray_header,
    reaches_over, write_float, write_json_float, write_json_string,
};

/// The encoders of all columns, compiled once per writer.
pub(super) struct Program {
    columns: Vec<Column>,
    frame: Frame,
    /// NumPy's types, if a column needs them.
    numpy: Option<NumPy>,
}

enum Frame {
    /// The lengths of the variable columns (`head` bytes), then the values.
    Mds { head: usize },
    /// Lines with this ending.
    Json { end: Vec<u8> },
    /// Values with a separator, in lines with this ending.
    Xsv { separator: String, newline: String },
}

struct Column {
    key: Py<PyString>,
    /// The name of its encoding.
    encoding: String,
    /// The text before the value: in JSON the column name.
    before: Vec<u8>,
    /// The size of each value in bytes, if it is fixed.
    fixed: Option<usize>,
    kind: Kind,
    /// An object with a method `encode`, which takes any value and returns bytes.
    coder: Py<PyAny>,
}

enum Kind {
    Bytes,
    Str,
    Int,
    Number(DType, Py<PyAny>),
    Array {
        dtype: Option<DType>,
        shape: Option<Py<PyTuple>>,
    },
    /// A number as text.
    IntText,
    FloatText,
    JsonStr,
    JsonFloat,
    /// Encoded in Python.
    Other,
}

struct NumPy {
    array: Py<PyAny>,
    dtypes: Vec<(Py<PyAny>, DType)>,
}

impl NumPy {
    fn load(py: Python<'_>) -> PyResult<Self> {
        let numpy = py.import("numpy")?;
        let dtype = numpy.getattr("dtype")?;
        let dtypes = DType::ALL.into_iter().map(|each| {
            let found = dtype.call1((each.name(),))?;
            Ok((found.unbind(), each))
        });
        Ok(Self {
            array: numpy.getattr("ndarray")?.unbind(),
            dtypes: dtypes.collect::<PyResult<_>>()?,
        })
    }

    /// Returns the type of the numbers, if it is one of NumPy's own in native byte order.
    fn dtype(&self, dtype: &Bound<'_, PyAny>) -> Option<DType> {
        let found = self.dtypes.iter().find(|(known, _)| dtype.is(known));
        found.map(|(_, dtype)| *dtype)
    }
}

impl Program {
    /// Compiles the columns. `coder` returns the encoder of a column by name.
    pub(super) fn new(
        py: Python<'_>,
        config: &ShardConfig,
        coder: impl Fn(&str) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Self> {
        let mut columns = Vec::new();
        let mut needs_numpy = false;
        let mut add =
            |name: &str, encoding: String, before: Vec<u8>, fixed: Option<u64>, kind: Kind| {
                columns.push(Column {
                    key: PyString::intern(py, name).unbind(),
                    encoding,
                    before,
                    fixed: fixed.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
                    kind,
                    coder: coder(name)?,
                });
                PyResult::Ok(())
            };
        let frame = match &config.layout {
            Layout::Mds { columns: layout } => {
                for column in layout {
                    let kind = mds_kind(py, &column.encoding)?;
                    needs_numpy |= matches!(kind, Kind::Array { .. });
                    let fixed = column.encoding.fixed_size();
                    add(
                        &column.name,
                        column.encoding.to_string(),
                        Vec::new(),
                        fixed,
                        kind,
                    )?;
                }
                let variable = columns.iter().filter(|column| column.fixed.is_none());
                Frame::Mds {
                    head: 4 * variable.count(),
                }
            }
            Layout::Json {
                columns: layout,
                newline,
            } => {
                for (at, TextColumn { name, encoding }) in layout.iter().enumerate() {
                    let mut before = Vec::from(if at == 0 { b"{".as_slice() } else { b", " });
                    write_json_string(name, &mut before);
                    before.extend_from_slice(b": ");
                    let kind = match encoding {
                        TextEncoding::Str => Kind::JsonStr,
                        TextEncoding::Int => Kind::IntText,
                        TextEncoding::Float => Kind::JsonFloat,
                    };
                    add(name, encoding.to_string(), before, None, kind)?;
                }
                Frame::Json {
                    end: [b"}", newline.as_bytes()].concat(),
                }
            }
            Layout::Xsv {
                columns: layout,
                newline,
                separator,
                ..
            } => {
                for (at, TextColumn { name, encoding }) in layout.iter().enumerate() {
                    let before = if at == 0 { "" } else { separator };
                    let kind = match encoding {
                        TextEncoding::Str => Kind::Str,
                        TextEncoding::Int => Kind::IntText,
                        TextEncoding::Float => Kind::FloatText,
                    };
                    add(name, encoding.to_string(), before.into(), None, kind)?;
                }
                Frame::Xsv {
                    separator: separator.clone(),
                    newline: newline.clone(),
                }
            }
        };
        Ok(Self {
            columns,
            frame,
            numpy: needs_numpy.then(|| NumPy::load(py)).transpose()?,
        })
    }

    /// Appends a sample. After an error, part of the sample may have been appended.
    pub(super) fn encode(&self, sample: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        match &self.frame {
            Frame::Mds { head } => {
                let mut slot = out.len();
                out.resize(slot + head, 0);
                for column in &self.columns {
                    let start = out.len();
                    self.value(column, sample, out)?;
                    let bytes = out.len() - start;
                    match column.fixed {
                        Some(fixed) if fixed == bytes => {}
                        Some(fixed) => return Err(column.wrong_size(fixed, bytes)),
                        None => {
                            let length = u32::try_from(bytes)
                                .map_err(|_| column.wrong_size(4_294_967_295, bytes))?;
                            if let Some(head) = out.get_mut(slot..slot + 4) {
                                head.copy_from_slice(&length.to_le_bytes());
                            }
                            slot += 4;
                        }
                    }
                }
            }
            Frame::Json { end } => {
                for column in &self.columns {
                    out.extend_from_slice(&column.before);
                    self.value(column, sample, out)?;
                }
                out.extend_from_slice(end);
            }
            Frame::Xsv { separator, newline } => {
                for column in &self.columns {
                    out.extend_from_slice(&column.before);
                    let start = out.len();
                    self.value(column, sample, out)?;
                    let value = out.get(start..).unwrap_or_default();
                    for (what, text) in [("newline", newline), ("separator", separator)] {
                        let text_bytes = text.as_bytes();
                        if contains(value, text_bytes) || reaches_over(value, text_bytes) {
                            return Err(column.unquotable(what, text));
                        }
                    }
                }
                out.extend_from_slice(newline.as_bytes());
            }
        }
        Ok(())
    }

    fn value(&self, column: &Column, sample: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        let py = sample.py();
        let value = sample
            .get_item(&column.key)
            .map_err(|error| missing(py, column, sample, error))?;
        let is_done = self.quick(&column.kind, &value, out);
        if is_done.map_err(|error| unfit(py, column, &value, error))? {
            return Ok(());
        }
        // COMPAT: bytes are considered encoded already, whatever the encoding.
        if let Frame::Mds { .. } = self.frame
            && let Ok(bytes) = value.cast::<PyBytes>()
        {
            out.extend_from_slice(bytes.as_bytes());
            return Ok(());
        }
        let encoded = column
            .coder
            .bind(py)
            .call_method1(intern!(py, "encode"), (&value,))
            .map_err(|error| unfit(py, column, &value, error))?;
        match encoded.cast::<PyBytes>() {
            Ok(bytes) => out.extend_from_slice(bytes.as_bytes()),
            Err(_) => return Err(column.not_bytes(&encoded)),
        }
        Ok(())
    }

    /// Appends a value of a common type; returns `false` for all others.
    fn quick(&self, kind: &Kind, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
        match kind {
            Kind::Bytes => match value.cast::<PyBytes>() {
                Ok(bytes) => out.extend_from_slice(bytes.as_bytes()),
                Err(_) => return Ok(false),
            },
            Kind::Str => match value.cast::<PyString>() {
                Ok(text) => out.extend_from_slice(text.encode_utf8()?.as_bytes()),
                Err(_) => return Ok(false),
            },
            Kind::Int => match value.cast::<PyInt>() {
                Ok(number) => out.extend_from_slice(&number.extract::<i64>()?.to_le_bytes()),
                Err(_) => return Ok(false),
            },
            Kind::Number(dtype, own) => return number(*dtype, own, value, out),
            Kind::Array { dtype, shape } => {
                return self.array(*dtype, shape.as_ref(), value, out);
            }
            Kind::IntText => match value.cast_exact::<PyInt>() {
                Ok(number) => decimal(number, out)?,
                Err(_) => return Ok(false),
            },
            Kind::FloatText => match value.cast_exact::<PyFloat>() {
                Ok(number) => write_float(number.extract()?, out),
                Err(_) => return Ok(false),
            },
            Kind::JsonStr => {
                let Ok(text) = value.cast::<PyString>() else {
                    return Ok(false);
                };
                // A lone surrogate cannot be encoded as UTF-8, but Python's JSON writes it.
                let Ok(bytes) = text.encode_utf8() else {
                    return Ok(false);
                };
                let Ok(text) = std::str::from_utf8(bytes.as_bytes()) else {
                    return Ok(false);
                };
                write_json_string(text, out);
            }
            Kind::JsonFloat => match value.cast_exact::<PyFloat>() {
                Ok(number) => write_json_float(number.extract()?, out),
                Err(_) => return Ok(false),
            },
            Kind::Other => return Ok(false),
        }
        Ok(true)
    }

    /// Appends a plain array of the declared type and shape; returns `false` for other values, including invalid ones.
    fn array(
        &self,
        declared: Option<DType>,
        shape: Option<&Py<PyTuple>>,
        value: &Bound<'_, PyAny>,
        out: &mut Vec<u8>,
    ) -> PyResult<bool> {
        let py = value.py();
        let Some(numpy) = &self.numpy else {
            return Ok(false);
        };
        if !value.get_type().is(&numpy.array) {
            return Ok(false);
        }
        let Some(dtype) = numpy.dtype(&value.getattr(intern!(py, "dtype"))?) else {
            return Ok(false);
        };
        if declared.is_some_and(|declared| declared != dtype) {
            return Ok(false);
        }
        let found = value.getattr(intern!(py, "shape"))?;
        match shape {
            Some(shape) => {
                if !found.eq(shape)? {
                    return Ok(false);
                }
            }
            None => {
                let dims: Vec<u64> = found.extract()?;
                let code = declared.is_none().then_some(dtype);
                if ndarray_header(code, &dims, out).is_err() {
                    return Ok(false);
                }
            }
        }
        let bytes = value.call_method0(intern!(py, "tobytes"))?;
        out.extend_from_slice(bytes.cast::<PyBytes>()?.as_bytes());
        Ok(true)
    }
}

impl Column {
    fn name(&self) -> String {
        Python::attach(|py| self.key.bind(py).to_string_lossy().into_owned())
    }

    fn wrong_size(&self, expected: usize, found: usize) -> PyErr {
        PyKeyError::new_err(format!(
            "the value of column `{}` has {found} bytes instead of {expected}: it is not of the column's encoding",
            self.name()
        ))
    }

    fn unquotable(&self, what: &str, text: &str) -> PyErr {
        PyAssertionError::new_err(format!(
            "the value of column `{}` contains the {what} {text:?} or its beginning, which this format cannot quote",
            self.name()
        ))
    }

    fn not_bytes(&self, found: &Bound<'_, PyAny>) -> PyErr {
        PyTypeError::new_err(format!(
            "the encoder of column `{}` gives {} instead of bytes",
            self.name(),
            found.get_type()
        ))
    }
}

/// Creates the error for a sample without a value for a column, from the exception raised by reading it.
fn missing(py: Python<'_>, column: &Column, sample: &Bound<'_, PyAny>, cause: PyErr) -> PyErr {
    let arguments = (sample, &column.key, cause.value(py).clone());
    explained(py, "missing_column", arguments, cause)
}

/// Creates the error for a value that a column cannot store, from the exception raised by encoding it.
fn unfit(py: Python<'_>, column: &Column, value: &Bound<'_, PyAny>, cause: PyErr) -> PyErr {
    let arguments = (
        &column.key,
        &column.encoding,
        value,
        cause.value(py).clone(),
    );
    explained(py, "unfit_value", arguments, cause)
}

/// Calls a function of `shardmill.base.format.base.samples` that creates the error to raise.
fn explained<'py>(
    py: Python<'py>,
    function: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
    cause: PyErr,
) -> PyErr {
    let made = py
        .import("shardmill.base.format.base.samples")
        .and_then(|module| module.getattr(function))
        .and_then(|make| make.call1(arguments));
    match made {
        Ok(error) if error.is(cause.value(py)) => cause,
        Ok(error) => {
            let error = PyErr::from_value(error);
            error.set_cause(py, Some(cause));
            error
        }
        Err(error) => error,
    }
}

fn mds_kind(py: Python<'_>, encoding: &Encoding) -> PyResult<Kind> {
    Ok(match encoding {
        Encoding::Bytes => Kind::Bytes,
        Encoding::Str => Kind::Str,
        Encoding::Int => Kind::Int,
        Encoding::Number(dtype) => {
            let own = py.import("numpy")?.getattr(dtype.name())?;
            Kind::Number(*dtype, own.unbind())
        }
        Encoding::NdArray { dtype, shape } => Kind::Array {
            dtype: *dtype,
            shape: shape
                .as_ref()
                .map(|shape| PyTuple::new(py, shape).map(Bound::unbind))
                .transpose()?,
        },
        Encoding::StrInt => Kind::IntText,
        Encoding::StrFloat => Kind::FloatText,
        Encoding::StrDecimal
        | Encoding::Image(_)
        | Encoding::JpegArray { .. }
        | Encoding::List(_)
        | Encoding::Pkl
        | Encoding::Json
        | Encoding::Registered { .. } => Kind::Other,
    })
}

/// Appends a Python number, or a NumPy scalar of exactly this type, if it fits.
fn number(
    dtype: DType,
    own: &Py<PyAny>,
    value: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
) -> PyResult<bool> {
    let py = value.py();
    if value.get_type().is(own) {
        let bytes = value.call_method0(intern!(py, "tobytes"))?;
        out.extend_from_slice(bytes.cast::<PyBytes>()?.as_bytes());
        return Ok(true);
    }
    if let Ok(float) = value.cast_exact::<PyFloat>() {
        return Ok(real(dtype, float.extract()?, out));
    }
    if value.cast_exact::<PyInt>().is_err() {
        return Ok(false);
    }
    let Ok(integer) = value.extract::<i128>() else {
        return Ok(false);
    };
    macro_rules! fits {
        ($type:ty) => {
            match <$type>::try_from(integer) {
                Ok(integer) => out.extend_from_slice(&integer.to_le_bytes()),
                Err(_) => return Ok(false),
            }
        };
    }
    match dtype {
        DType::U8 => fits!(u8),
        DType::I8 => fits!(i8),
        DType::U16 => fits!(u16),
        DType::I16 => fits!(i16),
        DType::U32 => fits!(u32),
        DType::I32 => fits!(i32),
        DType::U64 => fits!(u64),
        DType::I64 => fits!(i64),
        // All float types represent integers up to 2^11 exactly.
        DType::F16 | DType::F32 | DType::F64 => match i16::try_from(integer) {
            Ok(integer) if integer.unsigned_abs() <= 2048 => {
                return Ok(real(dtype, f64::from(integer), out));
            }
            _ => return Ok(false),
        },
    }
    Ok(true)
}

/// Appends a float, rounded to a float type. Returns `false` if it is too large; NumPy then warns.
fn real(dtype: DType, value: f64, out: &mut Vec<u8>) -> bool {
    match dtype {
        DType::F64 => out.extend_from_slice(&value.to_le_bytes()),
        DType::F32 => {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounds, and overflow is checked"
            )]
            let narrow = value as f32;
            if narrow.is_infinite() && value.is_finite() {
                return false;
            }
            out.extend_from_slice(&narrow.to_le_bytes());
        }
        DType::F16 => {
            let narrow = f16::from_f64(value);
            if narrow.is_infinite() && value.is_finite() {
                return false;
            }
            out.extend_from_slice(&narrow.to_le_bytes());
        }
        _ => return false,
    }
    true
}

/// Appends an integer of any size in decimal, like `str`.
fn decimal(number: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> PyResult<()> {
    match number.extract::<i64>() {
        // Writing to a Vec cannot fail.
        Ok(small) => drop(write!(out, "{small}")),
        Err(_) => out.extend_from_slice(number.str()?.encode_utf8()?.as_bytes()),
    }
    Ok(())
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    match text {
        [byte] => bytes.contains(byte),
        _ => !text.is_empty() && bytes.windows(text.len()).any(|window| window == text),
    }
}
