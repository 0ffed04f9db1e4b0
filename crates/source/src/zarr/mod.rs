//! Reads windows of Zarr arrays: each window of the variables is a row.

mod cache;
mod store;
mod windows;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, FixedSizeListArray, Int64Array, make_array};
use arrow::buffer::{MutableBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::error::ArrowError;
use serde_json::{Map, Value, json};
use shardmill_core::{Error, Limits, escape};
use shardmill_storage::Location;
use shardmill_zarr::{
    CfDecoder, NOT_A_TIME, PhysicalType, Shard, TimeUnit as ZarrTimeUnit, ZarrArray, copy_region,
};

use crate::base::{batch, project, rows_from};
use crate::error;
use crate::files::Fingerprint;
use crate::number_type::number_type;
use crate::walk::{FileVersion, Listing, version_of};
use crate::{
    Rows, Source, SourceDescription, SourceFile, SourceKind, SourceOptions, SourceProblem,
    TableFacts, Unit,
};
use cache::{ChunkCache, Decoded, Key};
use store::{Wanted, ZarrStore};
use windows::Windows;

/// A unit has about this many bytes of windows.
const UNIT_BYTES: u64 = 16 << 20;

/// The most bytes of decoded chunks that are kept, without `--memory-limit`.
const CACHE_BYTES: u64 = 512 << 20;

/// The most chunks that are read at the same time.
const CONCURRENT: usize = 16;

/// The most windows in a batch.
const MAX_ROWS: u64 = 4096;

/// The most names that a hint lists.
const SHOWN_NAMES: usize = 20;

/// Windows of the arrays of a Zarr store.
pub(crate) struct ZarrTable {
    facts: TableFacts,
    shared: Arc<Shared>,
}

/// What the rows of all units share.
struct Shared {
    store: ZarrStore,
    arrays: Vec<WindowedArray>,
    windows: Windows,
    cache: ChunkCache,
    limits: Limits,
    rows_per_batch: u64,
}

/// An array whose windows are a column.
struct WindowedArray {
    found: FoundArray,
    /// From stored values to those of the column.
    decoder: CfDecoder,
    /// Its objects; `None` if the store does not list them.
    objects: Option<Listing>,
    /// The axis of the windows of each dimension; `None` if a window has all of it.
    axes: Vec<Option<usize>>,
    /// The shape of a window.
    shape: Vec<u64>,
    /// A chunk that does not exist.
    filled: Decoded,
}

/// An array of the store, and the name of its column.
struct FoundArray {
    column: String,
    /// Its name in the store.
    path: String,
    array: ZarrArray,
    /// A digest of its metadata.
    metadata: FileVersion,
}

/// Finds the variables and the coordinates of their windows.
pub(crate) fn open(locations: &[Location], options: &SourceOptions) -> Result<ZarrTable, Error> {
    let zarr = &options.samples.zarr;
    let [location] = locations else {
        return Err(SourceProblem::Option.at("SOURCE", "Zarr stores are converted one by one"));
    };
    if zarr.variables.is_empty() || zarr.window.is_empty() {
        return Err(SourceProblem::Option
            .at(
                "--from zarr",
                "needs the variables and the size of a window",
            )
            .with_hint("pass --variable NAME and --window DIMENSION=SIZE,..."));
    }
    let store = ZarrStore::open(location, options)?;
    let mut found = Vec::new();
    for name in &zarr.variables {
        found.push(variable(&store, name)?);
    }
    let windows = Windows::new(zarr, &lengths(&store, &found)?)?;
    let group = found.first().and_then(|own| own.path.rsplit_once('/'));
    let group = group.map_or(String::new(), |(group, _)| format!("{group}/"));
    let attributes = store.attributes(&group)?;
    add_coordinates(&store, &windows, &group, &attributes, &mut found)?;
    lengths(&store, &found)?;
    add_units_of_bounds(&mut found);
    let arrays = found
        .into_iter()
        .map(|found| windowed(&store, found, &windows, zarr.raw_values));
    let arrays: Vec<WindowedArray> = arrays.collect::<Result<_, _>>()?;
    let max = options
        .resources
        .memory_limit
        .map_or(CACHE_BYTES, |max| max / 2);
    let mut shared = Shared {
        store,
        arrays,
        windows,
        cache: ChunkCache::new(max),
        limits: options.limits.clone(),
        rows_per_batch: 1,
    };
    shared.widen_times()?;
    let Shared {
        store,
        arrays,
        windows,
        ..
    } = &shared;
    let schema = schema(store, arrays, windows)?;
    let bytes = arrays.iter().map(WindowedArray::window_bytes);
    let row_bytes = bytes.fold(0, u64::saturating_add);
    error::check_limit(
        "sample-bytes",
        row_bytes,
        options.limits.sample_bytes,
        || "--window".to_owned(),
    )?;
    let description = describe(store, arrays, windows.count, &attributes);
    let units = cut(windows.count, row_bytes, description.bytes);
    let is_complete = |field: &Arc<Field>| (!field.is_nullable()).then_some(0);
    let null_counts = schema.fields().iter().map(is_complete).collect();
    shared.rows_per_batch =
        (options.resources.batch_bytes as u64 / row_bytes.max(1)).clamp(1, MAX_ROWS);
    Ok(ZarrTable {
        facts: TableFacts {
            null_counts,
            schema: Arc::new(schema),
            units,
            description,
        },
        shared: Arc::new(shared),
    })
}

/// Returns the array of a variable.
fn variable(store: &ZarrStore, name: &str) -> Result<FoundArray, Error> {
    let is_name = shardmill_core::check_relative_path(name).is_ok();
    let array = match is_name {
        true => store.array(name)?,
        false => None,
    };
    let (array, metadata) = array.ok_or_else(|| {
        let (group, _) = name.rsplit_once('/').unwrap_or_default();
        let reason = format!("there is no array `{}`", escape(name));
        let error = SourceProblem::ZarrVariable.at(store.shown(""), reason);
        let mut known = if is_name {
            store.members(group)
        } else {
            Vec::new()
        };
        known.truncate(SHOWN_NAMES);
        let known: Vec<_> = known.iter().map(|name| escape(name)).collect();
        match known.is_empty() {
            true => error,
            false => error.with_hint(format!("the store has {}", known.join(", "))),
        }
    })?;
    let found = FoundArray {
        column: name.to_owned(),
        path: name.to_owned(),
        array,
        metadata,
    };
    if dimensions(store, &found)?.is_empty() {
        let reason = "it has a single value, of which there are no windows";
        return Err(SourceProblem::ZarrWindow.at(store.shown(name), reason));
    }
    Ok(found)
}

/// Returns the names of the dimensions of an array.
fn dimensions<'a>(store: &ZarrStore, found: &'a FoundArray) -> Result<&'a [String], Error> {
    let FoundArray { path, array, .. } = found;
    let wrong = |reason: &str| Err(SourceProblem::ZarrWindow.at(store.shown(path), reason));
    let Some(names) = &array.dimensions else {
        return match array.shape.as_slice() {
            [] => Ok(&[]),
            _ => wrong("its dimensions have no names, which windows need"),
        };
    };
    if names
        .iter()
        .enumerate()
        .any(|(at, name)| names.iter().skip(at + 1).any(|other| other == name))
    {
        return wrong("two of its dimensions have the same name");
    }
    Ok(names)
}

