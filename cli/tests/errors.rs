//! Tests one error of each class, and every option value that is refused before any work.

use std::fs::File;

use crate::common::TestDir;
use crate::snapshot;

#[test]
fn missing_paths_exit_2() {
    let dir = TestDir::new();
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "nowhere"]), @r"
    exit 2
    --- stderr
    error[not-found]: nowhere: cannot open the directory: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(dir.shown(&["convert", "nowhere", "shards"]), @r"
    exit 2
    --- stderr
    error[source-not-found]: nowhere: no such file or directory
    ");
    dir.write("empty/x.txt", "");
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "empty"]), @r"
    exit 2
    --- stderr
    error[index-missing]: empty: there is no index.json in this directory; name the directory that holds index.json; `shardmill index rebuild` makes one from shards
    ");
    insta::assert_snapshot!(dir.shown(&["verify", "empty"]), @r"
    exit 2
    --- stderr
    error[index-missing]: empty: there is no `index.json` here or in a subdirectory; `shardmill index rebuild` makes an index from shards
    ");
    assert_eq!(
        dir.run(&["inspect", "--shards", "nowhere", "--json"])
            .error()["exit_code"],
        2
    );
}

#[test]
fn corrupt_index_exits_3() {
    let dir = TestDir::with_shards();
    dir.write("shards/index.json", "<html>404</html>");
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "shards"]), @r"
    exit 3
    --- stderr
    error[index-not-json]: shards/index.json: cannot read the index: the index is not JSON: it looks like an HTML or XML page
    ");
    insta::assert_snapshot!(dir.shown(&["inspect", "shards", "--json"]), @r#"
    exit 3
    --- stderr
    {"error":{"id":"index-not-json","object":"shards/index.json","message":"cannot read the index: the index is not JSON: it looks like an HTML or XML page","hint":null,"docs":"https://shardmill.github.io/shardmill/reference/errors/#index-not-json","kind":"corrupt","exit_code":3}}
    "#);
}

#[test]
fn unsupported_input_exits_2() {
    let dir = TestDir::new();
    dir.write("shards.tar", [0; 1024]);
    insta::assert_snapshot!(dir.shown(&["convert", "shards.tar", "shards"]), @r"
    exit 2
    --- stderr
    error[config-no-columns]: shards.tar: there are no columns, because there is no data
    ");
    insta::assert_snapshot!(dir.shown(&["inspect", "s3://key:secret@bucket/shards?token=secret"]), @r"
    exit 2
    --- stderr
    error[url-user]: s3://bucket/shards: the URL has user information; remove it, and pass credentials in the environment variables of the store
    ");
}

#[test]
fn exceeded_safety_limit_exits_3() {
    let dir = TestDir::with_shards();
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "shards", "--safety-limit", "shards=3"]), @r"
    exit 3
    --- stderr
    error[limit-shards]: shards/index.json: cannot read the index at shard 3: shards is 4, above the limit of 3; if the file is to be trusted, pass --safety-limit shards=4
    ");
}

#[test]
fn conflicting_destination_exits_4() {
    let dir = TestDir::with_shards();
    snapshot!(dir.shown(&["convert", "data", "shards", "--hashes", "md5"]), @r#"
    exit 4
    --- stderr
    error[dest-conflict]: shards: it holds a finished dataset of another conversion: hashes was ["sha256"], is ["md5"]; samples_per_shard was 30, is null; choose another destination, or pass --overwrite to replace it
    "#);
    insta::assert_snapshot!(dir.shown(&["convert", "data", "data/inside"]), @r"
    exit 4
    --- stderr
    error[dest-overlap]: data/inside: it and the source data contain one another; choose a destination outside the source
    ");
}

#[test]
fn storage_failure_exits_6() {
    let dir = TestDir::new();
    std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "loop"]), @r"
    exit 6
    --- stderr
    error[io]: loop: cannot open the directory: Too many levels of symbolic links (os error 40)
    ");
}

#[test]
fn full_disk_exits_7() {
    let dir = TestDir::with_shards();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .args(["cat", "shards", ".."])
        .current_dir(dir.path())
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @"error[disk-full]: standard output: cannot write: No space left on device (os error 28)");
}

#[test]
fn permission_failure_exits_8() {
    // The one place that even root cannot write to.
    insta::assert_snapshot!(TestDir::with_shards().shown(&["cat", "shards", "--extract", "/sys/shardmill"]), @r"
    exit 8
    --- stderr
    error[permission]: /sys/shardmill: cannot make the directory: Operation not permitted (os error 1)
    ");
}

#[test]
fn control_characters_in_names_are_escaped() {
    let dir = TestDir::new();
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "a\u{1b}[2Jb\nc"]), @r"
    exit 2
    --- stderr
    error[not-found]: a\u{1b}[2Jb\u{a}c: cannot open the directory: No such file or directory (os error 2)
    ");
}

