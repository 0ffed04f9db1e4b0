//! Tests the help of the commands for indexes, tar files and locations.

use crate::help::help;

#[test]
fn index_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["index"]), @r"
    exit 0
    --- stdout
    Rebuild or merge index.json, and write lengths and the indexes of other readers

    Usage: shardmill index [OPTIONS] <COMMAND>

    Commands:
      rebuild  Rebuild index.json from the shards of a directory
      merge    Write one index.json over several datasets; their shards stay where they are
      lengths  Write the lengths of columns of an MDS dataset beside its index
      export   Write the indexes of other readers next to tar shards
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

    EXAMPLES:
      shardmill index rebuild shards/
      shardmill index merge shards/
      shardmill index lengths shards/ --column tokens
      shardmill index export tars/ --for dali,wids
    ");
}

#[test]
fn index_rebuild_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["index", "rebuild"]), @r"
    exit 0
    --- stdout
    Rebuild index.json from the shards of a directory

    Every shard file is read, checked and hashed with the algorithms that its header lists. The headers
    of tar files list none, so --hashes selects them, and a table of offsets is written next to each.

    Usage: shardmill index rebuild [OPTIONS] <DATASET>

    Arguments:
      <DATASET>
              The directory with the shards

    Options:
          --force
              Replace an index.json or tables of offsets that differ

          --hashes <NAME,...>
              Hashes to record for tar files, separated by commas, or none [default: sha256]

      -j, --jobs <N>
              Threads [default: one for each core]

              [env: SHARDMILL_JOBS]

      -h, --help
              Print help (see a summary with '-h')

    EXAMPLES:
      The index was lost:
        shardmill index rebuild shards/

      The index is wrong:
        shardmill index rebuild shards/ --force

      Tar files that never had one:
        shardmill index rebuild tars/ --hashes sha256,md5
    ");
}

#[test]
fn index_merge_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["index", "merge"]), @r"
    exit 0
    --- stdout
    Write one index.json over several datasets; their shards stay where they are

    With one directory, all datasets in its subdirectories are merged, in the order of their paths.
    Several directories are merged in the given order. The shard names are relative to the directory of
    the new index.

    Usage: shardmill index merge [OPTIONS] <DIR>...

    Arguments:
      <DIR>...
              A directory with datasets in subdirectories, or the datasets

    Options:
          --out <ROOT>
              Directory that receives index.json and contains all datasets; required if there are
              several

          --force
              Replace an index.json that differs

      -h, --help
              Print help (see a summary with '-h')

    EXAMPLES:
      Merge all datasets in subdirectories of shards/:
        shardmill index merge shards/

      Two of them, in this order:
        shardmill index merge shards/train shards/extra --out shards/
    ");
}

#[test]
fn index_export_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["index", "export"]), @r"
    exit 0
    --- stdout
    Write the indexes of other readers next to tar shards

    `wids`: shardindex.json. `dali`: NAME.idx next to each shard. `open_clip`: sizes.json. Only headers
    are read; in a store, also the bytes around them.

    Usage: shardmill index export [OPTIONS] --for <READER,...> <DATASET>

    Arguments:
      <DATASET>
              A folder of tar files, with or without an index.json, or a pattern of them; on this
              machine or in a store

    Options:
          --for <READER,...>
              The readers: wids, dali, open_clip

          --force
              Replace files that differ

      -j, --jobs <N>
              Threads [default: one for each core]

              [env: SHARDMILL_JOBS]

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
      shardmill index export tars/ --for wids,dali,open_clip
      shardmill index export 'tars/train-{000000..000146}.tar' --for wids
      shardmill index export s3://bucket/tars --for wids
    ");
}

#[test]
fn doctor_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["doctor"]), @r"
    exit 0
    --- stdout
    Check which operations work at a location with your settings: list, put, read, create, delete

    Names where the credentials came from, such as a profile or a machine, and when they expire.

    Each operation is tried at most twice, so a wrong endpoint is reported within seconds; other
    commands try eight times.

    Writes objects whose names begin with `.shardmill-probe-` and deletes them again. Without permission
    to write, reads an existing object. The exit status is 0 if datasets can be read, whether or not
    they can be written.

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
              A setting that overrides the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000;
              repeatable

          --profile <NAME>
              The profile of ~/.aws/config and ~/.aws/credentials to use for S3, like AWS_PROFILE

          --region <REGION>
              The region of S3, like AWS_REGION

          --endpoint-url <URL>
              The endpoint of an S3 store other than Amazon's, like AWS_ENDPOINT_URL_S3

    EXAMPLES:
      Can this machine read and write there, and how long does it take:
        shardmill doctor s3://bucket/sets

      The same for another endpoint:
        shardmill doctor s3://bucket --endpoint-url https://minio.example.com

      With a profile of ~/.aws/config:
        shardmill doctor s3://bucket --profile train
    ");
}