/// Returns the lengths of all dimensions, which must be the same in all arrays.
fn lengths<'a>(
    store: &ZarrStore,
    found: &'a [FoundArray],
) -> Result<BTreeMap<&'a str, u64>, Error> {
    let mut lengths = BTreeMap::new();
    for own in found {
        for (name, length) in dimensions(store, own)?.iter().zip(&own.array.shape) {
            let known = *lengths.entry(name.as_str()).or_insert(*length);
            if known != *length {
                let name = escape(name);
                let reason = format!(
                    "its dimension `{name}` has {length} elements, and that of another array {known}"
                );
                return Err(SourceProblem::ZarrWindow.at(store.shown(&own.path), reason));
            }
        }
    }
    Ok(lengths)
}

/// Adds the coordinates of the windows: arrays of one dimension with the name of it, in the group of the first variable,
/// and those that the attribute `coordinates` of a variable or of the group names. A coordinate of text is left out.
fn add_coordinates(
    store: &ZarrStore,
    windows: &Windows,
    group: &str,
    attributes: &Map<String, Value>,
    found: &mut Vec<FoundArray>,
) -> Result<(), Error> {
    let mut names: Vec<String> = windows.axes.iter().map(|axis| axis.name.clone()).collect();
    let own = found
        .iter()
        .flat_map(|own| own.array.dimensions.iter().flatten());
    for name in own {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let known = names.clone();
    let lists = found
        .iter()
        .map(|own| &own.array.attributes)
        .chain([attributes]);
    let lists = lists.filter_map(|attributes| attributes.get("coordinates")?.as_str());
    for name in lists.flat_map(str::split_whitespace) {
        if !names.iter().any(|own| own == name) {
            names.push(name.to_owned());
        }
    }
    for (number, name) in names.into_iter().enumerate() {
        let path = format!("{group}{name}");
        let is_name = shardmill_core::check_relative_path(&path).is_ok();
        if !is_name || found.iter().any(|own| own.path == path) {
            continue;
        }
        let (array, metadata) = match store.array(&path) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) if error.id() == "type-unsupported" => continue,
            Err(error) => return Err(error),
        };
        let dimensions = array.dimensions.as_deref().unwrap_or_default();
        let fits = match number < known.len() {
            true => dimensions == std::slice::from_ref(&name),
            false => dimensions.iter().all(|name| known.contains(name)),
        };
        if fits && dimensions.len() == array.shape.len() {
            found.push(FoundArray {
                column: name,
                path,
                array,
                metadata,
            });
        }
    }
    Ok(())
}

