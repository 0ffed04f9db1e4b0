//! Numbers that NumPy and torch use without a copy.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyTuple};
use shardmill_mds::DType;
use shardmill_mmap::Buffer;

/// Values of one type in row-major order, aligned to 64 bytes. `numpy.asarray(block)` is an array over the same memory.
/// The memory returns to its pool when the last such array is released.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct Block {
    buffer: Buffer,
    dtype: DType,
    shape: Vec<u64>,
}

impl Block {
    /// Creates a block; `None` if the size of `buffer` does not match `shape`.
    pub(crate) fn new(buffer: Buffer, dtype: DType, shape: Vec<u64>) -> Option<Self> {
        let size = dtype.size_bytes();
        let bytes = shape
            .iter()
            .try_fold(size, |bytes, length| bytes.checked_mul(*length))?;
        (u64::try_from(buffer.len()).ok()? == bytes).then_some(Self {
            buffer,
            dtype,
            shape,
        })
    }
}

/// Returns a writable one-dimensional array over a copy of `bytes`, of a type in the notation of NumPy.
pub(crate) fn numpy_array<'py>(
    py: Python<'py>,
    bytes: &[u8],
    dtype: &str,
) -> PyResult<Bound<'py, PyAny>> {
    static FROMBUFFER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let frombuffer = FROMBUFFER.import(py, "numpy", "frombuffer")?;
    frombuffer.call1((PyByteArray::new(py, bytes), dtype))
}

/// Returns numbers as bytes.
pub(crate) fn packed<const N: usize>(
    py: Python<'_>,
    values: impl Iterator<Item = [u8; N]>,
) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &values.flatten().collect::<Vec<u8>>())
}

/// Returns the type of the numbers in the notation of NumPy's array interface.
pub(crate) const fn type_string(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    }
}

#[pymethods]
impl Block {
    /// NumPy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", type_string(self.dtype))?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        // Writable, because nothing else uses the memory while the block lives.
        interface.set_item("data", (self.buffer.as_ptr().addr(), false))?;
        Ok(interface)
    }

    /// The lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.buffer.len()
    }
}
