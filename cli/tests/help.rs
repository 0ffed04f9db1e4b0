use crate::common::TestDir;

pub fn help(verb: &[&str]) -> String {
    let mut args = verb.to_vec();
    args.push("--help");
    let ran = TestDir::new().run(&args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let shown = ran.shown();
    // All verbs have the same global options, and the snapshot of `shardmill` shows them.
    let begin = shown.find("Global options:\n").expect("global options");
    let end = shown.find("EXAMPLES:").expect("examples");
    match verb {
        [] => shown,
        _ => format!("{}{}", &shown[..begin], &shown[end..]),
    }
}

#[test]
fn top_level_help_matches_snapshot() {
    insta::assert_snapshot!(help(&[]), @r"
    exit 0
    --- stdout
    Convert tables and file trees to training shards, and inspect them

    Usage: shardmill [OPTIONS] <COMMAND>

    Commands:
      convert      Convert tables or a tree of files to compressed, hashed, indexed shards
      inspect      Show the contents of a dataset, or how a source would be converted
      head         Show the first samples of a dataset, or the first rows of a source, as a table
      stats        Measure the columns of a dataset or a source: counts, nulls, distinct values,
                   extremes, means, histograms
      cat          Print samples as JSON lines, or write their fields as files
      add-column   Add the columns of a table to an MDS dataset that exists
      select       Select samples of a dataset, and write them to a small file, a view
      verify       Check a dataset: structure, lengths, hashes; with --deep every sample
      view         Show a dataset in the browser: samples, columns, shards, order and plan
      index        Rebuild or merge index.json, and write lengths and the indexes of other readers
      order        Print the samples that every rank receives, batch by batch
      plan         Predict fetches, cache hits, padding and waiting times of a training run
      which        Name the samples of a training step, or the steps that delivered a sample
      bench        Read a dataset as a training job would, and report how fast
      doctor       Check which operations work at a location with your settings: list, put, read,
                   create, delete
      commit       Publish the parts that `convert --part` wrote as one dataset
      gc           Show or remove the leftovers of an interrupted conversion that will not be resumed
      completions  Print the completion script of a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Global options:
          --json
              Print results as JSON on standard output and errors as JSON on standard error

      -q, --quiet
              Print no progress, summaries or notes

      -v, --verbose
              Print more details in summaries, such as the idle time of cores

          --progress <HOW>
              How progress is shown on standard error; `auto` means `bar` on a terminal, otherwise
              `none` with --json and `plain` without it

              [env: SHARDMILL_PROGRESS]
              [default: auto]
              [possible values: auto, bar, plain, json, none]

          --color <WHEN>
              When errors, warnings and help have colors; `auto` means on a terminal, unless NO_COLOR is
              set

              [env: SHARDMILL_COLOR]
              [default: auto]
              [possible values: auto, always, never]

          --safety-limit <NAME=VALUE>
              Raise or lower a limit for reading files, e.g. `shard-bytes=32GiB`; repeatable

    EXAMPLES:
      Convert a Parquet dataset to MDS shards:
        shardmill convert data/ shards/

      Inspect and check it:
        shardmill inspect shards/
        shardmill verify shards/ --deep

    EXIT STATUS:
      0    done
      1    a bug in shardmill
      2    usage or configuration
      3    bad or unverified data
      4    conflict: already exists, another writer, another configuration
      6    storage or network failure
      7    a local resource: disk, memory, files
      8    permission
      130  interrupted (143: terminated); run it again to continue
    ");
}

#[test]
fn convert_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["convert"]), @r#"
    exit 0
    --- stdout
    Convert tables or a tree of files to compressed, hashed, indexed shards

    The same input and options give the same bytes, whatever the number of jobs. An interrupted
    conversion resumes when the same command is run again. A finished conversion is left unchanged. A
    directory with `_delta_log` is read as a Delta table, one with Parquet, Arrow, CSV, JSON lines or
    TFRecord files as a table, tar files as WebDataset. Anything else is read as a tree in which files
    that share a stem are one sample.

    Usage: shardmill convert [OPTIONS] <SOURCE>... <DEST>

    Arguments:
      <SOURCE>...
              Files, directories or prefixes in stores to read, in this order; `-` for an Arrow stream
              on standard input

      <DEST>
              Directory or prefix in a store, such as s3://bucket/set, that receives the shards and
              `index.json`

    Options:
          --from <KIND>
              Kind of the source; `auto` detects it

              [default: auto]
              [possible values: auto, delta, parquet, arrow, csv, tsv, jsonl, tfrecord, tfrecord-raw,
              zarr, tree, mds, webdataset]

          --to <FORMAT>
              Format of the shards

              [default: mds]
              [possible values: mds, webdataset, parquet]

      -h, --help
              Print help (see a summary with '-h')

    Columns and rows:
          --column <NAME[:ENCODING][=EXPR]>
              A column to write: its name, `:` and an encoding, `=` and an SQL expression; repeatable

              With it, only the named columns are written. `*` stands for all that no other one names,
              in the encodings of their types: `--column '*' --column image:jpeg` changes one column.
              Without it, all columns are written so. A name that contains `:` or `=`, and the name `*`,
              are written in double quotes. With `--to webdataset` the name is the extension of the
              member, and encodings are bytes, str, int, json, npy and ten. A column that is not named
              gets the extension of its encoding (`caption` becomes `caption.txt`).

          --select <EXPRS>
              SQL expressions to read, as between SELECT and FROM

          --where <EXPR>
              Keep the rows for which this SQL expression is true

          --sql <QUERY>
              A whole SQL query; the table is called `source`

          --delta-version <N>
              In a Delta table: the version to read [default: the latest]

          --delta-timestamp <TIME>
              In a Delta table: read the latest version at this time, such as 2026-01-31T12:00:00Z

              A time without a zone is UTC. A date means its first instant. The time of a version is
              that of its commit, if the table records it, and otherwise the modification time of the
              commit's file.

          --key-column <COLUMN>
              Column with the keys of the samples; trees and tar files as sources have one. Without it,
              the samples of `--to webdataset` are numbered

              [default: __key__]

          --schema <RULE>
              If Parquet or Arrow files have different columns: widen numbers and times to a type that
              holds the values of all files (`widen`), also read columns that a file lacks as null
              (`union`), or reject every difference (`strict`)

              [default: widen]
              [possible values: widen, union, strict]

          --variable <NAME>
              With `--from zarr`: an array of the store, whose windows become a column; repeatable

          --window <DIMENSION=SIZE,...>
              With `--from zarr`: the size of a window along dimensions, such as time=24,lat=64,lon=64

              Each window is a sample. The last dimension moves first. A window has all of the other
              dimensions. Windows that do not fit at the end are left out.

          --stride <DIMENSION=STEP,...>
              With `--from zarr`: how far windows move along dimensions [default: their size]

          --raw-values
              With `--from zarr`: keep the stored numbers [default: decode them by the CF conventions]

              By default, values are those of xarray: missing ones are NaN, packed ones are unpacked,
              and times are timestamps.

          --csv-delimiter <CHAR>
              In CSV: the byte between two values; `\t` for a tab [default: a comma, and a tab in `.tsv`
              files]

          --csv-null <TEXT>
              In CSV: an unquoted text that means null, such as `NA`; repeatable [default: an empty
              text]

          --csv-no-header
              In CSV: the first line is data; columns are called column_1, column_2, …

          --infer-rows <N>
              In CSV, JSON lines and TFRecord: rows of each file above 64 MiB from which column types
              are inferred

              [default: 100000]

          --nulls <HOW>
              How to handle nulls: stop with an error, store zero and a column `NAME__is_null`, drop the
              row, or, with `--to webdataset`, omit the field

              [default: error]
              [possible values: error, mask, drop, omit]

          --null-as <NAME=VALUE>
              Value to store for the nulls of one column; repeatable

          --shuffle <SEED>
              Write the rows in a random order that depends only on this number and the source

              All rows are first written, uncompressed, to files in the directory for temporary files.

          --lengths <COLUMN>
              Keep the length of this column of every sample beside the index, in
              `index.lengths.COLUMN`; repeatable

              The length of an array is its number of elements, and of text and other values their
              number of bytes. Batches of a number of tokens need the lengths. `shardmill index lengths`
              writes them for an existing dataset.

          --video <COLUMN>
              Index the MP4 files of this column beside the index, in `index.videos.COLUMN`; repeatable

              With the index, `dataset.video` in Python fetches only the header and the groups of
              pictures that it needs.

          --split <NAME=SHARE,...>
              Divide the samples between subdirectories, by shares that add up to 1: `train=0.9,val=0.1`

          --split-key <COLUMN>
              Rows with the same value in this column go to the same split

    Files:
          --include <GLOB>
              Read only the files below a source folder that match this pattern, such as `*.jpg`;
              repeatable

              `*` and `?` match characters within a name, `**` any number of folders. A pattern without
              `/` is compared with the file's name, any other with its path relative to the source. The
              kind of a source is detected from all its files.

          --exclude <GLOB>
              Ignore the files below a source folder that match this pattern, such as `drafts/**`;
              repeatable

          --group <HOW>
              In a tree of files: group files whose names are the same up to their last dot (`stem`) or
              up to their first dot, as in tar shards (`key`), or make each file a sample (`file`)

              [default: stem]
              [possible values: stem, key, file]

          --follow-links
              In a tree of files: follow symbolic links

    Tokens:
          --tokenize <FILE>
              Replace a column of text with its tokens, by this tokenizer file of Hugging Face
              (`tokenizer.json`)

              The tokens are those of the Python package `tokenizers`. Truncation and padding in the
              file are ignored. Tokens have two bytes if all ids of the vocabulary fit, and else four.
              Their lengths are kept beside the index, as with `--lengths`.

          --text <COLUMN>
              The column to tokenize, of text or UTF-8 bytes [default: the only column of text]

          --tokens <COLUMN>
              Name of the column of tokens [default: tokens]

          --special-tokens
              Add the special tokens that the tokenizer adds for a model, such as `[CLS]` and `[SEP]`

              Without it, a text has only its own tokens, as for pretraining.

          --prepend <TOKEN>
              Put this token of the vocabulary before each text, such as `<s>`

          --append <TOKEN>
              Put this token of the vocabulary after each text, such as `<|endoftext|>`

          --keep-text
              Write the text as well; a text that `--column` names is always written

    Shards:
          --compression <NAME[:LEVEL]>
              Compression of the shards: zstd, gz, br, bz2 with an optional `:LEVEL`, snappy, or none
              [default: zstd:3, none for webdataset, which supports zstd and gz]

          --hashes <NAME,...>
              Hashes to record, separated by commas, or none

              [default: sha256]

          --size-limit <SIZE>
              Maximum raw bytes of a shard, or none

              [default: 64MiB]

          --row-group-size <SIZE>
              Maximum raw bytes of a row group of `--to parquet` [default: 64MiB]

          --samples-per-shard <N>
              Maximum number of samples in a shard

          --keep-row-groups
              Make each row group of Parquet files or a Delta table a shard, as when the table is read
              in place, so that the samples have the same order

          --shard-pattern <PATTERN>
              Names of the tar files of `--to webdataset`, with a placeholder for the number [default:
              shard-%06d.tar]

          --names <WHICH>
              Keys and fields allowed in `--to webdataset`: those that every known reader returns
              unchanged, or all that webdataset itself reads

              [default: portable]
              [possible values: portable, any]

          --index-for <READER,...>
              Also write the indexes of other readers, for `--to webdataset`: wids, dali, open_clip

    Running:
      -j, --jobs <N>
              Threads [default: one for each core]

              [env: SHARDMILL_JOBS]

          --memory-limit <SIZE>
              Memory for waiting samples and for queries [default: what the shards of all jobs need]

              [env: SHARDMILL_MEMORY_LIMIT]

          --config <FILE>
              Read options from this TOML file, under their names on the command line; typed options win

              `sources` is a list, `dest` a text. The table `[columns]` maps the names of columns to
              encodings, or to `{ encoding = "...", expr = "..." }`. Options without a value are `true`
              or `false`.

          --print-config
              Print all options as such a file, and convert nothing

          --dry-run
              Print the plan and write nothing

          --overwrite
              Replace an existing dataset at the destination

              The old dataset stays until the new one is published. The new shards have the number of
              the replacement in their names: `shard.00001-00000.mds`.

          --incremental
              Bring the dataset up to date with its Delta table: add new rows, list deleted ones

              The first run converts the table, and records which samples came from which of its files.
              Later runs read the files that were added since, append shards, and list the samples whose
              rows were deleted or changed in `index.tombstones`. Changed rows are added as new samples.

          --with-deleted
              Also convert samples of a dataset that were deleted from its table

              A dataset that follows a Delta table lists them in `index.tombstones`. By default they are
              left out.

          --view <FILE>
              Convert only the samples of this view of a dataset, a file of `select`

          --part <I/N>
              Write one of several parts, counted from 0; `shardmill commit` publishes all of them

              Parts may be written on different machines, at any time, and again after a failure. The
              source is divided among them at the ends of files and row groups.

    Stores:
          --temp-dir <DIR>
              Directory for temporary files of uploads and downloads [default: the system's]

              [env: SHARDMILL_TEMP_DIR]

          --takeover-after <TIME>
              Take over the lease of another writer in a store after this time without a heartbeat
              [default: 15s]

              [env: SHARDMILL_TAKEOVER_AFTER]

          --single-writer
              Write also where nothing keeps a second writer out: no other process writes to the
              destination

          --storage-option <NAME=VALUE>
              A setting that overrides the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000;
              repeatable

          --profile <NAME>
              The profile of ~/.aws/config and ~/.aws/credentials to use for S3, like AWS_PROFILE

          --region <REGION>
              The region of S3, like AWS_REGION

          --endpoint-url <URL>
              The endpoint of an S3 store other than Amazon's, like AWS_ENDPOINT_URL_S3

    EXAMPLES:
      Convert a Parquet dataset with the defaults (MDS, zstd:3, sha256, 64 MiB shards, all cores):
        shardmill convert data/ shards/

      See first what would be written:
        shardmill convert data/ shards/ --dry-run

      Choose columns and encodings, and compute one:
        shardmill convert data/ shards/ --column image:jpeg --column 'label:int32=CAST(class AS INT)'

      Keep some rows, and divide them:
        shardmill convert data/ shards/ --where 'width >= 256' --split train=0.9,val=0.1

      A Delta table as it was:
        shardmill convert events/ shards/ --delta-version 12

      The same table day after day, each time only the new rows:
        shardmill convert events/ shards/ --incremental

      A tree of a/001.jpg + a/001.json, with the columns jpg, json and __key__:
        shardmill convert photos/ shards/ --column __key__ --column jpg:jpeg --column json:json

      Only some of its files:
        shardmill convert photos/ shards/ --include '*.jpg' --include '*.json' --exclude 'drafts/**'

      The same tree as tar files for WebDataset, with indexes for DALI and wids:
        shardmill convert photos/ tars/ --to webdataset --index-for dali,wids

      With options from a file, and how to begin one:
        shardmill convert --config convert.toml
        shardmill convert data/ shards/ --compression none --print-config > convert.toml

      Tokens for a language model, with a token that ends each document:
        shardmill convert text/ shards/ --tokenize tokenizer.json --append '<|endoftext|>'

      Into a bucket; after a failure the same command resumes where it stopped:
        shardmill convert data/ s3://bucket/sets/train

      On four machines, of which this is the first; then publish their parts:
        shardmill convert data/ s3://bucket/sets/train --part 0/4
        shardmill commit s3://bucket/sets/train

      A table as WebDataset, and tar files as MDS:
        shardmill convert data/ tars/ --to webdataset --key-column id --column jpg=image
        shardmill convert tars/ shards/
    "#);
}

#[test]
fn inspect_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["inspect"]), @r"
    exit 0
    --- stdout
    Show the contents of a dataset, or how a source would be converted

    For a dataset: format, samples, shards, columns and encodings, sizes, compression, hashes and
    provenance. For a directory of splits: one line for each. For a Delta table, a Parquet, Arrow, CSV,
    JSON lines or TFRecord source or a tree of files: its columns, rows and files, and the default
    encodings of `convert`. For a Delta table also: versions, features, deleted rows and file sizes.

    Usage: shardmill inspect [OPTIONS] <DATASET>

    Arguments:
      <DATASET>
              A dataset, a directory of datasets, or a source; in a directory or in a store

    Options:
          --shards
              List the shards of a dataset instead, one line each: number, samples, raw bytes, stored
              bytes, name and first hash

          --delta-version <N>
              In a Delta table: the version to inspect [default: the latest]

          --delta-timestamp <TIME>
              In a Delta table: inspect the latest version at this time, such as 2026-01-31T12:00:00Z

          --with-deleted
              Also read deleted samples

          --view <FILE>
              Read and number only the samples of this view, a file of `select`

      -h, --help
              Print help (see a summary with '-h')

    Files:
          --include <GLOB>
              Read only the files below a source folder that match this pattern, such as `*.jpg`;
              repeatable

              `*` and `?` match characters within a name, `**` any number of folders. A pattern without
              `/` is compared with the file's name, any other with its path relative to the source. The
              kind of a source is detected from all its files.

          --exclude <GLOB>
              Ignore the files below a source folder that match this pattern, such as `drafts/**`;
              repeatable

          --group <HOW>
              In a tree of files: group files whose names are the same up to their last dot (`stem`) or
              up to their first dot, as in tar shards (`key`), or make each file a sample (`file`)

              [default: stem]
              [possible values: stem, key, file]

          --follow-links
              In a tree of files: follow symbolic links

    Stores:
          --storage-option <NAME=VALUE>
              A setting that overrides the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000;
              repeatable

          --profile <NAME>
              The profile of ~/.aws/config and ~/.aws/credentials to use for S3, like AWS_PROFILE

          --region <REGION>
              The region of S3, like AWS_REGION

          --endpoint-url <URL>
              The endpoint of an S3 store other than Amazon's, like AWS_ENDPOINT_URL_S3

    EXAMPLES:
      Inspect a dataset:
        shardmill inspect shards/

      The number of samples, for a script:
        shardmill inspect shards/ --json | jq .samples

      The names of the shards with less than 100 samples:
        shardmill inspect shards/ --shards --json | jq -r 'select(.samples < 100) | .basename'

      The versions and features of a Delta table:
        shardmill inspect events/

      How convert would encode a Parquet file:
        shardmill inspect data/part-0.parquet

      The samples of a tree whose files are grouped by the part of their names before the first dot:
        shardmill inspect photos/ --group key --exclude 'drafts/**'

      A dataset in a store:
        shardmill inspect s3://bucket/shards
    ");
}