/// Gives the bounds of times the units and the calendar of these times, as the CF conventions say.
fn add_units_of_bounds(found: &mut [FoundArray]) {
    let mut inherited = Vec::new();
    for own in &*found {
        let attributes = &own.array.attributes;
        let text = |name| attributes.get(name).and_then(Value::as_str);
        if let (Some(bounds), Some(units)) = (text("bounds"), text("units"))
            && units.contains("since")
        {
            let values = ["units", "calendar"].map(|name| (name, attributes.get(name).cloned()));
            inherited.push((bounds.to_owned(), values));
        }
    }
    for (bounds, values) in inherited {
        let own = found
            .iter_mut()
            .find(|own| own.path.rsplit('/').next() == Some(&bounds));
        let Some(own) = own else { continue };
        for (name, value) in values
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
        {
            own.array.attributes.entry(name).or_insert(value);
        }
    }
}

/// Lists the objects of an array, and returns the shape of its windows.
fn windowed(
    store: &ZarrStore,
    found: FoundArray,
    windows: &Windows,
    raw_values: bool,
) -> Result<WindowedArray, Error> {
    let decoder = match raw_values {
        true => CfDecoder::stored(&found.array),
        false => CfDecoder::new(&found.array).map_err(|error| store.failed(&found.path, error))?,
    };
    let names = dimensions(store, &found)?.iter();
    let axes: Vec<Option<usize>> = names
        .map(|name| windows.axes.iter().position(|axis| axis.name == *name))
        .collect();
    let pairs = axes.iter().zip(&found.array.shape);
    let size = |(axis, length): (&Option<usize>, &u64)| {
        axis.and_then(|axis| windows.axes.get(axis))
            .map_or(*length, |axis| axis.size)
    };
    let shape: Vec<u64> = pairs.map(size).collect();
    let objects = store.list(&found.path)?;
    let elements = found.array.chunk_bytes() / found.array.dtype.size() as u64;
    let filled = found
        .array
        .fill
        .repeat(usize::try_from(elements).unwrap_or(0));
    Ok(WindowedArray {
        found,
        decoder,
        objects,
        axes,
        shape,
        filled: Arc::new(filled),
    })
}

fn schema(store: &ZarrStore, arrays: &[WindowedArray], windows: &Windows) -> Result<Schema, Error> {
    let mut fields = Vec::new();
    for own in arrays {
        let mut data_type = column_type(own.decoder.physical());
        for length in own.shape.iter().rev() {
            let length = i32::try_from(*length).ok().filter(|length| *length > 0);
            let length = length.ok_or_else(|| {
                SourceProblem::ZarrWindow.at(
                    store.shown(&own.found.path),
                    "a window has no elements, or 2³¹ and more of them, along a dimension",
                )
            })?;
            let may_be_null = data_type.is_temporal();
            let item = Field::new("item", data_type, may_be_null);
            data_type = DataType::FixedSizeList(Arc::new(item), length);
        }
        let may_be_null = data_type.is_temporal();
        fields.push(Field::new(&own.found.column, data_type, may_be_null));
    }
    let starts = windows.axes.iter();
    fields.extend(
        starts.map(|axis| Field::new(format!("{}_start", axis.name), DataType::Int64, false)),
    );
    error::check_names(fields.iter().map(|field| field.name().as_str()), || {
        store.shown("")
    })?;
    Ok(Schema::new(fields))
}