fn convert(options: &[&str]) -> String {
    let dir = TestDir::new();
    // Nothing is there to be read: the options are looked at first.
    let ran = dir.run(&[&["convert", "nowhere", "shards"], options].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(!dir.exists("shards"));
    ran.stderr.trim().to_owned()
}

#[test]
fn invalid_convert_options_are_errors() {
    insta::assert_snapshot!(convert(&["--compression", "zst"]), @"error[config-compression]: --compression: `zst` is not a compression; choose zstd:1 to zstd:22, gz:0 to gz:9, br:0 to br:11, bz2:1 to bz2:9, snappy or none");
    insta::assert_snapshot!(convert(&["--compression", "zstd:0"]), @"error[config-compression]: --compression: `zstd:0` is not a compression; choose zstd:1 to zstd:22, gz:0 to gz:9, br:0 to br:11, bz2:1 to bz2:9, snappy or none");
    insta::assert_snapshot!(convert(&["--hashes", "sha265"]), @"error[config-hashes]: --hashes: `sha265` is not a hash; choose from blake2b, blake2s, md5, sha1, sha224, sha256, sha384, sha3_224, sha3_256, sha3_384, sha3_512, sha512, xxh128, xxh32, xxh3_128, xxh3_64, xxh64, or none");
    insta::assert_snapshot!(convert(&["--hashes", ""]), @"error[config-hashes]: --hashes: `` is not a hash; choose from blake2b, blake2s, md5, sha1, sha224, sha256, sha384, sha3_224, sha3_256, sha3_384, sha3_512, sha512, xxh128, xxh32, xxh3_128, xxh3_64, xxh64, or none");
    insta::assert_snapshot!(convert(&["--size-limit", "-1"]), @"error[config-size-limit]: --size-limit: `-1` is not a size; write bytes or a unit: 1000, 64mb, 1.5GiB");
    insta::assert_snapshot!(convert(&["--size-limit", "4GiB"]), @"error[config-size-limit]: --size-limit: 4294967296 bytes are more than a shard can address; choose at most 4294967295 bytes, or none");
    insta::assert_snapshot!(convert(&["--samples-per-shard", "0"]), @"error[config-samples-per-shard]: --samples-per-shard: `0` is not a number of samples above 0; write 1000, 10k or 1.5m");
    insta::assert_snapshot!(convert(&["--jobs", "0"]), @"error[config-jobs]: --jobs: `0` is not a number of threads; pass a number from 1 to 1024");
    insta::assert_snapshot!(convert(&["--memory-limit", "much"]), @"error[config-memory-limit]: --memory-limit: `much` is not a size; write bytes or a unit: 1000, 64mb, 1.5GiB");
    insta::assert_snapshot!(convert(&["--column", "image:"]), @"error[config-column]: --column: `image:` has no encoding after the `:`; write NAME[:ENCODING][=EXPR], e.g. image:jpeg or 'label:int32=CAST(class AS INT)'");
    insta::assert_snapshot!(convert(&["--column", "image:jpg"]), @"error[config-column]: --column: column image: unknown encoding `jpg`; the encodings of MDS are bytes, str, int, ndarray, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, float32, float64, str_int, str_float, str_decimal, pil, jpeg, jpeg_array, jpegarray, png, list[pil], list[jpeg], list[png], pkl, json");
    insta::assert_snapshot!(convert(&["--column", "a", "--column", "a:str"]), @"error[config-column]: --column: `a` is given twice; name each column once");
    insta::assert_snapshot!(convert(&["--split", "train=0.9"]), @"error[config-split]: --split: the shares add up to 0.9, not 1; write NAME=SHARE,... with shares that add up to 1, e.g. train=0.9,val=0.1");
    insta::assert_snapshot!(convert(&["--split", "../x=1"]), @"error[config-split]: --split: `../x` cannot be a directory: the name has an empty, `.` or `..` part; write NAME=SHARE,... with shares that add up to 1, e.g. train=0.9,val=0.1");
    insta::assert_snapshot!(convert(&["--null-as", "x"]), @"error[config-null-as]: --null-as: `x` is not NAME=VALUE; write NAME=VALUE, e.g. label=-1");
    insta::assert_snapshot!(convert(&["--where", " "]), @"error[config-where]: --where: the value is empty; omit the option, or pass a value");
    insta::assert_snapshot!(convert(&["--key-column", ""]), @"error[config-key]: --key-column: the value is empty; omit the option, or pass a value");
    insta::assert_snapshot!(convert(&["--safety-limit", "shard=1"]), @"error[config-safety-limit]: --safety-limit: there is no limit `shard`; the limits are index-bytes, json-depth, string-bytes, shards, columns, shard-bytes, sample-bytes, zstd-window-bytes, expansion-bytes, expansion-ratio, array-dims, parquet-footer-bytes, parquet-page-bytes, tar-extension-bytes, tar-name-bytes, tar-fields");
    insta::assert_snapshot!(convert(&["--safety-limit", "shards"]), @"error[config-safety-limit]: --safety-limit: `shards` is not NAME=VALUE; the limits are index-bytes, json-depth, string-bytes, shards, columns, shard-bytes, sample-bytes, zstd-window-bytes, expansion-bytes, expansion-ratio, array-dims, parquet-footer-bytes, parquet-page-bytes, tar-extension-bytes, tar-name-bytes, tar-fields");
}
