//! Checks that the options of a conversion fit each other, the source and the destination.

use std::path::{Path, PathBuf};

use shardmill_core::{check_relative_path, escape};
use shardmill_mds::Encoding;
use shardmill_source::{SchemaRule, SourceKind, SourceOptions, TextOptions, TreeGroup};
use shardmill_storage::Location;
use shardmill_writer::{ColumnEncoder, RowEncoder, ShardFormat, Target};

use crate::error::ConvertError;
use crate::export;
use crate::options::{ConvertOptions, Nulls, shown};
use crate::table;

/// The default name of the key column.
pub(crate) const DEFAULT_KEY: &str = "__key__";

/// Checks the options that do not depend on the source.
pub(crate) fn check_options(options: &ConvertOptions) -> Result<(), ConvertError> {
    if options.sources.is_empty() {
        return Err(ConvertError::option("source", "there is no source"));
    }
    let query = &options.source.query;
    if query.sql.is_some() && (query.select.is_some() || query.filter.is_some()) {
        return Err(ConvertError::option_hint(
            "sql",
            "a query cannot be combined with --select or --where",
            "put the columns and the condition into the query",
        ));
    }
    let sum: f64 = options.columns.split.iter().map(|split| split.share).sum();
    if !options.columns.split.is_empty() && (sum - 1.0).abs() > 1e-9 {
        return Err(ConvertError::option(
            "split",
            format!("the shares sum to {sum}, not to 1"),
        ));
    }
    let mut names: Vec<&str> = Vec::new();
    for split in &options.columns.split {
        let name = escape(&split.name);
        let problem = if !split.share.is_finite() || split.share <= 0.0 {
            format!("the share of `{name}` is not above 0")
        } else if let Err(error) = check_relative_path(&split.name) {
            format!("`{name}` cannot be a directory: {error}")
        } else if name.contains('/') || name.starts_with('.') {
            format!("`{name}` cannot be a directory: it has a slash or starts with a dot")
        } else if names.contains(&split.name.as_str()) {
            format!("there are two splits `{name}`")
        } else {
            names.push(&split.name);
            continue;
        };
        return Err(ConvertError::option("split", problem));
    }
    if options.columns.split.is_empty() && options.columns.split_key.is_some() {
        return Err(ConvertError::option(
            "split-key",
            "there is no --split whose key it could be",
        ));
    }
    if options.columns.shuffle.is_some() && options.run.incremental {
        return Err(ConvertError::option_hint(
            "shuffle",
            "--incremental keeps the order of the table's files",
            "omit one of them",
        ));
    }
    if options.shards.keep_row_groups {
        let limits_samples = options.shards.samples_per_shard.is_some();
        let reorders = [
            ("--shuffle", options.columns.shuffle.is_some()),
            ("--sql", query.sql.is_some()),
            ("--split", !options.columns.split.is_empty()),
            ("--samples-per-shard", limits_samples),
        ];
        if let Some((other, _)) = reorders.iter().find(|(_, given)| *given) {
            let fact = format!("it cannot be combined with {other}");
            let (option, hint) = ("keep-row-groups", "omit one of them");
            return Err(ConvertError::option_hint(option, fact, hint));
        }
    }
    table::check_options(options)?;
    check_tar_options(options)?;
    check_part(options)
}

fn check_part(options: &ConvertOptions) -> Result<(), ConvertError> {
    let Some(part) = options.run.part else {
        return Ok(());
    };
    if part.number >= part.count {
        return Err(ConvertError::option_hint(
            "part",
            format!("there is no part {} of {}", part.number, part.count),
            "parts count from 0",
        ));
    }
    let other = match () {
        () if options.run.overwrite => "--overwrite",
        () if options.columns.shuffle.is_some() => "--shuffle",
        () if !options.columns.split.is_empty() => "--split",
        () if !options.shards.tar.index_for.is_empty() => "--index-for",
        () => return Ok(()),
    };
    Err(ConvertError::option_hint(
        "part",
        format!("{other} is not possible in parts"),
        "convert in one run",
    ))
}