/// Returns the Arrow type of the values of an array.
const fn column_type(physical: PhysicalType) -> DataType {
    const fn unit(unit: ZarrTimeUnit) -> TimeUnit {
        match unit {
            ZarrTimeUnit::Second => TimeUnit::Second,
            ZarrTimeUnit::Microsecond => TimeUnit::Microsecond,
            ZarrTimeUnit::Nanosecond => TimeUnit::Nanosecond,
        }
    }
    match physical {
        PhysicalType::Number(dtype) => number_type(dtype),
        PhysicalType::Time(own) => DataType::Timestamp(unit(own), None),
        PhysicalType::Duration(own) => DataType::Duration(unit(own)),
    }
}

fn describe(
    store: &ZarrStore,
    arrays: &[WindowedArray],
    rows: u64,
    attributes: &Map<String, Value>,
) -> SourceDescription {
    let mut description = SourceDescription::new(SourceKind::Zarr);
    let mut fingerprint = Fingerprint::new(SourceKind::Zarr);
    let mut metadata = Map::new();
    for own in arrays {
        fingerprint.add(&own.found.path, own.found.metadata);
        let objects = own.objects.iter().flatten();
        for (name, file_version) in objects {
            description.bytes += file_version.bytes;
            fingerprint.add(&format!("{}/{name}", own.found.path), *file_version);
        }
        if own.objects.is_none() {
            let array = &own.found.array;
            let bytes = product(&array.shape, array.dtype.size());
            description.bytes = description.bytes.saturating_add(bytes);
        }
        let about = json!({
            "dtype": own.found.array.dtype.name(),
            "dimensions": own.found.array.dimensions,
            "attributes": own.found.array.attributes,
        });
        metadata.insert(own.found.column.clone(), about);
    }
    description.zarr = Some(json!({"attributes": attributes, "arrays": metadata}));
    description.files.push(SourceFile {
        path: store.shown(""),
        bytes: description.bytes,
    });
    description.rows = Some(rows);
    description.fingerprint = fingerprint.finish();
    description
}

/// Divides the windows into units.
fn cut(count: u64, row_bytes: u64, bytes: u64) -> Vec<Unit> {
    let rows = (UNIT_BYTES / row_bytes.max(1)).max(1);
    let starts = (0..count.div_ceil(rows)).map(|unit| unit * rows);
    starts
        .map(|first| {
            let rows = rows.min(count - first);
            Unit {
                file: Some(0),
                first_row: Some(first),
                rows: Some(rows),
                bytes: u64::try_from(u128::from(bytes) * u128::from(rows) / u128::from(count))
                    .unwrap_or(bytes),
            }
        })
        .collect()
}

impl Source for ZarrTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let found = self.units().get(unit);
        let found = found.and_then(|unit| unit.first_row.zip(unit.rows));
        let (mut next, rows) = found.ok_or_else(|| error::no_unit(unit))?;
        let end = next + rows;
        let (shared, columns) = (Arc::clone(&self.shared), columns.to_vec());
        let schema = project(&self.facts.schema, &columns);
        Ok(rows_from(move || {
            let rows = next..end.min(next.saturating_add(shared.rows_per_batch));
            if rows.is_empty() {
                return Ok(None);
            }
            next = rows.end;
            let starts: Vec<Vec<u64>> = rows.map(|row| shared.windows.starts(row)).collect();
            let columns = columns.iter().zip(schema.fields());
            let columns =
                columns.map(|(column, field)| shared.column(*column, field.data_type(), &starts));
            batch(&schema, columns.collect::<Result<_, _>>()?, starts.len()).map(Some)
        }))
    }
}

