//! Tests windows of Zarr stores, against stores that the package `zarr` wrote, windows of `xbatcher` and values that
//! `xarray` decoded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, UInt64Type};
use serde_json::Value;
use shardmill_core::{Error, ErrorKind};
use shardmill_source::{Source, SourceKind, SourceOptions, open};
use shardmill_storage::{Location, RemoteOptions};
use shardmill_testing::s3::{Asked, Fault, Flavor, Objects, S3Server, Script, Settings};

use crate::help::{TestDir, batches, check_error, open_with, read, refused};
use crate::text::types;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/zarr-3.1.6")
        .join(name)
}

/// Selects windows of stored values, given as `DIMENSION=SIZE,...`.
fn select(options: &mut SourceOptions, variables: &[&str], window: &str, stride: &str) {
    let parse = |text: &str| {
        let pairs = text.split(',').filter_map(|part| part.split_once('='));
        pairs
            .map(|(name, size)| (name.to_owned(), size.parse().unwrap()))
            .collect()
    };
    options.kind = Some(SourceKind::Zarr);
    options.samples.zarr.variables = variables.iter().map(|name| (*name).to_owned()).collect();
    options.samples.zarr.window = parse(window);
    options.samples.zarr.stride = parse(stride);
    options.samples.zarr.raw_values = true;
}

/// Returns the values of one row of a column, without their shape.
fn leaves(column: &ArrayRef, row: usize) -> ArrayRef {
    let mut values = column.slice(row, 1);
    while let DataType::FixedSizeList(..) = values.data_type() {
        let list = values.as_fixed_size_list();
        let size = usize::try_from(list.value_length()).unwrap();
        values = list.values().slice(list.offset() * size, list.len() * size);
    }
    values
}

fn flat(column: &ArrayRef, row: usize) -> Vec<f64> {
    let floats = cast(&leaves(column, row), &DataType::Float64).unwrap();
    floats.as_primitive::<Float64Type>().values().to_vec()
}

fn floats(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value.as_f64().unwrap())
        .collect()
}

/// The windows that xbatcher made of `weather2` and `weather3`.
fn xbatcher() -> Vec<(String, String, Vec<Value>)> {
    // The order of the dimensions counts, and objects of JSON do not keep it.
    let orders = [
        ("plain", "time lat lon"),
        ("overlap", "time lat lon"),
        ("lon-first", "lon time"),
    ];
    let cases: Value = serde_json::from_slice(&fs::read(fixture("windows.json")).unwrap()).unwrap();
    let case = |(name, order): (&str, &str)| {
        let case = &cases[name];
        let text = |sizes: &Value| {
            let pairs = order
                .split(' ')
                .map(|dimension| format!("{dimension}={}", sizes[dimension]));
            pairs.collect::<Vec<_>>().join(",")
        };
        let rows = case["rows"].as_array().unwrap().clone();
        (text(&case["window"]), text(&case["stride"]), rows)
    };
    orders.into_iter().map(case).collect()
}

fn equals_xbatcher(source: &dyn Source, window: &str, rows: &[Value]) {
    let found = read(source);
    assert_eq!(found.num_rows(), rows.len(), "{window}");
    assert_eq!(source.description().rows, Some(rows.len() as u64));
    for (number, row) in rows.iter().enumerate() {
        for (column, values) in row.as_object().unwrap() {
            let found = found.column_by_name(column).unwrap();
            assert_eq!(
                flat(found, number),
                floats(values),
                "{window} {column} {number}"
            );
        }
    }
}

#[test]
fn windows_match_xbatcher() {
    for store in ["weather2", "weather3"] {
        for (window, stride, rows) in xbatcher() {
            let source = open_with(&fixture(store), |options| {
                select(options, &["t2m", "rain", "height"], &window, &stride);
            });
            equals_xbatcher(source.unwrap().as_ref(), &window, &rows);
        }
    }
}