/// Checks that the columns can have files beside the index: lengths need values of different lengths, videos need bytes.
pub(crate) fn check_column_files(
    encoder: &RowEncoder,
    options: &ConvertOptions,
) -> Result<(), ConvertError> {
    let to = options.shards.to;
    let lengths = (
        "lengths",
        &options.columns.lengths,
        format!("{to} keeps no lengths of columns"),
        "omit it, or use --to mds",
        "run `shardmill index lengths` after the commit",
    );
    let videos = (
        "video",
        &options.columns.videos,
        format!("{to} has no index of videos"),
        "use `index_videos` in Python, or --to mds",
        "use `index_videos` in Python after the commit",
    );
    for (option, names, no_format, format_hint, part_hint) in [lengths, videos] {
        let refused = |fact: &str, hint: &str| Err(ConvertError::option_hint(option, fact, hint));
        for name in names {
            if to != ShardFormat::Mds {
                return refused(&no_format, format_hint);
            }
            if options.run.part.is_some() {
                let what = option.trim_end_matches('s');
                let fact = format!("a part has no index that {what}s could belong to");
                return refused(&fact, part_hint);
            }
            let column = encoder
                .columns()
                .iter()
                .find(|column| column.name() == name);
            let name = escape(name);
            let Some(Target::Mds(encoding)) = column.map(ColumnEncoder::target) else {
                let fact = format!("no column `{name}` is written");
                return refused(&fact, "name a column of the dataset");
            };
            if option == "video" && *encoding != Encoding::Bytes {
                let fact = format!("column `{name}` does not hold bytes");
                return refused(&fact, "name a column of MP4 files");
            }
            if encoding.fixed_size().is_some() && !matches!(encoding, Encoding::NdArray { .. }) {
                let fact = format!("every value of column `{name}` has the same length");
                return refused(&fact, "name a column of text, bytes or arrays");
            }
        }
    }
    Ok(())
}

fn check_tar_options(options: &ConvertOptions) -> Result<(), ConvertError> {
    if options.shards.to != ShardFormat::Webdataset {
        if options.columns.nulls == Nulls::Omit {
            return Err(ConvertError::option_hint(
                "nulls",
                format!("every sample of {} has every column", options.shards.to),
                "choose --nulls mask, --nulls drop, or --to webdataset",
            ));
        }
        if !options.shards.tar.index_for.is_empty() {
            return Err(ConvertError::option_hint(
                "index-for",
                format!("these readers do not read {}", options.shards.to),
                "use --to webdataset",
            ));
        }
        return Ok(());
    }
    for reader in &options.shards.tar.index_for {
        export::check_reader(*reader, options.shards.tar.compression.is_some())?;
    }
    Ok(())
}

/// Checks that neither the destination nor a source contains the other.
pub(crate) fn check_overlap(options: &ConvertOptions) -> Result<(), ConvertError> {
    for source in &options.sources {
        // A pattern has no location of its own. Its files are compared when they are known.
        let overlap = match (&options.dest, source) {
            (Location::Local(dest), Location::Local(source)) => {
                let (dest, source) = (absolute(dest), absolute(source));
                dest.starts_with(&source) || source.starts_with(&dest)
            }
            (Location::Remote(dest), Location::Remote(source)) => {
                dest.strip_prefix(source).is_some() || source.strip_prefix(dest).is_some()
            }
            _ => false,
        };
        if overlap {
            return Err(ConvertError::conflict(
                options.dest_text(),
                "dest-overlap",
                format!(
                    "it and the source {} contain one another",
                    escape(&shown(source))
                ),
                "choose a destination outside the source",
            ));
        }
    }
    Ok(())
}

/// Returns the path without links and dots, as far as it exists.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing = Vec::new();
    let mut there = path.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            return missing
                .iter()
                .rev()
                .fold(real, |path, part| path.join(part));
        }
        match (there.parent(), there.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                there = parent;
            }
            _ => return path,
        }
    }
}

