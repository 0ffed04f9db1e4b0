//! Converts variants to JSON.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields};
use arrow::error::ArrowError;
use parquet_variant_compute::{VariantArray, unshred_variant, variant_to_json};

use shardmill_core::catch_panic::catch;

/// Returns the JSON text of each variant; null for a null variant.
///
/// # Errors
///
/// An error of Arrow if a variant is damaged.
pub fn variant_to_text(array: &ArrayRef) -> Result<StringArray, ArrowError> {
    catch(|| decode(array))
        .unwrap_or_else(|panic| Err(ArrowError::ParseError(format!("variant: {panic}"))))
}

fn decode(array: &ArrayRef) -> Result<StringArray, ArrowError> {
    let variants = unshred_variant(&VariantArray::try_new(array.as_ref())?)?;
    let inner = variants.inner();
    let column = |name: &str| {
        let found = inner
            .column_by_name(name)
            .ok_or_else(|| ArrowError::SchemaError(format!("a variant without {name}")))?;
        cast(found, &DataType::Binary)
    };
    let fields = Fields::from(vec![
        Field::new("metadata", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
    ]);
    let columns = vec![column("metadata")?, column("value")?];
    let plain = StructArray::try_new(fields, columns, array.as_struct().nulls().cloned())?;
    let plain: ArrayRef = Arc::new(plain);
    variant_to_json(&plain)
}