#[test]
fn windows_include_types_coordinates_and_starts() {
    let source = open_with(&fixture("weather3"), |options| {
        select(
            options,
            &["t2m", "rain", "height"],
            "time=4,lat=2,lon=5",
            "time=3",
        );
        options.resources.batch_bytes = 1;
    });
    let source = source.unwrap();
    assert_eq!(
        types(source.as_ref()),
        [
            "t2m FixedSizeList(4 x non-null FixedSizeList(2 x non-null FixedSizeList(5 x non-null Float32)))",
            "rain FixedSizeList(4 x non-null FixedSizeList(2 x non-null FixedSizeList(5 x non-null Int16)))",
            "height FixedSizeList(2 x non-null FixedSizeList(5 x non-null Float64))",
            "time FixedSizeList(4 x non-null Int64)",
            "lat FixedSizeList(2 x non-null Float64)",
            "lon FixedSizeList(5 x non-null Float32)",
            "time_start Int64",
            "lat_start Int64",
            "lon_start Int64",
        ]
    );
    assert_eq!(batches(source.as_ref()).unwrap().len(), 9);
    let found = read(source.as_ref());
    let starts = |name: &str| {
        found
            .column_by_name(name)
            .unwrap()
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    assert_eq!(starts("time_start"), [0, 0, 0, 3, 3, 3, 6, 6, 6]);
    assert_eq!(starts("lat_start"), [0, 2, 4, 0, 2, 4, 0, 2, 4]);
    assert_eq!(starts("lon_start"), [0; 9]);
    assert_eq!(
        flat(found.column_by_name("time").unwrap(), 3),
        [18.0, 24.0, 30.0, 36.0]
    );
}

/// Opens one array as a single window, and returns its values.
fn whole(store: &Path, variable: &str) -> Result<Vec<f64>, Error> {
    let dir = TestDir::new();
    name_dimensions(store, variable, &dir);
    let source = open_with(&dir.path(""), |options| {
        select(options, &[variable], "y=50,x=40", "")
    })?;
    let mut rows = source.open_unit(0)?;
    let batch = rows.next_batch()?.unwrap();
    Ok(flat(batch.column(0), 0))
}

/// Copies an array, and names its dimensions `y` and `x`.
fn name_dimensions(store: &Path, variable: &str, dir: &TestDir) {
    let mut folders = vec![store.join(variable)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(store)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                dir.write(&name, fs::read(&path).unwrap());
            }
        }
    }
    let metadata = dir.path(&format!("{variable}/zarr.json"));
    if let Ok(bytes) = fs::read(&metadata) {
        let mut value: Value = serde_json::from_slice(&bytes).unwrap();
        value["dimension_names"] = serde_json::json!(["y", "x"]);
        fs::write(metadata, value.to_string()).unwrap();
    } else {
        dir.write(
            &format!("{variable}/.zattrs"),
            r#"{"_ARRAY_DIMENSIONS": ["y", "x"]}"#,
        );
    }
}

fn value(row: u32, column: u32) -> f64 {
    f64::from((row * 40 + column).pow(2) % 977)
}

fn values(modulus: f64) -> Vec<f64> {
    let all = (0..50).flat_map(|row| (0..40).map(move |column| value(row, column) % modulus));
    all.collect()
}

#[test]
fn all_codecs_decode_to_the_same_values() {
    for (store, variables) in [
        (
            "codecs3",
            "raw gzip zstd-crc32c blosc-lz4-shuffle blosc-zstd-bitshuffle blosc-zlib transpose-big float16 sharded v2-keys",
        ),
        (
            "codecs2",
            "raw big-fortran slash zlib gzip zstd lz4 blosc days",
        ),
    ] {
        for variable in variables.split(' ') {
            assert_eq!(
                whole(&fixture(store), variable).unwrap(),
                values(1e9),
                "{store}/{variable}"
            );
        }
    }
    assert_eq!(
        whole(&fixture("codecs2"), "blosc-split").unwrap(),
        values(256.0)
    );
}