/// Checks that all options apply to this kind of source.
pub(crate) fn check_source_options(
    kind: SourceKind,
    options: &ConvertOptions,
) -> Result<(), ConvertError> {
    let source = &options.source;
    check_file_options(kind, source)?;
    let is_csv = matches!(kind, SourceKind::Csv | SourceKind::Tsv);
    let is_text = is_csv || kind == SourceKind::JsonLines;
    let has_keys = matches!(kind, SourceKind::Tree | SourceKind::Webdataset)
        || options.shards.to == ShardFormat::Webdataset;
    let has_schemas = matches!(kind, SourceKind::Parquet | SourceKind::Arrow);
    let can_keep = matches!(kind, SourceKind::Parquet | SourceKind::Delta);
    let can_infer = is_text || kind == SourceKind::Tfrecord;
    let infers_rows = source.text.infer_rows != TextOptions::default().infer_rows;
    let csv = &source.csv;
    let has_rule = source.schema.rule != SchemaRule::Widen;
    let names_key = source.tree.key_column != DEFAULT_KEY;
    let of_infer = "CSV files, JSON lines and TFRecord files";
    let of_key = "trees and tar files, and sources of them";
    let of_zarr = "Zarr stores, with --from zarr";
    let zarr = &source.samples.zarr;
    let is_zarr = kind == SourceKind::Zarr;
    let options = [
        ("infer-rows", infers_rows && !can_infer, of_infer),
        (
            "schema",
            has_rule && !has_schemas,
            "Parquet and Arrow files",
        ),
        ("variable", !zarr.variables.is_empty() && !is_zarr, of_zarr),
        ("window", !zarr.window.is_empty() && !is_zarr, of_zarr),
        ("raw-values", zarr.raw_values && !is_zarr, of_zarr),
        (
            "keep-row-groups",
            options.shards.keep_row_groups && !can_keep,
            "Parquet files and Delta tables",
        ),
        ("csv-no-header", !csv.header && !is_csv, "CSV files"),
        (
            "csv-delimiter",
            csv.delimiter.is_some() && !is_csv,
            "CSV files",
        ),
        ("csv-null", csv.nulls != [""] && !is_csv, "CSV files"),
        ("key-column", names_key && !has_keys, of_key),
    ];
    check_misplaced(kind, &options)
}

/// Checks that the options that select and group files apply to this kind of source.
///
/// # Errors
///
/// `config-group`, `config-include`, `config-exclude` and `config-follow-links`.
pub fn check_file_options(kind: SourceKind, source: &SourceOptions) -> Result<(), ConvertError> {
    let is_tree = kind == SourceKind::Tree;
    if source.tree.group != TreeGroup::Stem && !is_tree {
        return Err(ConvertError::option_hint(
            "group",
            format!("the source holds {kind}, but only files of a tree can be grouped"),
            "omit it; with --from tree, convert takes the files as they are",
        ));
    }
    let has_files = !matches!(
        kind,
        SourceKind::Delta | SourceKind::Zarr | SourceKind::Mds | SourceKind::Webdataset
    );
    let (includes, excludes) = (&source.files.include, &source.files.exclude);
    let follows = source.tree.follow_links;
    let options = [
        (
            "include",
            !includes.is_empty() && !has_files,
            "files below a folder",
        ),
        (
            "exclude",
            !excludes.is_empty() && !has_files,
            "files below a folder",
        ),
        ("follow-links", follows && !is_tree, "the files of a tree"),
    ];
    check_misplaced(kind, &options)
}

/// Returns an error for the first option that does not apply: its name, whether that is so, and what it applies to.
fn check_misplaced(
    kind: SourceKind,
    options: &[(&'static str, bool, &str)],
) -> Result<(), ConvertError> {
    match options.iter().find(|(_, is_misplaced, _)| *is_misplaced) {
        None => Ok(()),
        Some((option, _, what)) => Err(ConvertError::option_hint(
            option,
            format!("it applies to {what}, but the source holds {kind}"),
            "omit it",
        )),
    }
}