impl Shared {
    /// Returns a column of the windows with these starts.
    fn column(
        &self,
        column: usize,
        data_type: &DataType,
        starts: &[Vec<u64>],
    ) -> Result<ArrayRef, Error> {
        let Some(own) = self.arrays.get(column) else {
            let axis = column - self.arrays.len();
            let start = |starts: &Vec<u64>| starts.get(axis).copied().unwrap_or(0).cast_signed();
            return Ok(Arc::new(starts.iter().map(start).collect::<Int64Array>()));
        };
        let bytes = usize::try_from(own.window_bytes()).unwrap_or(usize::MAX);
        let mut values = MutableBuffer::from_len_zeroed(bytes.saturating_mul(starts.len()));
        for (window, starts) in values.as_slice_mut().chunks_exact_mut(bytes).zip(starts) {
            let axes = own.axes.iter();
            let starts =
                axes.map(|axis| axis.and_then(|axis| starts.get(axis)).copied().unwrap_or(0));
            self.fill_window(column, &starts.collect::<Vec<u64>>(), &own.shape, window)?;
        }
        fixed_lists(data_type, values)
            .map_err(|error| error::bug(format!("windows do not fit their type: {error}")))
    }

    /// Decodes the times of an array into microseconds, if its first or last one does not fit nanoseconds. As with xarray,
    /// which decides by the same two, a time between them that does not fit is an error.
    fn widen_times(&mut self) -> Result<(), Error> {
        for number in 0..self.arrays.len() {
            let Some(own) = self.arrays.get(number) else {
                continue;
            };
            let is_time = column_type(own.decoder.physical()).is_temporal();
            if !is_time || own.found.array.shape.contains(&0) {
                continue;
            }
            let ends = [
                own.found.array.shape.iter().map(|_| 0).collect(),
                own.found
                    .array
                    .shape
                    .iter()
                    .map(|length| length - 1)
                    .collect(),
            ];
            let one: Vec<u64> = own.found.array.shape.iter().map(|_| 1).collect();
            let ends: [Vec<u64>; 2] = ends;
            for start in ends {
                match self.fill_window(number, &start, &one, &mut [0; 8]) {
                    Err(error) if error.id() == "zarr-time" => {
                        if let Some(own) = self.arrays.get_mut(number) {
                            own.decoder.widen();
                        }
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Fills the values of a part of an array from its chunks.
    fn fill_window(
        &self,
        number: usize,
        starts: &[u64],
        shape: &[u64],
        window: &mut [u8],
    ) -> Result<(), Error> {
        let Some(own) = self.arrays.get(number) else {
            return Err(error::bug("there is no such array"));
        };
        let item = own.found.array.dtype.size();
        let keeps_numbers = own.decoder.keeps_numbers();
        let elements = window.len() / own.decoder.physical().size();
        let mut encoded = vec![0; if keeps_numbers { 0 } else { elements * item }];
        let stored = match keeps_numbers {
            true => &mut *window,
            false => encoded.as_mut_slice(),
        };
        let chunk_shape = &own.found.array.chunk_shape;
        let needed = chunks_of(starts, shape, chunk_shape);
        for group in needed.chunks(CONCURRENT) {
            for (chunk, decoded) in group.iter().zip(self.chunks(number, own, group)?) {
                let mut from = Vec::with_capacity(starts.len());
                let mut to = Vec::with_capacity(starts.len());
                let mut extent = Vec::with_capacity(starts.len());
                for (((start, size), at), length) in
                    starts.iter().zip(shape).zip(chunk).zip(chunk_shape)
                {
                    let first = (*start).max(at * length);
                    from.push(first - at * length);
                    to.push(first - start);
                    extent.push((start + size).min((at + 1) * length) - first);
                }
                let into = (&mut *stored, shape);
                copy_region((&decoded, chunk_shape), &from, into, &to, &extent, item);
            }
        }
        if keeps_numbers {
            return Ok(());
        }
        let failed = |error| self.store.failed(&own.found.path, error);
        own.decoder.decode(&encoded, window).map_err(failed)
    }

    /// Returns decoded chunks, whose indexes ascend.
    fn chunks(
        &self,
        array: usize,
        own: &WindowedArray,
        chunks: &[Vec<u64>],
    ) -> Result<Vec<Decoded>, Error> {
        let grid = own.found.array.grid();
        let keys: Vec<Key> = chunks
            .iter()
            .map(|chunk| Key {
                array,
                is_index: false,
                number: chunk
                    .iter()
                    .zip(&grid)
                    .fold(0, |number, (at, length)| number * length + at),
            })
            .collect();
        let load = |missing: &[Key]| {
            let wanted = keys
                .iter()
                .zip(chunks)
                .filter(|(key, _)| missing.contains(key));
            let wanted = wanted.map(|(_, chunk)| self.locate(array, own, chunk));
            let wanted: Vec<Option<Wanted>> = wanted.collect::<Result<_, _>>()?;
            let present: Vec<&Wanted> = wanted.iter().flatten().collect();
            let mut found = self.store.fetch(&present)?.into_iter().zip(&present);
            let decode = |wanted: &Option<Wanted>| match wanted.as_ref().and_then(|_| found.next())
            {
                None | Some((None, _)) => Ok(Arc::clone(&own.filled)),
                Some((Some(bytes), wanted)) => own
                    .found
                    .array
                    .decode(&bytes, &self.limits)
                    .map(Arc::new)
                    .map_err(|error| self.store.failed(&wanted.name, error)),
            };
            wanted.iter().map(decode).collect()
        };
        self.cache.get(&keys, load)
    }

    /// Returns where a chunk is, or `None` if it does not exist.
    fn locate(
        &self,
        array: usize,
        own: &WindowedArray,
        chunk: &[u64],
    ) -> Result<Option<Wanted>, Error> {
        let location = own.found.array.place(chunk);
        let name = format!("{}/{}", own.found.path, location.object);
        let file_version = match &own.objects {
            Some(objects) => version_of(objects, &location.object),
            None if location.in_shard.is_some() => self.store.look_up(&name)?,
            // A chunk is requested without knowing whether it exists.
            None => {
                return Ok(Some(Wanted {
                    name,
                    file_version: None,
                    range: None,
                }));
            }
        };
        let Some(listed) = file_version else {
            return Ok(None);
        };
        let bytes = listed.bytes;
        let wanted = |range| Wanted {
            name: name.clone(),
            file_version,
            range,
        };
        let (Some(shard), Some(in_shard)) = (&own.found.array.shard, location.in_shard) else {
            error::check_limit("shard-bytes", bytes, self.limits.shard_bytes, || {
                self.store.shown(&name)
            })?;
            return Ok(Some(wanted(None)));
        };
        let failed = |error| self.store.failed(&name, error);
        let key = Key {
            array,
            is_index: true,
            number: location.object_number,
        };
        let index = self.cache.get(&[key], |_| {
            let range = shard.index_range(bytes).map_err(failed)?;
            let found = self.store.fetch(&[&wanted(Some(range))])?;
            let found = found.iter().flatten().map(|bytes| {
                shard
                    .index(bytes, &self.limits)
                    .map(Arc::new)
                    .map_err(failed)
            });
            found.collect()
        })?;
        let index = index.first().map_or(&[][..], |index| index.as_slice());
        let range = Shard::range(index, in_shard, bytes).map_err(failed)?;
        Ok(range.map(|range| wanted(Some(range))))
    }
}

impl WindowedArray {
    /// Returns the bytes of the values of a window.
    fn window_bytes(&self) -> u64 {
        product(&self.shape, self.decoder.physical().size())
    }
}

/// Returns the bytes of an array of this shape.
fn product(shape: &[u64], size: usize) -> u64 {
    let elements = shape.iter();
    elements.fold(size as u64, |all, own| all.saturating_mul(*own))
}

/// Returns the indexes of the chunks that overlap a window, in row-major order.
fn chunks_of(starts: &[u64], shape: &[u64], chunk_shape: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    for ((start, size), length) in starts.iter().zip(shape).zip(chunk_shape) {
        let own = start / length..=(start + size - 1) / length;
        let longer = all.iter().flat_map(|before| {
            own.clone()
                .map(move |at| [before.as_slice(), &[at]].concat())
        });
        all = longer.collect();
    }
    all
}

/// Returns an array of nested lists of fixed sizes over these values. Times that are missing are null.
fn fixed_lists(data_type: &DataType, values: MutableBuffer) -> Result<ArrayRef, ArrowError> {
    let DataType::FixedSizeList(item, size) = data_type else {
        let width = data_type.primitive_width().unwrap_or(1);
        let missing = NOT_A_TIME.to_le_bytes();
        let is_time = data_type.is_temporal();
        let nulls = is_time.then(|| {
            values
                .chunks_exact(width)
                .map(|own| own != missing)
                .collect::<NullBuffer>()
        });
        let data = ArrayData::builder(data_type.clone()).len(values.len() / width);
        return Ok(make_array(
            data.add_buffer(values.into()).nulls(nulls).build()?,
        ));
    };
    let items = fixed_lists(item.data_type(), values)?;
    let lists = FixedSizeListArray::try_new(Arc::clone(item), *size, items, None)?;
    Ok(Arc::new(lists))
}
