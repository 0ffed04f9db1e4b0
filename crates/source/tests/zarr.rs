//! Tests windows of Zarr stores, against stores that the package `zarr` wrote and windows of `xbatcher`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use serde_json::Value;
use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_source::{Source, SourceError, SourceKind, SourceOptions, open};
use shardmill_storage::{Location, RemoteOptions};
use shardmill_testing::s3::{Objects, S3Server, Settings};

use crate::help::{TestDir, batches, check_error, open_with, read, refused};
use crate::text::types;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/zarr-3.1.6")
        .join(name)
}

/// Selects windows, given as `DIMENSION=SIZE,...`.
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
}

/// Returns the values of one row of a column, without their shape.
fn flat(column: &ArrayRef, row: usize) -> Vec<f64> {
    let mut values = column.slice(row, 1);
    while let DataType::FixedSizeList(..) = values.data_type() {
        let list = values.as_fixed_size_list();
        let size = usize::try_from(list.value_length()).unwrap();
        values = list.values().slice(list.offset() * size, list.len() * size);
    }
    let floats = cast(&values, &DataType::Float64).unwrap();
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
fn whole(store: &Path, variable: &str) -> Result<Vec<f64>, SourceError> {
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
            // t2m has 18 chunks, rain 3, and height and the coordinates one each. Windows that move along fewer
            // dimensions have fewer coordinates.
            let coordinates = window.split(',').count() as u64;
            let requests = server.counts().requests;
            assert!(requests <= 18 + 3 + 1 + coordinates, "{window}: {requests}");
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
