//! Checks that the options of a conversion fit each other, the source and the destination.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use shardmill_core::{Error, escape};
use shardmill_mds::Encoding;
use shardmill_source::{SchemaRule, SourceKind, SourceOptions, TextOptions, TreeGroup};
use shardmill_storage::Location;
use shardmill_writer::{ColumnEncoder, FieldEncoding, RowEncoder, ShardFormat, Target};

use crate::columns::parse_target;
use crate::error::{conflict, other_option};
use crate::export;
use crate::options::{ColumnSpec, ConvertOptions, Nulls, ShardOptions, TarNames, shown};
use crate::table;

/// The default name of the key column.
pub(crate) const DEFAULT_KEY: &str = "__key__";

/// Checks the options that do not depend on the source. [`plan`](crate::plan()) does so as well.
///
/// # Errors
///
/// `InvalidInput` for options that the format does not have, or that do not fit each other.
pub fn check_options(options: &ConvertOptions) -> Result<(), Error> {
    check_columns(&options.columns.specs, options.shards.to)?;
    let columns = &options.columns;
    check_unique("config-lengths", columns.lengths.iter())?;
    check_unique("config-video", columns.videos.iter())?;
    check_unique(
        "config-null-as",
        columns.null_as.iter().map(|(name, _)| name),
    )?;
    check_shard_options(&options.shards)?;
    if options.sources.is_empty() {
        return Err(other_option("source", "there is no source"));
    }
    let query = &options.source.query;
    if query.sql.is_some() && (query.select.is_some() || query.filter.is_some()) {
        return Err(Error::option_hint(
            "config-sql",
            "a query cannot be combined with --select or --where",
            "put the columns and the condition into the query",
        ));
    }
    if options.columns.shuffle.is_some() && options.run.incremental {
        return Err(other_option(
            "shuffle",
            "--incremental keeps the order of the table's files",
        )
        .with_hint("omit one of them"));
    }
    if options.shards.keep_row_groups {
        let limits_samples = options.shards.samples_per_shard.is_some();
        let reorders = [
            ("--shuffle", options.columns.shuffle.is_some()),
            ("--sql", query.sql.is_some()),
            ("--split", !options.columns.splits().is_empty()),
            ("--samples-per-shard", limits_samples),
        ];
        if let Some((other, _)) = reorders.iter().find(|(_, given)| *given) {
            let fact = format!("it cannot be combined with {other}");
            let (id, hint) = ("config-keep-row-groups", "omit one of them");
            return Err(Error::option_hint(id, fact, hint));
        }
    }
    table::check_options(options)?;
    check_tar_options(options)?;
    check_part(options)
}

/// Checks that no column is given twice.
fn check_unique<'a>(
    id: &'static str,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    match names.find(|name| !seen.insert(*name)) {
        Some(name) => {
            let fact = format!("`{}` is given twice", escape(name));
            Err(Error::option_hint(id, fact, "name each column once"))
        }
        None => Ok(()),
    }
}

/// Checks that no column is given twice, and that the format has the encodings.
fn check_columns(columns: &[ColumnSpec], to: ShardFormat) -> Result<(), Error> {
    for is_rest in [false, true] {
        let names = columns.iter().filter(|column| column.is_rest == is_rest);
        check_unique("config-column", names.map(|column| &column.name))?;
    }
    for column in columns {
        let encoding = column.encoding.as_deref();
        let target = encoding.map(|encoding| parse_target(&column.name, encoding, to));
        let Some(Err(fact)) = target else {
            continue;
        };
        let hint = match to {
            ShardFormat::Webdataset => {
                let names = FieldEncoding::ALL.map(FieldEncoding::name).join(", ");
                format!("the encodings of webdataset are {names}")
            }
            ShardFormat::Parquet => "columns of parquet are bytes, str, int or float".to_owned(),
            ShardFormat::Mds => {
                format!("the encodings of MDS are {}", Encoding::names().join(", "))
            }
        };
        let message = format!("column {}: {fact}", escape(&column.name));
        return Err(Error::option_hint("config-column", message, hint));
    }
    Ok(())
}

/// Checks that the format has what the options are about.
fn check_shard_options(shards: &ShardOptions) -> Result<(), Error> {
    let (to, tar) = (shards.to, &shards.tar);
    let is_tar = to == ShardFormat::Webdataset;
    let nothing = || format!("{to} has nothing to choose there");
    let tar_hint = "omit it, or write --to webdataset";
    let max = u64::from(u32::MAX);
    let (id, fact, hint) = match () {
        () if !is_tar && tar.pattern.is_some() => ("config-shard-pattern", nothing(), tar_hint),
        () if !is_tar && tar.names != TarNames::Portable => ("config-names", nothing(), tar_hint),
        () if !is_tar && tar.index_for.is_some() => ("config-index-for", nothing(), tar_hint),
        () if to != ShardFormat::Parquet && shards.row_group_size.is_some() => {
            let fact = format!("{to} has no row groups");
            (
                "config-row-group-size",
                fact,
                "omit it, or write --to parquet",
            )
        }
        () if to == ShardFormat::Mds && shards.size_limit > Some(max) => {
            let bytes = shards.size_limit.unwrap_or_default();
            let fact = format!("{bytes} bytes are more than a shard can address");
            (
                "config-size-limit",
                fact,
                "choose at most 4294967295 bytes, or none",
            )
        }
        () => return Ok(()),
    };
    Err(Error::option_hint(id, fact, hint))
}