#[test]
fn commit_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["commit"]), @r"
    exit 0
    --- stdout
    Publish the parts that `convert --part` wrote as one dataset

    All parts must exist, and all their files must be unchanged. The index is published last: before
    that, the dataset does not exist. If the commit is interrupted, the same command resumes it.

    Usage: shardmill commit [OPTIONS] <DEST>

    Arguments:
      <DEST>
              Directory or prefix in a store with the parts

    Options:
          --deep
              Read every shard and check its hash, not only its length

      -h, --help
              Print help (see a summary with '-h')

    Stores:
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
      Four machines, or four tasks of a job array, and one commit when all are done:
        shardmill convert data/ s3://bucket/set --part 0/4
        shardmill convert data/ s3://bucket/set --part 1/4
        shardmill convert data/ s3://bucket/set --part 2/4
        shardmill convert data/ s3://bucket/set --part 3/4
        shardmill commit s3://bucket/set
    ");
}

#[test]
fn gc_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["gc"]), @r"
    exit 0
    --- stdout
    Show or remove the leftovers of an interrupted conversion that will not be resumed

    Leftovers are shards that the journal of the conversion lists and no index does, its side files and
    its work folder, parts that were not committed, and shards that an index no longer lists. Files that
    an index lists are never removed. Without `--delete` nothing is removed. To finish the conversion
    instead, run its command again.

    Usage: shardmill gc [OPTIONS] <DEST>

    Arguments:
      <DEST>
              Directory or prefix in a store that a conversion wrote to

    Options:
          --delete
              Remove the leftovers

          --part <I/N>
              Select only this uncommitted part, regardless of its age: 0/4 is the first of four

          --older-than <TIME>
              Keep files of parts that are younger than this: `90m`, `24h`, `7d`; `0` if no part is
              running

              [default: 24h]

      -h, --help
              Print help (see a summary with '-h')

    Stores:
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
      The leftovers of an abandoned conversion:
        shardmill gc s3://bucket/sets/train

      Remove them:
        shardmill gc s3://bucket/sets/train --delete

      Remove one part, to write it again:
        shardmill gc s3://bucket/sets/train --part 1/4 --delete
    ");
}

#[test]
fn completions_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["completions"]), @r"
    exit 0
    --- stdout
    Print the completion script of a shell

    Usage: shardmill completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>
              The shell

              [possible values: bash, elvish, fish, powershell, zsh]

    Options:
      -h, --help
              Print help (see a summary with '-h')

    EXAMPLES:
      shardmill completions bash > ~/.local/share/bash-completion/completions/shardmill
      shardmill completions zsh > ~/.zfunc/_shardmill
      shardmill completions fish > ~/.config/fish/completions/shardmill.fish
    ");
}

#[test]
fn verify_help_matches_snapshot() {
    insta::assert_snapshot!(help(&["verify"]), @r"
    exit 0
    --- stdout
    Check a dataset: structure, lengths, hashes; with --deep every sample

    Tar files are checked with or without an index.json. Every problem is one error line; the exit
    status is 3 if there is one. With --for, what these readers of tar files refuse is a problem, and
    what some reader changes or skips is a warning.

    Usage: shardmill verify [OPTIONS] <DATASET>

    Arguments:
      <DATASET>
              The dataset, a directory of datasets, or a tar file; local or in a store

    Options:
          --deep
              Also decode every sample, and compare them with the content hash in index.provenance

          --strict
              Also exit with 3 if there are warnings

          --for <READER,...>
              Readers whose rules tar shards must also meet: webdataset, hf, dali, energon, wids,
              open_clip

      -j, --jobs <N>
              Threads [default: one for each core]

              [env: SHARDMILL_JOBS]

          --expect-index <sha256:HEX>
              Hash that index.json must have: `sha256:` and 64 hex digits

          --view <FILE>
              Check only the shards that have samples of this view, a file of `select`

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
      Check lengths and hashes of all shards:
        shardmill verify shards/

      Decode every sample as well, in a CI job:
        shardmill verify shards/ --deep --json

      Can DALI and Hugging Face datasets read these tar shards:
        shardmill verify tars/ --for dali,hf

      Against tampering: pin the index, which pins the shards by their sha256:
        shardmill verify shards/ --expect-index sha256:$(sha256sum < trusted/index.json | cut -c1-64)
    ");
}