#[test]
fn cat_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["cat"]), @r#"
    exit 0
    --- stdout
    Print samples as JSON lines, or write their fields as files

    Numbers are JSON numbers: 64-bit integers exactly, floats in the shortest text that reads back to
    the same value (float16 as float32 would); NaN and the infinities are the strings "NaN", "Infinity"
    and "-Infinity", decimals are strings. Bytes are {"bytes", "base64"}; arrays {"dtype", "shape",
    "data"} with the values in row order; images {"format", "bytes", "base64"}; pickles {"pickle_bytes",
    "base64"}, never run. Columns of encoding json appear as the JSON they hold.

    Usage: shardmill cat [OPTIONS] <DATASET> [INDEX|A..B]

    Arguments:
      <DATASET>
              The dataset, in a directory or in a store

      [INDEX|A..B]
              Which samples: `7`, `-1` (the last), `10..20` (20 not included), `10..`, `..20` [default:
              the first 10]

    Options:
          --key <KEY>
              Print the first sample with this key; reads the dataset from the start

          --limit <N>
              Print at most this number of samples of the range

          --key-column <NAME>
              The column with the keys, for `--key` and `--by-key`

              [default: __key__]

      -c, --column <NAME>
              Print only this column; repeatable, in the order given

          --raw
              Write the stored bytes of one column of one sample to standard output

          --extract <DIR>
              Write fields as files to this directory: `7/image.jpg`; existing files are not overwritten

          --by-key
              With `--extract`: name the files by key, as in a tree of files: `a/001.jpg`

          --max-bytes <SIZE>
              Shorten strings, bytes, arrays, images and JSON of more than this many bytes

          --with-deleted
              Also read deleted samples

          --view <FILE>
              Read and number only the samples of this view, a file of `select`

      -h, --help
              Print help (see a summary with '-h')

    Stores:
          --storage-option <NAME=VALUE>
              A setting that overrides the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000;
              repeatable

          --profile <NAME>
              The profile of ~/.aws/config and ~/.aws/credentials to use for S3, like AWS_PROFILE

          --region <REGION>
              The region of S3, like AWS_REGION

          --endpoint-url <URL>
              The endpoint of an S3 store other than Amazon's, like AWS_ENDPOINT_URL_S3

    EXAMPLES:
      The first 10 samples, without long values:
        shardmill cat shards/ --max-bytes 64

      The first 100 samples:
        shardmill cat shards/ --limit 100

      One sample; a range; the last one:
        shardmill cat shards/ 7
        shardmill cat shards/ 1000..1010 --column label
        shardmill cat shards/ -1

      An image by its key:
        shardmill cat shards/ --key a/001 --column jpg --raw > 001.jpg

      All samples back into files:
        shardmill cat shards/ 0.. --extract photos/ --by-key
    "#);
}

#[test]
fn every_command_help_has_examples() {
    for verb in [
        "convert",
        "inspect",
        "cat",
        "verify",
        "index",
        "order",
        "plan",
        "completions",
    ] {
        assert!(help(&[verb]).contains("\nEXAMPLES:\n"), "{verb}");
    }
}

#[test]
fn version_option_prints_the_version() {
    assert_eq!(
        TestDir::new().ok(&["--version"]),
        concat!("shardmill ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
