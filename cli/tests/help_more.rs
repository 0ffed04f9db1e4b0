//! Tests the help of the commands that inspect tar files and locations.

use crate::help::help;

#[test]
fn lint() {
    insta::assert_snapshot!(help(&["lint"]), @r"
    exit 0
    --- stdout
    Look for what readers of tar shards trip over: damage, names, groups, and what single readers need

    Only headers are read, except of compressed shards. Every finding is one line: an error where
    samples are lost, torn or mixed up, a warning where some reader gives something else than was meant.
    The exit status is 3 when there is an error.

    Usage: shardmill lint [OPTIONS] <PATH>...

    Arguments:
      <PATH>...
              Tar files, or folders of them; on this machine or in a store

    Options:
          --for <READER,...>
              Readers whose rules count too: webdataset, hf, dali, energon, wids, open_clip

          --splits
              Show as well how each of these readers would split every member into key and field

      -j, --jobs <N>
              Threads [default: one for each core]

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
      What is wrong with these shards, whoever reads them:
        shardmill lint tars/

      Will DALI and Hugging Face datasets read them:
        shardmill lint tars/ --for dali,hf

      In a store:
        shardmill lint s3://bucket/tars
    ");
}

#[test]
fn fix() {
    insta::assert_snapshot!(help(&["fix"]), @r"
    exit 0
    --- stdout
    Rewrite tar shards to the form that every reader understands

    Plain headers, each sample in one run with its fields in order and in lower case, nothing that is no
    part of a sample. Shards that are damaged are refused: see `repair`. The new shards are not
    compressed, and have an `index.json`.

    Usage: shardmill fix [OPTIONS] <SRC> <DST>

    Arguments:
      <SRC>
              A tar file, or a folder of them

      <DST>
              Folder that receives the new shards; it must not exist, or be empty

    Options:
          --hashes <NAME,...>
              Hashes to record, separated by commas, or none

              [default: sha256]

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
      shardmill fix tars/ fixed/
      shardmill lint fixed/ --for hf,dali,energon,wids
    ");
}

#[test]
fn repair() {
    insta::assert_snapshot!(help(&["repair"]), @r"
    exit 0
    --- stdout
    Save the samples of damaged tar shards that are whole

    What is complete goes into new shards, member by member as it was; what is lost is listed. The exit
    status is 3 when something is.

    Usage: shardmill repair [OPTIONS] <SRC> <DST>

    Arguments:
      <SRC>
              A tar file, or a folder of them

      <DST>
              Folder that receives the new shards; it must not exist, or be empty

    Options:
          --hashes <NAME,...>
              Hashes to record, separated by commas, or none

              [default: sha256]

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
      A download broke off:
        shardmill repair shard-000007.tar saved/
    ");
}

#[test]
fn index_export() {
    insta::assert_snapshot!(help(&["index", "export"]), @r"
    exit 0
    --- stdout
    Write the indexes of other readers beside tar shards

    `wids`: shardindex.json. `dali`: NAME.idx beside each shard. `energon`: .nv-meta and NAME.tar.idx.
    `open_clip`: sizes.json. Only headers are read, in a store with what lies around them.

    Usage: shardmill index export [OPTIONS] --for <READER,...> <DATASET>

    Arguments:
      <DATASET>
              A folder of tar files, with or without an index.json, or a pattern of them; on this
              machine or in a store

    Options:
          --for <READER,...>
              The readers: wids, dali, energon, open_clip

          --force
              Replace files that differ

      -j, --jobs <N>
              Threads [default: one for each core]

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
      shardmill index export tars/ --for wids,dali,energon,open_clip
      shardmill index export 'tars/train-{000000..000146}.tar' --for wids
      shardmill index export s3://bucket/tars --for wids
    ");
}

#[test]
fn doctor() {
    insta::assert_snapshot!(help(&["doctor"]), @r"
    exit 0
    --- stdout
    Try what can be done at a location, with your settings: list, put, read, create, delete

    Objects whose names begin with `.shardmill-probe-` are put there and taken away again. Where nothing
    may be put, an object that is there is read. The exit status is 0 where datasets can be read,
    whether or not they can be written.

    Usage: shardmill doctor [OPTIONS] <LOCATION>

    Arguments:
      <LOCATION>
              A folder or a prefix in a store, as in s3://bucket/sets, gs://bucket, az://container,
              https://host/sets

    Options:
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
      Can this machine read and write there, and how long does it take:
        shardmill doctor s3://bucket/sets

      The same for another endpoint:
        shardmill doctor s3://bucket --storage-option AWS_ENDPOINT_URL=https://minio.example.com
    ");
}

#[test]
fn commit() {
    insta::assert_snapshot!(help(&["commit"]), @r"
    exit 0
    --- stdout
    Publish what `convert --part` has made as one dataset

    All parts have to be there, and every file as it was written. The index comes last: until then there
    is no dataset. Killed, the same command goes on.

    Usage: shardmill commit [OPTIONS] <DEST>

    Arguments:
      <DEST>
              Directory or prefix in a store that the parts were written to

    Options:
          --deep
              Read every shard and compare its hash, and not only its length

      -h, --help
              Print help (see a summary with '-h')

    Stores:
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
      Four machines, or four tasks of a job array, and one commit when all are done:
        shardmill convert data/ s3://bucket/set --part 0/4
        shardmill convert data/ s3://bucket/set --part 1/4
        shardmill convert data/ s3://bucket/set --part 2/4
        shardmill convert data/ s3://bucket/set --part 3/4
        shardmill commit s3://bucket/set
    ");
}

#[test]
fn gc() {
    insta::assert_snapshot!(help(&["gc"]), @r"
    exit 0
    --- stdout
    Show or remove what an interrupted conversion left and nobody is going to finish

    Shards that the journal of the conversion names and no index does, its side files and its work
    folder; parts that were not committed; shards that an index has dropped. What an index names is
    never touched. Without `--delete` nothing is removed. To finish the conversion instead, run its
    command again.

    Usage: shardmill gc [OPTIONS] <DEST>

    Arguments:
      <DEST>
              Directory or prefix in a store that a conversion wrote to

    Options:
          --delete
              Remove it

          --part <I/N>
              Only this uncommitted part, whatever its age: 0/4 is the first of four

          --older-than <AGE>
              Leave what parts have written since: `90m`, `24h`, `7d`; `0` when no part is at work

              [default: 24h]

      -h, --help
              Print help (see a summary with '-h')

    Stores:
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
      What is left of a conversion that was given up:
        shardmill gc s3://bucket/sets/train

      Remove it:
        shardmill gc s3://bucket/sets/train --delete

      Remove one part of several, to make it again:
        shardmill gc s3://bucket/sets/train --part 1/4 --delete
    ");
}

#[test]
fn completions() {
    insta::assert_snapshot!(help(&["completions"]), @r"
    exit 0
    --- stdout
    Print the completion script of a shell

    Usage: shardmill completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>  The shell [possible values: bash, elvish, fish, powershell, zsh]

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
      shardmill completions bash > ~/.local/share/bash-completion/completions/shardmill
      shardmill completions zsh > ~/.zfunc/_shardmill
      shardmill completions fish > ~/.config/fish/completions/shardmill.fish
    ");
}

#[test]
fn man() {
    insta::assert_snapshot!(help(&["man"]), @r"
    exit 0
    --- stdout
    Print the manual pages

    Without --out, all pages one after the other on standard output.

    Usage: shardmill man [OPTIONS]

    Options:
          --out <DIR>
              Write one file a page into this directory: shardmill.1, shardmill-convert.1, ...

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
      Read it:
        shardmill man | man -l -

      Install the pages:
        shardmill man --out ~/.local/share/man/man1
    ");
}

#[test]
fn verify() {
    insta::assert_snapshot!(help(&["verify"]), @r"
    exit 0
    --- stdout
    Check a dataset: structure, lengths, hashes; with --deep every sample

    Tar files are checked with or without an index.json. Every problem is one error line; the exit
    status is 3 when there is one.

    Usage: shardmill verify [OPTIONS] <DATASET>

    Arguments:
      <DATASET>
              The dataset, a directory of datasets, or a tar file; on this machine or in a store

    Options:
          --deep
              Decode every sample too, and compare them with the content that their conversion noted in
              index.provenance

          --strict
              Exit with 3 when there are warnings, too

      -j, --jobs <N>
              Threads [default: one for each core]

          --expect-index <sha256:HEX>
              Hash that index.json must have: `sha256:` and 64 hex digits

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
      Check lengths and hashes of all shards:
        shardmill verify shards/

      Decode every sample as well, in a CI job:
        shardmill verify shards/ --deep --json

      Against tampering: pin the index, which pins the shards by their sha256:
        shardmill verify shards/ --expect-index sha256:$(sha256sum < trusted/index.json | cut -c1-64)
    ");
}
