use crate::common::Place;

pub fn help(verb: &[&str]) -> String {
    let mut args = verb.to_vec();
    args.push("--help");
    let ran = Place::new().run(&args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.shown()
}

#[test]
fn shardmill() {
    insta::assert_snapshot!(help(&[]), @r"
    exit 0
    --- stdout
    Convert tables and file trees to training shards, and look into them

    Usage: shardmill [OPTIONS] <COMMAND>

    Commands:
      convert      Convert tables or a tree of files to compressed, hashed, indexed shards
      inspect      Show what a dataset holds, or what a source would become
      ls           List the shards of a dataset, one line each
      cat          Print samples as JSON lines, or write their fields as files
      verify       Check a dataset: structure, lengths, hashes; with --deep every sample
      index        Rebuild or merge index.json files, and write the indexes of other readers
      lint         Look for what readers of tar shards trip over: damage, names, groups, and what single
                   readers need
      fix          Rewrite tar shards to the form that every reader understands
      repair       Save the samples of damaged tar shards that are whole
      order        Print which samples every rank is given, batch by batch
      plan         Tell what a training run will fetch, hit, pad and wait for
      bench        Read a dataset as a training job would, and tell how fast
      doctor       Try what can be done at a location, with your settings: list, put, read, create,
                   delete
      commit       Publish what `convert --part` has made as one dataset
      gc           Show or remove what an interrupted conversion left and nobody is going to finish
      completions  Print the completion script of a shell
      man          Print the manual pages

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Global options:
          --json                Print results as JSON on standard output and errors as JSON on standard
                                error
      -q, --quiet               Print no progress, no summaries, no notes
      -v, --verbose             Print more in summaries, such as the time that cores were idle
          --progress <HOW>      How progress is shown on standard error; `auto` is `bar` on a terminal,
                                else `none` with --json and `plain` without [default: auto] [possible
                                values: auto, bar, plain, json, none]
          --limit <NAME=VALUE>  Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`;
                                repeatable

    EXAMPLES:
      Convert a Parquet dataset to MDS shards:
        shardmill convert data/ shards/

      See what is in it, and check it:
        shardmill inspect shards/
        shardmill verify shards/ --deep

    EXIT STATUS:
      0    done
      1    a bug in shardmill
      2    usage or configuration
      3    bad or unverified data
      4    conflict: exists already, another writer, another configuration
      6    storage or network gave up
      7    a local resource: disk, memory, files
      8    permission
      130  stopped by an interrupt (143: by a request to terminate); run it again to continue
    ");
}

#[test]
fn convert() {
    insta::assert_snapshot!(help(&["convert"]), @r"
    exit 0
    --- stdout
    Convert tables or a tree of files to compressed, hashed, indexed shards

    The same input and options give the same bytes, whatever the number of jobs. A conversion that was
    stopped, by whatever, continues when the same command is run again; one that is finished is left as
    it is. A directory with `_delta_log` is read as a Delta table, one with Parquet, Arrow, CSV or JSON
    lines files as a table of them, tar files as WebDataset, anything else as a tree in which files that
    share a stem are one sample.

    Usage: shardmill convert [OPTIONS] <SOURCE>... <DEST>

    Arguments:
      <SOURCE>...
              Files, directories or prefixes in stores to read, in this order

      <DEST>
              Directory or prefix in a store, such as s3://bucket/set, that receives the shards and
              `index.json`

    Options:
          --from <KIND>
              What the source is; `auto` looks

              [default: auto]
              [possible values: auto, delta, parquet, arrow, csv, tsv, jsonl, tree, mds, webdataset]

          --to <FORMAT>
              Format of the shards

              [default: mds]
              [possible values: mds, webdataset, jsonl, csv, tsv, xsv]

      -h, --help
              Print help (see a summary with '-h')

    Columns and rows:
          --column <NAME[:ENCODING][=EXPR]>
              A column to write: its name, `:` and an encoding, `=` and an SQL expression; repeatable

              With it, only the named columns are written; without it, all are, in the encodings that
              follow from their types. A name with `:` or `=` in it is written in double quotes. With
              `--to webdataset` the name is the extension of the member, and encodings are bytes, str,
              int, json, npy and ten; without it a column gets the extension of its encoding (`caption`
              becomes `caption.txt`).

          --select <EXPRS>
              SQL expressions to read, as between SELECT and FROM

          --where <EXPR>
              Keep the rows for which this SQL expression is true

          --sql <QUERY>
              A whole SQL query; the table is called `source`

          --version <N>
              In a Delta table: the version to read [default: the latest]

          --timestamp <TIME>
              In a Delta table: read the latest version of this time, such as 2026-01-31T12:00:00Z

              A time without a zone is UTC, a date is its first instant. What counts is the time of the
              commit, where the table keeps such times, else that of the commit's file.

          --key <COLUMN>
              Column that holds the sample's key (trees and tar files bring it); without one, the
              samples of `--to webdataset` are numbered

              [default: __key__]

          --schema <RULE>
              When Parquet or Arrow files have different columns: widen numbers and times to a type that
              holds the values of all files (`widen`), also read columns that a file lacks as null
              (`union`), or refuse every difference (`strict`)

              [default: widen]
              [possible values: widen, union, strict]

          --group <HOW>
              In a tree of files: one sample for the files whose names are the same up to their last dot
              (`stem`) or up to their first one, as in tar shards (`key`), or one for each (`file`)

              [default: stem]
              [possible values: stem, key, file]

          --follow-links
              In a tree of files: follow symbolic links

          --csv-delimiter <CHAR>
              In CSV: the byte between two values; `\t` for a tab [default: a comma, and a tab in `.tsv`
              files]

          --csv-null <TEXT>
              In CSV: a text that is null where it is not quoted, such as `NA`; repeatable [default: an
              empty text]

          --csv-no-header
              In CSV: the first line is data; columns are called column_1, column_2, …

          --infer-rows <N>
              In CSV and JSON lines: rows of each file above 64 MiB that decide on the types of its
              columns

              [default: 100000]

          --nulls <HOW>
              What happens to a null: stop, store zero and a column `NAME__is_null`, leave the row out,
              or, in `--to webdataset`, leave the field out

              [default: error]
              [possible values: error, mask, drop, omit]

          --null-as <NAME=VALUE>
              Value to store for the nulls of one column; repeatable

          --split <NAME=SHARE,...>
              Divide the samples between sub-directories, by shares that add up to 1:
              `train=0.9,val=0.1`

          --split-key <COLUMN>
              Rows with the same value in this column go to the same split

    Shards:
          --compression <NAME[:LEVEL]>
              Compression of the shards: zstd, gz, br, bz2 with an optional `:LEVEL`, snappy, or none
              [default: zstd:3, none for webdataset, which knows zstd and gz]

          --hashes <NAME,...>
              Hashes to record, separated by commas, or none

              [default: sha256]

          --size-limit <SIZE>
              Most raw bytes of a shard, or none

              [default: 64MiB]

          --samples-per-shard <N>
              Most samples in a shard

          --shard-pattern <PATTERN>
              Names of the tar files of `--to webdataset`, with a place for the number [default:
              shard-%06d.tar]

          --names <WHICH>
              Keys and fields of `--to webdataset`: those that every known reader gives back, or all
              that webdataset itself reads

              [default: portable]
              [possible values: portable, any]

          --index-for <READER,...>
              Write the indexes of other readers too, for `--to webdataset`: wids, dali, energon,
              open_clip

          --separator <TEXT>
              Text between two values, for `--to xsv`; `\t` and the like are understood

          --newline <TEXT>
              Text that ends a line, for `--to jsonl|csv|tsv|xsv`; `\n` and the like are understood
              [default: \n]

    Running:
      -j, --jobs <N>
              Threads [default: one for each core]

          --memory-limit <SIZE>
              Memory for samples that wait and for queries [default: what the shards of all jobs need]

          --dry-run
              Print what would be done, write nothing

          --overwrite
              Replace the dataset that is at the destination

          --incremental
              Bring the dataset up to date with its Delta table: add what is new, list what is gone

              The first run converts the table, and notes which of its files became which samples. Later
              runs read the files that were added since, append shards, and list the samples whose rows
              were deleted or changed in `index.tombstones`; their changed rows are added as new
              samples.

          --with-deleted
              Convert samples of a dataset that its table no longer has like all others

              A dataset that follows a Delta table lists them in `index.tombstones`. By default they are
              left out.

          --part <I/N>
              Make one part of several, counted from 0; `shardmill commit` publishes all of them

              Each part may be made on a machine of its own, at any time, as often as it takes. What is
              read is divided among them where files and row groups end.

    Stores:
          --temp-dir <DIR>
              Directory for files on their way into or out of a store [default: that of the system]

          --takeover-after <SECONDS>
              Take the place of another writer in a store after so many seconds without a sign of life
              [default: 15]

          --storage-option <NAME=VALUE>
              A setting that wins over the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000;
              may be repeated

    Global options:
          --json
              Print results as JSON on standard output and errors as JSON on standard error

      -q, --quiet
              Print no progress, no summaries, no notes

      -v, --verbose
              Print more in summaries, such as the time that cores were idle

          --progress <HOW>
              How progress is shown on standard error; `auto` is `bar` on a terminal, else `none` with
              --json and `plain` without

              [default: auto]
              [possible values: auto, bar, plain, json, none]

          --limit <NAME=VALUE>
              Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`; repeatable

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
        shardmill convert events/ shards/ --version 12

      The same table day after day, each time only what is new:
        shardmill convert events/ shards/ --incremental

      A tree of a/001.jpg + a/001.json, with the columns jpg, json and __key__:
        shardmill convert photos/ shards/ --column __key__ --column jpg:jpeg --column json:json

      The same tree as tar files for WebDataset, with indexes for DALI and wids:
        shardmill convert photos/ tars/ --to webdataset --index-for dali,wids

      Into a bucket; after a failure the same command goes on where it stopped:
        shardmill convert data/ s3://bucket/sets/train

      On four machines, of which this is the first; then publish what they have made:
        shardmill convert data/ s3://bucket/sets/train --part 0/4
        shardmill commit s3://bucket/sets/train

      A table as WebDataset, and tar files as MDS:
        shardmill convert data/ tars/ --to webdataset --key id --column jpg=image --column cls=label
        shardmill convert tars/ shards/
    ");
}

#[test]
fn inspect() {
    insta::assert_snapshot!(help(&["inspect"]), @r"
    exit 0
    --- stdout
    Show what a dataset holds, or what a source would become

    For a dataset: format, samples, shards, columns and encodings, sizes, compression, hashes and where
    it came from. For a directory of splits: one line for each. For a Delta table, a Parquet, Arrow, CSV
    or JSON lines source or a tree of files: its columns, rows and files, and the encodings that
    `convert` would choose. For a Delta table also: versions, features, deleted rows and sizes of files.

    Usage: shardmill inspect [OPTIONS] <DATASET>

    Arguments:
      <DATASET>
              A dataset, a directory of datasets, or a source; in a directory or in a store

    Options:
          --version <N>
              In a Delta table: the version to look at [default: the latest]

          --timestamp <TIME>
              In a Delta table: look at the latest version of this time, such as 2026-01-31T12:00:00Z

          --with-deleted
              Count samples that their table no longer has like all others

      -h, --help
              Print help (see a summary with '-h')

    Stores:
          --storage-option <NAME=VALUE>
              A setting that wins over the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000;
              may be repeated

    Global options:
          --json
              Print results as JSON on standard output and errors as JSON on standard error

      -q, --quiet
              Print no progress, no summaries, no notes

      -v, --verbose
              Print more in summaries, such as the time that cores were idle

          --progress <HOW>
              How progress is shown on standard error; `auto` is `bar` on a terminal, else `none` with
              --json and `plain` without

              [default: auto]
              [possible values: auto, bar, plain, json, none]

          --limit <NAME=VALUE>
              Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`; repeatable

    EXAMPLES:
      Look at a dataset:
        shardmill inspect shards/

      The number of samples, for a script:
        shardmill inspect shards/ --json | jq .samples

      The versions and features of a Delta table:
        shardmill inspect events/

      What convert would make of a Parquet file:
        shardmill inspect data/part-0.parquet

      A dataset in a store:
        shardmill inspect s3://bucket/shards
    ");
}

#[test]
fn ls() {
    insta::assert_snapshot!(help(&["ls"]), @r"
    exit 0
    --- stdout
    List the shards of a dataset, one line each

    Usage: shardmill ls [OPTIONS] <DATASET>

    Arguments:
      <DATASET>  The dataset, in a directory or in a store

    Options:
          --with-deleted  Count samples that their table no longer has like all others
      -h, --help          Print help

    Stores:
          --storage-option <NAME=VALUE>  A setting that wins over the environment, such as
                                         AWS_ENDPOINT_URL=http://127.0.0.1:9000; may be repeated

    Global options:
          --json                Print results as JSON on standard output and errors as JSON on standard
                                error
      -q, --quiet               Print no progress, no summaries, no notes
      -v, --verbose             Print more in summaries, such as the time that cores were idle
          --progress <HOW>      How progress is shown on standard error; `auto` is `bar` on a terminal,
                                else `none` with --json and `plain` without [default: auto] [possible
                                values: auto, bar, plain, json, none]
          --limit <NAME=VALUE>  Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`;
                                repeatable

    EXAMPLES:
      Number, samples, raw bytes, stored bytes, name and first hash of each shard:
        shardmill ls shards/

      The names of the shards with less than 100 samples:
        shardmill ls shards/ --json | jq -r 'select(.samples < 100) | .basename'
    ");
}

#[test]
fn cat() {
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
              Print the first sample whose key column holds this; reads the dataset from the start

          --key-column <NAME>
              The column that holds keys, for `--key` and `--by-key`

              [default: __key__]

      -c, --column <NAME>
              Print only this column; repeatable, in the order given

          --raw
              Write the stored bytes of one column of one sample to standard output

          --extract <DIR>
              Write fields as files below this directory: `7/image.jpg`; nothing is overwritten

          --by-key
              With `--extract`: name the files by key, as a tree of files is: `a/001.jpg`

          --max-bytes <SIZE>
              Shorten strings, bytes, arrays, images and JSON of more than this many bytes

          --with-deleted
              Number and print samples that their table no longer has like all others

      -h, --help
              Print help (see a summary with '-h')

    Stores:
          --storage-option <NAME=VALUE>
              A setting that wins over the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000;
              may be repeated

    Global options:
          --json
              Print results as JSON on standard output and errors as JSON on standard error

      -q, --quiet
              Print no progress, no summaries, no notes

      -v, --verbose
              Print more in summaries, such as the time that cores were idle

          --progress <HOW>
              How progress is shown on standard error; `auto` is `bar` on a terminal, else `none` with
              --json and `plain` without

              [default: auto]
              [possible values: auto, bar, plain, json, none]

          --limit <NAME=VALUE>
              Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`; repeatable

    EXAMPLES:
      The first 10 samples, without long values:
        shardmill cat shards/ --max-bytes 64

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
fn index() {
    insta::assert_snapshot!(help(&["index"]), @r"
    exit 0
    --- stdout
    Rebuild or merge index.json files, and write the indexes of other readers

    Usage: shardmill index [OPTIONS] <COMMAND>

    Commands:
      rebuild  Write index.json anew from the shards of a directory
      merge    Write one index.json over several datasets; their shards stay where they are
      export   Write the indexes of other readers beside tar shards

    Options:
      -h, --help  Print help

    Global options:
          --json                Print results as JSON on standard output and errors as JSON on standard
                                error
      -q, --quiet               Print no progress, no summaries, no notes
      -v, --verbose             Print more in summaries, such as the time that cores were idle
          --progress <HOW>      How progress is shown on standard error; `auto` is `bar` on a terminal,
                                else `none` with --json and `plain` without [default: auto] [possible
                                values: auto, bar, plain, json, none]
          --limit <NAME=VALUE>  Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`;
                                repeatable

    EXAMPLES:
      shardmill index rebuild shards/
      shardmill index merge shards/
      shardmill index export tars/ --for dali,wids
    ");
}

#[test]
fn index_rebuild() {
    insta::assert_snapshot!(help(&["index", "rebuild"]), @r"
    exit 0
    --- stdout
    Write index.json anew from the shards of a directory

    Every shard file is read, checked and hashed with the hashes that its own header names. Tar files
    name none: --hashes does, and a table of offsets is written beside each.

    Usage: shardmill index rebuild [OPTIONS] <DATASET>

    Arguments:
      <DATASET>
              The directory that holds the shards

    Options:
          --force
              Replace an index.json that differs, and tables of offsets that do

          --hashes <NAME,...>
              Hashes to record of tar files, separated by commas, or none [default: sha256]

      -j, --jobs <N>
              Threads [default: one for each core]

      -h, --help
              Print help (see a summary with '-h')

    Global options:
          --json
              Print results as JSON on standard output and errors as JSON on standard error

      -q, --quiet
              Print no progress, no summaries, no notes

      -v, --verbose
              Print more in summaries, such as the time that cores were idle

          --progress <HOW>
              How progress is shown on standard error; `auto` is `bar` on a terminal, else `none` with
              --json and `plain` without

              [default: auto]
              [possible values: auto, bar, plain, json, none]

          --limit <NAME=VALUE>
              Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`; repeatable

    EXAMPLES:
      The index was lost:
        shardmill index rebuild shards/

      It is there, but wrong:
        shardmill index rebuild shards/ --force

      Tar files that never had one:
        shardmill index rebuild tars/ --hashes sha256,md5
    ");
}

#[test]
fn index_merge() {
    insta::assert_snapshot!(help(&["index", "merge"]), @r"
    exit 0
    --- stdout
    Write one index.json over several datasets; their shards stay where they are

    With one directory, all datasets below it are merged, in the order of their paths. With several,
    those are merged in the order given. The shards' names are relative to the directory of the new
    index.

    Usage: shardmill index merge [OPTIONS] <DIR>...

    Arguments:
      <DIR>...
              A directory with datasets below it, or the datasets

    Options:
          --out <ROOT>
              Directory that receives index.json and holds all datasets; needed when there are several

          --force
              Replace an index.json that differs

      -h, --help
              Print help (see a summary with '-h')

    Global options:
          --json
              Print results as JSON on standard output and errors as JSON on standard error

      -q, --quiet
              Print no progress, no summaries, no notes

      -v, --verbose
              Print more in summaries, such as the time that cores were idle

          --progress <HOW>
              How progress is shown on standard error; `auto` is `bar` on a terminal, else `none` with
              --json and `plain` without

              [default: auto]
              [possible values: auto, bar, plain, json, none]

          --limit <NAME=VALUE>
              Raise or lower what a file may ask for, e.g. `shard-bytes=32GiB`; repeatable

    EXAMPLES:
      All datasets below shards/ become one:
        shardmill index merge shards/

      Two of them, in this order:
        shardmill index merge shards/train shards/extra --out shards/
    ");
}

#[test]
fn every_verb_has_examples() {
    for verb in [
        "convert",
        "inspect",
        "ls",
        "cat",
        "verify",
        "index",
        "order",
        "plan",
        "completions",
        "man",
    ] {
        assert!(help(&[verb]).contains("\nEXAMPLES:\n"), "{verb}");
    }
}

#[test]
fn version() {
    assert_eq!(
        Place::new().ok(&["--version"]),
        concat!("shardmill ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