fn check_part(options: &ConvertOptions) -> Result<(), Error> {
    let Some(part) = options.run.part else {
        return Ok(());
    };
    if part.number >= part.count {
        return Err(Error::option_hint(
            "config-part",
            format!("there is no part {} of {}", part.number, part.count),
            "parts count from 0",
        ));
    }
    let other = match () {
        () if options.run.overwrite => "--overwrite",
        () if options.columns.shuffle.is_some() => "--shuffle",
        () if !options.columns.splits().is_empty() => "--split",
        () if !options.shards.tar.readers().is_empty() => "--index-for",
        () => return Ok(()),
    };
    Err(Error::option_hint(
        "config-part",
        format!("{other} is not possible in parts"),
        "convert in one run",
    ))
}

/// Checks that the columns can have files beside the index: lengths need values of different lengths, videos need bytes.
pub(crate) fn check_column_files(
    encoder: &RowEncoder,
    options: &ConvertOptions,
) -> Result<(), Error> {
    let to = options.shards.to;
    let lengths = (
        ("config-lengths", "length"),
        &options.columns.lengths,
        format!("{to} keeps no lengths of columns"),
        "omit it, or use --to mds",
        "run `shardmill index lengths` after the commit",
    );
    let videos = (
        ("config-video", "video"),
        &options.columns.videos,
        format!("{to} has no index of videos"),
        "use `index_videos` in Python, or --to mds",
        "use `index_videos` in Python after the commit",
    );
    for ((id, what), names, no_format, format_hint, part_hint) in [lengths, videos] {
        let refused = |fact: &str, hint: &str| Err(Error::option_hint(id, fact, hint));
        for name in names {
            if to != ShardFormat::Mds {
                return refused(&no_format, format_hint);
            }
            if options.run.part.is_some() {
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
            if what == "video" && *encoding != Encoding::Bytes {
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

fn check_tar_options(options: &ConvertOptions) -> Result<(), Error> {
    if options.shards.to != ShardFormat::Webdataset {
        if options.columns.nulls == Nulls::Omit {
            return Err(Error::option_hint(
                "config-nulls",
                format!("every sample of {} has every column", options.shards.to),
                "choose --nulls mask, --nulls drop, or --to webdataset",
            ));
        }
        return Ok(());
    }
    for reader in options.shards.tar.readers() {
        export::check_reader(*reader, options.shards.tar.compression.is_some())?;
    }
    Ok(())
}

/// Checks that neither the destination nor a source contains the other.
pub(crate) fn check_overlap(options: &ConvertOptions) -> Result<(), Error> {
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
            return Err(conflict(
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
) -> Result<(), Error> {
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
        ("config-infer-rows", infers_rows && !can_infer, of_infer),
        (
            "config-schema",
            has_rule && !has_schemas,
            "Parquet and Arrow files",
        ),
        (
            "config-variable",
            !zarr.variables.is_empty() && !is_zarr,
            of_zarr,
        ),
        (
            "config-window",
            !zarr.window.is_empty() && !is_zarr,
            of_zarr,
        ),
        ("config-raw-values", zarr.raw_values && !is_zarr, of_zarr),
        (
            "config-keep-row-groups",
            options.shards.keep_row_groups && !can_keep,
            "Parquet files and Delta tables",
        ),
        ("config-csv-no-header", !csv.header && !is_csv, "CSV files"),
        (
            "config-csv-delimiter",
            csv.delimiter.is_some() && !is_csv,
            "CSV files",
        ),
        ("config-csv-null", csv.nulls != [""] && !is_csv, "CSV files"),
        ("config-key", names_key && !has_keys, of_key),
    ];
    check_misplaced(kind, &options)
}

/// Checks that the options that select and group files apply to this kind of source.
///
/// # Errors
///
/// `config-group`, `config-include`, `config-exclude` and `config-follow-links`.
pub fn check_file_options(kind: SourceKind, source: &SourceOptions) -> Result<(), Error> {
    let is_tree = kind == SourceKind::Tree;
    if source.tree.group != TreeGroup::Stem && !is_tree {
        return Err(Error::option_hint(
            "config-group",
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
            "config-include",
            !includes.is_empty() && !has_files,
            "files below a folder",
        ),
        (
            "config-exclude",
            !excludes.is_empty() && !has_files,
            "files below a folder",
        ),
        (
            "config-follow-links",
            follows && !is_tree,
            "the files of a tree",
        ),
    ];
    check_misplaced(kind, &options)
}

/// Returns an error for the first option that does not apply: its id, whether that is so, and what it applies to.
fn check_misplaced(kind: SourceKind, options: &[(&'static str, bool, &str)]) -> Result<(), Error> {
    match options.iter().find(|(_, is_misplaced, _)| *is_misplaced) {
        None => Ok(()),
        Some((id, _, what)) => Err(Error::option_hint(
            id,
            format!("it applies to {what}, but the source holds {kind}"),
            "omit it",
        )),
    }
}