#[test]
fn missing_chunks_are_read_as_fill_value() {
    let found = whole(&fixture("codecs2"), "missing").unwrap();
    let expected = (0..50).flat_map(|row| {
        (0..40).map(move |column| {
            if row < 32 && column < 32 {
                value(row, column)
            } else {
                -7.0
            }
        })
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
    let found = whole(&fixture("codecs3"), "sharded-start").unwrap();
    for (at, found) in found.iter().enumerate() {
        let (row, column) = (
            u32::try_from(at / 40).unwrap(),
            u32::try_from(at % 40).unwrap(),
        );
        let is_written =
            ((3..20).contains(&row) && (5..20).contains(&column)) || (row >= 40 && column >= 35);
        match is_written {
            true => assert_eq!(*found, value(row, column), "{row} {column}"),
            false => assert!(found.is_nan(), "{row} {column}"),
        }
    }
}

#[test]
fn unsupported_codec_or_type_is_an_error_naming_it() {
    for (store, variable, kind, id, text) in [
        (
            "codecs3",
            "blosc-blosclz",
            ErrorKind::Unsupported,
            "zarr-codec",
            "blosclz",
        ),
        (
            "codecs3",
            "delta",
            ErrorKind::Unsupported,
            "zarr-codec",
            "numcodecs.delta",
        ),
        (
            "codecs3",
            "text",
            ErrorKind::Unsupported,
            "type-unsupported",
            "string",
        ),
        (
            "codecs2",
            "bz2",
            ErrorKind::Unsupported,
            "zarr-codec",
            "bz2",
        ),
    ] {
        let error = check_error(whole(&fixture(store), variable).unwrap_err());
        assert_eq!(
            (error.kind(), error.id()),
            (kind, id),
            "{variable}: {error}"
        );
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.object().unwrap().contains(variable));
    }
}

#[test]
fn invalid_window_options_are_errors() {
    let store = fixture("weather3");
    for (variables, window, stride, id, text) in [
        (
            &["t2n"][..],
            "time=2",
            "",
            "zarr-variable",
            "no array `t2n`",
        ),
        (&["../t2m"], "time=2", "", "zarr-variable", "no array"),
        (
            &["t2m"],
            "level=2",
            "",
            "zarr-window",
            "no variable has the dimension `level`",
        ),
        (
            &["t2m"],
            "time=11",
            "",
            "zarr-window",
            "a window of 11 does not fit the dimension `time` of 10",
        ),
        (&["t2m"], "time=2,time=3", "", "zarr-window", "twice"),
        (
            &["t2m"],
            "time=2",
            "lat=1",
            "zarr-window",
            "`lat` is no dimension of --window",
        ),
        (&["t2m"], "", "", "source-option", "needs the variables"),
        (&[], "time=2", "", "source-option", "needs the variables"),
        (
            &["t2m", "t2m"],
            "time=2",
            "",
            "source-duplicate-column",
            "two columns",
        ),
    ] {
        let error = refused(&store, |options| select(options, variables, window, stride));
        assert_eq!(error.id(), id, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let error = refused(&store, |options| select(options, &["t2n"], "time=2", ""));
    assert_eq!(
        error.hint().unwrap(),
        "the store has height, lat, lon, rain, t2m, time"
    );
    let error = refused(&fixture("codecs3"), |options| {
        select(options, &["raw"], "x=2", "")
    });
    assert_eq!(
        (error.id(), error.object().unwrap().ends_with("codecs3/raw")),
        ("zarr-window", true)
    );
    let error = refused(&fixture("windows.json"), |options| {
        select(options, &["raw"], "x=2", "")
    });
    assert_eq!(error.id(), "source-unsupported");
}

#[test]
fn corrupt_chunks_are_errors_naming_the_chunk() {
    for (store, variable, chunk) in [
        ("codecs3", "raw", "c/1/0"),
        ("codecs3", "gzip", "c/1/0"),
        ("codecs3", "zstd-crc32c", "c/1/0"),
        ("codecs3", "blosc-lz4-shuffle", "c/1/0"),
        ("codecs3", "sharded", "c/1/0"),
        ("codecs2", "lz4", "1.0"),
        ("codecs2", "zlib", "1.0"),
        ("codecs2", "blosc", "1.0"),
    ] {
        let bytes = fs::read(fixture(store).join(variable).join(chunk)).unwrap();
        for keep in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            let dir = TestDir::new();
            name_dimensions(&fixture(store), variable, &dir);
            dir.write(&format!("{variable}/{chunk}"), &bytes[..keep]);
            let source = open_with(&dir.path(""), |options| {
                select(options, &[variable], "y=50,x=40", "")
            });
            let error = check_error(batches(source.unwrap().as_ref()).unwrap_err());
            assert_eq!(
                (error.kind(), error.id()),
                (ErrorKind::Corrupt, "zarr-chunk"),
                "{variable} {keep}: {error}"
            );
            assert!(
                error
                    .object()
                    .unwrap()
                    .ends_with(&format!("{variable}/{chunk}")),
                "{error:?}"
            );
        }
    }
    let dir = TestDir::new();
    name_dimensions(&fixture("codecs3"), "zstd-crc32c", &dir);
    let mut bytes = fs::read(dir.path("zstd-crc32c/c/0/0")).unwrap();
    bytes[40] ^= 1;
    let source = open_with(&dir.path(""), |options| {
        select(options, &["zstd-crc32c"], "y=9", "")
    })
    .unwrap();
    dir.write("zstd-crc32c/c/0/0", &bytes);
    // It was changed after it was listed.
    assert_eq!(batches(source.as_ref()).unwrap_err().id(), "source-changed");
    let source = open_with(&dir.path(""), |options| {
        select(options, &["zstd-crc32c"], "y=9", "")
    })
    .unwrap();
    let error = batches(source.as_ref()).unwrap_err();
    assert!(error.to_string().contains("CRC-32C"), "{error}");
}

#[test]
fn invalid_array_metadata_is_an_error() {
    let change = |from: &str, to: &str| {
        let dir = TestDir::new();
        name_dimensions(&fixture("codecs3"), "sharded", &dir);
        let path = dir.path("sharded/zarr.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
        refused(&dir.path(""), |options| {
            select(options, &["sharded"], "y=9", "")
        })
    };
    for (from, to, id) in [
        ("\"shape\":[50,40]", "\"shape\":[50]", "zarr-metadata"),
        ("\"shape\":[50,40]", "\"shape\":[50,-40]", "zarr-metadata"),
        (
            "\"chunk_shape\":[8,16]",
            "\"chunk_shape\":[9,16]",
            "zarr-metadata",
        ),
        (
            "\"chunk_shape\":[8,16]",
            "\"chunk_shape\":[0,16]",
            "zarr-metadata",
        ),
        (
            "\"fill_value\":0",
            "\"fill_value\":\"much\"",
            "zarr-metadata",
        ),
        ("\"regular\"", "\"rectilinear\"", "zarr-metadata"),
        ("{", "{{", "zarr-metadata"),
        (
            "\"shape\":[50,40]",
            "\"more\":1,\"shape\":[50,40]",
            "zarr-codec",
        ),
        ("\"zstd\"", "\"zfp\"", "zarr-codec"),
        ("\"int32\"", "\"complex64\"", "type-unsupported"),
        (
            "\"chunk_shape\":[32,32]",
            "\"chunk_shape\":[8388608,16777216]",
            "limit-sample-bytes",
        ),
    ] {
        let error = change(from, to);
        assert_eq!(error.id(), id, "{to}: {error}");
        assert!(error.object().unwrap().ends_with("sharded/zarr.json"));
    }
}

#[test]
fn store_windows_match_and_read_each_chunk_once() {
    let server =
        S3Server::start(Objects::folder("bucket", &fixture("")), Settings::default()).unwrap();
    let at = |name: &str| Location::parse(&format!("{}/{name}", server.url())).unwrap();
    let set = |options: &mut SourceOptions, window: &str, stride: &str| {
        select(options, &["t2m", "rain", "height"], window, stride);
        options.remote = RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        };
        options.resources.batch_bytes = 100;
    };
    for store in ["weather2", "weather3"] {
        for (window, stride, rows) in xbatcher() {
            let mut options = SourceOptions::default();
            set(&mut options, &window, &stride);
            let source = open(&[at(store)], &options).unwrap();
            server.forget_counts();
            let found = read(source.as_ref());
            assert_eq!(found.num_rows(), rows.len());
            // t2m has 18 chunks, rain 3, and height and the three coordinates one each.
            let requests = server.counts().requests;
            assert!(requests <= 18 + 3 + 1 + 3, "{window}: {requests}");
            equals_xbatcher(source.as_ref(), &window, &rows);
        }
    }
    let mut options = SourceOptions::default();
    set(&mut options, "y=2", "");
    options.samples.zarr.variables = vec!["nothing".to_owned()];
    let error = open(&[at("weather3")], &options).err().unwrap();
    assert_eq!(error.id(), "zarr-variable");
    assert_eq!(
        error.hint().unwrap(),
        "the store has height, lat, lon, rain, t2m, time"
    );
}

#[test]
fn windows_match_with_a_small_chunk_cache() {
    for (window, stride, rows) in xbatcher() {
        let source = open_with(&fixture("weather3"), |options| {
            select(options, &["t2m", "rain", "height"], &window, &stride);
            options.resources.memory_limit = Some(100);
        });
        equals_xbatcher(source.unwrap().as_ref(), &window, &rows);
    }
}

#[test]
fn changed_chunk_changes_the_fingerprint() {
    let dir = TestDir::new();
    name_dimensions(&fixture("codecs3"), "raw", &dir);
    let open = || -> Arc<dyn Source> {
        open_with(&dir.path(""), |options| {
            select(options, &["raw"], "y=9", "")
        })
        .unwrap()
    };
    let first = open().description().fingerprint.clone();
    assert_eq!(open().description().fingerprint, first);
    dir.write("raw/c/0/0", [0; 32 * 32 * 4]);
    assert_ne!(open().description().fingerprint, first);
}

/// The variables and coordinates that xarray decoded from `cf2` and `cf3`: their types, and their values in each window.
fn decoded() -> serde_json::Map<String, Value> {
    let path = fixture("../xarray-2026.9.0/decoded.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Selects the windows of `decoded.json`.
fn select_decoded(options: &mut SourceOptions) {
    let columns = decoded();
    let variables = columns
        .iter()
        .filter(|(_, own)| own["windows"][0].as_array().unwrap().len() == 8);
    let variables: Vec<&str> = variables
        .map(|(name, _)| name.as_str())
        .filter(|name| *name != "valid")
        .collect();
    assert_eq!(variables.len(), 30);
    select(options, &variables, "time=2", "");
    options.samples.zarr.raw_values = false;
}

/// Returns the values of a row as those of `decoded.json`: times and durations in nanoseconds, what is missing as null.
fn decoded_values(column: &ArrayRef, row: usize) -> (DataType, Vec<Value>) {
    let values = leaves(column, row);
    let nanoseconds = match values.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        _ => 1,
    };
    let number = |at: usize| match values.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let floats = cast(&values, &DataType::Float64).unwrap();
            serde_json::json!(floats.as_primitive::<Float64Type>().value(at))
        }
        DataType::UInt64 => serde_json::json!(values.as_primitive::<UInt64Type>().value(at)),
        _ if values.is_null(at) => Value::Null,
        _ => {
            let wholes = cast(&values, &DataType::Int64).unwrap();
            let number = i128::from(wholes.as_primitive::<Int64Type>().value(at)) * nanoseconds;
            Value::Number(number.to_string().parse().unwrap())
        }
    };
    (
        values.data_type().clone(),
        (0..values.len()).map(number).collect(),
    )
}

/// Counts the windows whose type and values are those of xarray.
fn equal_windows(source: &dyn Source) -> usize {
    let found = read(source);
    let mut equal = 0;
    for (name, own) in decoded() {
        let column = found
            .column_by_name(&name)
            .unwrap_or_else(|| panic!("no column {name}"));
        for (row, expected) in own["windows"].as_array().unwrap().iter().enumerate() {
            let (data_type, values) = decoded_values(column, row);
            let expected_type = own["dtype"].as_str().unwrap();
            let (expected_type, unit) = expected_type
                .trim_end_matches(']')
                .split_once('[')
                .unwrap_or((expected_type, ""));
            let has_type = match data_type {
                DataType::Timestamp(..) => expected_type == "datetime64",
                DataType::Duration(_) => expected_type == "timedelta64",
                // Arrays of truth values have no encoding.
                DataType::UInt8 if expected_type == "bool" => true,
                other => other.to_string().to_lowercase() == expected_type,
            };
            assert!(has_type, "{name}: {expected_type}");
            let expected = expected
                .as_array()
                .unwrap()
                .iter()
                .map(|value| match value {
                    Value::Bool(value) => serde_json::json!(i64::from(*value)),
                    Value::Number(number) if unit == "us" => {
                        let number = i128::from(number.as_i64().unwrap()) * 1_000;
                        Value::Number(number.to_string().parse().unwrap())
                    }
                    other => other.clone(),
                });
            assert_eq!(values, expected.collect::<Vec<_>>(), "{name} {row}");
            equal +=
                usize::from(own["windows"][0].as_array().unwrap().len() == 8 && name != "valid");
        }
    }
    equal
}

#[test]
fn decoded_windows_are_those_of_xarray() {
    for store in ["../xarray-2026.9.0/cf2", "../xarray-2026.9.0/cf3"] {
        let source = open_with(&fixture(store), select_decoded).unwrap();
        assert_eq!(equal_windows(source.as_ref()), 90, "{store}");
        // Coordinates of text and of other dimensions are left out.
        let starts = source.schema().fields().len() - decoded().len();
        assert_eq!(starts, 1);
        let zarr = source.description().zarr.clone().unwrap();
        assert_eq!(zarr["arrays"]["packed"]["attributes"]["scale_factor"], 0.1);
        assert_eq!(zarr["arrays"]["packed"]["attributes"]["units"], "K");
        assert_eq!(zarr["arrays"]["packed"]["dtype"], "int16");
        assert_eq!(zarr["attributes"]["title"], "NaN, \"Infinity\"");
    }
}

#[test]
fn raw_values_are_stored_with_their_attributes() {
    for store in ["cf2", "cf3"] {
        let source = open_with(&fixture("../xarray-2026.9.0").join(store), |options| {
            select_decoded(options);
            options.samples.zarr.raw_values = true;
        });
        let source = source.unwrap();
        let found = read(source.as_ref());
        assert_eq!(
            flat(found.column_by_name("packed").unwrap(), 0)[..3],
            [-50.0, -43.0, -36.0]
        );
        assert_eq!(
            flat(found.column_by_name("days").unwrap(), 0)[..2],
            [-4000.0, -3600.0]
        );
        assert_eq!(flat(found.column_by_name("issued").unwrap(), 0), [3.0]);
        let zarr = source.description().zarr.clone().unwrap();
        assert_eq!(
            zarr["arrays"]["issued"]["attributes"]["units"],
            "days since 2025-12-29"
        );
        assert_eq!(
            zarr["arrays"]["packed"]["dimensions"],
            serde_json::json!(["time", "x"])
        );
        assert_eq!(zarr["arrays"]["packed"]["attributes"]["_FillValue"], -50);
    }
}

#[test]
fn web_servers_and_stores_give_the_same_windows() {
    for flavor in [Flavor::Web, Flavor::S3] {
        let settings = Settings {
            flavor,
            ..Settings::default()
        };
        let objects = Objects::folder("bucket", &fixture("../xarray-2026.9.0"));
        let server = S3Server::start(objects, settings).unwrap();
        for store in ["cf2", "cf3"] {
            let location = Location::parse(&format!("{}/{store}", server.url())).unwrap();
            let mut options = SourceOptions::default();
            select_decoded(&mut options);
            options.remote = RemoteOptions {
                settings: server.environment(),
                ..RemoteOptions::default()
            };
            let source = open(&[location], &options).unwrap();
            assert_eq!(equal_windows(source.as_ref()), 90, "{store}");
            let mut requests = server.counts().by_key;
            requests.retain(|key, count| *count > 1 && !key.is_empty());
            assert!(requests.is_empty(), "{requests:?}");
            // `packed` has four chunks, 29 variables and 5 coordinates have one. One name has no array.
            let metadata = match flavor {
                Flavor::Web => 2 + 2,
                // A store lists the objects of each array.
                _ => 2 + 2 + 35,
            };
            let all = server.counts().requests;
            assert!(all <= 4 + 29 + 5 + metadata, "{all}");
            server.forget_counts();
        }
    }
}

#[test]
fn web_servers_need_no_consolidated_metadata_and_no_complete_chunks() {
    let settings = Settings {
        flavor: Flavor::Web,
        ..Settings::default()
    };
    let dir = TestDir::new();
    for variable in ["sharded", "sharded-start", "raw"] {
        let part = TestDir::new();
        name_dimensions(&fixture("codecs3"), variable, &part);
        for name in ["zarr.json", "c/0/0", "c/0/1", "c/1/0", "c/1/1"] {
            let name = format!("{variable}/{name}");
            if let Ok(bytes) = fs::read(part.path(&name)) {
                dir.write(&name, bytes);
            }
        }
    }
    fs::remove_file(dir.path("raw/c/1/1")).unwrap();
    let server = S3Server::start(Objects::folder("bucket", &dir.path("")), settings).unwrap();
    let location = Location::parse(&server.url()).unwrap();
    let read_all = |location: &Location, variables: &[&str]| {
        let mut options = SourceOptions::default();
        select(&mut options, variables, "y=10,x=7", "");
        open(std::slice::from_ref(location), &options).map(|source| read(source.as_ref()))
    };
    let variables = ["sharded", "sharded-start", "raw"];
    let found = read_all(&location, &variables).unwrap();
    let expected = read_all(&Location::from(dir.path("")), &variables).unwrap();
    assert_eq!(found.num_rows(), 25);
    for variable in variables {
        let of = |batch: &arrow::array::RecordBatch| -> Vec<String> {
            let column = batch.column_by_name(variable).unwrap();
            (0..25)
                .map(|row| format!("{:?}", flat(column, row)))
                .collect()
        };
        assert_eq!(of(&found), of(&expected), "{variable}");
    }
    let error = read_all(&location, &["absent"]).unwrap_err();
    assert_eq!(error.id(), "zarr-variable");
    // Only a missing chunk is one of fill values.
    let script = |asked: &Asked| {
        asked
            .key
            .ends_with("raw/c/0/1")
            .then_some(Fault::status(403))
    };
    let settings = Settings {
        flavor: Flavor::Web,
        faults: Script::by(script),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::folder("bucket", &dir.path("")), settings).unwrap();
    let location = Location::parse(&server.url()).unwrap();
    let mut options = SourceOptions::default();
    select(&mut options, &["raw"], "y=10,x=40", "");
    let source = open(&[location], &options).unwrap();
    let error = batches(source.as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
}

#[test]
fn calendars_and_units_without_timestamps_are_errors_naming_them() {
    for (from, to, text) in [
        ("\"standard\"", "\"noleap\"", "the calendar `noleap`"),
        ("\"standard\"", "\"360_day\"", "the calendar `360_day`"),
        ("\"standard\"", "\"julian\"", "the calendar `julian`"),
        (
            "hours since",
            "months since",
            "the units `months since 2026-01-01`",
        ),
        (
            "2026-01-01",
            "the start",
            "the units `hours since the start`",
        ),
    ] {
        let dir = TestDir::new();
        for (name, text) in [
            (
                "t/.zarray",
                r#"{"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i4", "order": "C", "compressor": null, "filters": null, "fill_value": null}"#,
            ),
            (
                "t/.zattrs",
                r#"{"_ARRAY_DIMENSIONS": ["t"], "units": "hours since 2026-01-01", "calendar": "standard"}"#,
            ),
        ] {
            dir.write(name, text.replace(from, to));
        }
        let open = |raw_values| {
            open_with(&dir.path(""), |options| {
                select(options, &["t"], "t=2", "");
                options.samples.zarr.raw_values = raw_values;
            })
        };
        let error = check_error(open(false).err().unwrap());
        assert_eq!(
            (error.kind(), error.id()),
            (ErrorKind::Unsupported, "zarr-time"),
            "{error}"
        );
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.object().unwrap().ends_with("/t"));
        assert!(error.hint().unwrap().contains("--raw-values"));
        open(true).unwrap();
    }
}
