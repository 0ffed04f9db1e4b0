//! Tests shards with false claims.

use super::*;

/// Returns the id of the error of a shard of two samples after `change`.
fn changed(
    config: &Arc<ShardConfig>,
    samples: &[Vec<u8>],
    change: impl Fn(&mut Vec<u8>, &mut Vec<u8>, &mut ShardEntry),
) -> &'static str {
    let (mut data, meta) = encode(config, samples);
    let mut meta_bytes = meta.clone().unwrap_or_default();
    let mut entry = entry(config, samples.len() as u64, &data, meta.as_deref());
    change(&mut data, &mut meta_bytes, &mut entry);
    entry.raw_data.bytes = data.len() as u64;
    if let Some(info) = &mut entry.raw_meta {
        info.bytes = meta_bytes.len() as u64;
    }
    let meta = meta.map(|_| &meta_bytes[..]);
    let result = open(&entry, &data, meta)
        .map(|_| ())
        .map_err(|error| error.id());
    let owned = OwnedShard::open(&entry, &data[..], meta, &Limits::default());
    assert_eq!(owned.map(|_| ()).map_err(|error| error.id()), result);
    result.err().unwrap_or("ok")
}

#[test]
fn inconsistent_shard_header_is_an_error() {
    let config = mds(&[("a", "str")]);
    let samples = [b"\x01\0\0\0x".to_vec(), b"\x02\0\0\0yz".to_vec()];
    let header = 16 + u8::try_from(config.to_json().len()).unwrap();
    let check =
        |change: &dyn Fn(&mut Vec<u8>)| changed(&config, &samples, |data, _, _| change(data));
    assert_eq!(check(&|_| ()), "ok");
    assert_eq!(check(&|data| data.truncate(3)), "shard-truncated");
    assert_eq!(check(&|data| data.clear()), "shard-truncated");
    assert_eq!(check(&|data| data.truncate(15)), "shard-truncated");
    assert_eq!(check(&|data| data.truncate(50)), "shard-truncated");
    assert_eq!(
        check(&|data| data.truncate(data.len() - 1)),
        "shard-offsets"
    );
    assert_eq!(check(&|data| data.push(0)), "shard-offsets");
    assert_eq!(check(&|data| data[0] = 3), "shard-count");
    assert_eq!(check(&|data| data[3] = 255), "shard-count");
    // Begin of the first sample: inside the table, off by one, beyond the file.
    assert_eq!(check(&|data| data[4] = 15), "shard-offsets");
    assert_eq!(check(&|data| data[4] = header - 1), "shard-config");
    assert_eq!(check(&|data| data[4] = header + 1), "shard-config");
    assert_eq!(check(&|data| data[7] = 1), "shard-truncated");
    assert_eq!(check(&|data| data[8] = header - 1), "shard-offsets");
    assert_eq!(check(&|data| data[9] = 1), "shard-offsets");
    assert_eq!(check(&|data| data[12] -= 1), "shard-offsets");
    assert_eq!(check(&|data| data[15] = 1), "shard-offsets");
    // The config: another letter, invalid UTF-8, more or less whitespace.
    assert_eq!(check(&|data| data[17] = 0xff), "shard-config");
    assert_eq!(check(&|data| data[18] = b'C'), "shard-config");
    // A count that would wrap 32-bit arithmetic.
    let wrapped = changed(&config, &samples, |data, _, entry| {
        data[..4].copy_from_slice(&[0xff; 4]);
        entry.samples = u64::from(u32::MAX);
    });
    assert_eq!(wrapped, "shard-truncated");
    let limits = |name| {
        let mut limits = Limits::default();
        assert!(limits.set(name, 5));
        let (data, _) = encode(&config, &samples);
        let entry = entry(&config, 2, &data, None);
        ShardView::open(&entry, &data, None, &limits)
            .unwrap_err()
            .id()
    };
    assert_eq!(limits("sample-bytes"), "limit-sample-bytes");
    assert_eq!(limits("shard-bytes"), "limit-shard-bytes");
}

#[test]
fn inconsistent_line_offsets_are_an_error() {
    let config = xsv_config(",");
    let samples = [b"1.0,2,x\n".to_vec(), b"1.0,2,yz\n".to_vec()];
    let check = |change: &dyn Fn(&mut Vec<u8>, &mut Vec<u8>)| {
        changed(&config, &samples, |data, meta, _| change(data, meta))
    };
    assert_eq!(check(&|_, _| ()), "ok");
    assert_eq!(check(&|data, _| data[0] = b'g'), "shard-header");
    assert_eq!(check(&|data, _| data[5] = b';'), "shard-header");
    assert_eq!(check(&|data, _| data[13] = b';'), "sample-newline");
    assert_eq!(check(&|data, _| data.truncate(14)), "shard-offsets");
    assert_eq!(check(&|data, _| data.push(b'\n')), "shard-offsets");
    assert_eq!(check(&|_, meta| meta[0] = 1), "shard-count");
    assert_eq!(check(&|_, meta| meta[4] = 5), "shard-offsets");
    assert_eq!(check(&|_, meta| meta[4] = 0), "shard-offsets");
    assert_eq!(check(&|_, meta| meta[8] = 5), "shard-offsets");
    assert_eq!(check(&|_, meta| meta[8] = 13), "sample-newline");
    assert_eq!(check(&|_, meta| meta[12] = 200), "shard-offsets");
    assert_eq!(check(&|_, meta| meta.truncate(15)), "shard-truncated");
    assert_eq!(check(&|_, meta| meta.truncate(16)), "shard-config");
    assert_eq!(check(&|_, meta| meta.push(b'x')), "shard-config");
    let no_meta = changed(&mds(&[("a", "str")]), &[], |_, _, entry| {
        entry.raw_meta = Some(info(b""))
    });
    assert_eq!(no_meta, "ok", "the index is what refuses that");

    let (data, meta) = encode(&config, &samples);
    let entry = entry(&config, 2, &data, meta.as_deref());
    assert_eq!(open(&entry, &data, None).unwrap_err().id(), "shard-meta");
    let shorter = open(&entry, &data[..20], meta.as_deref()).unwrap_err();
    assert_eq!(
        shorter.to_string(),
        "the shard has 20 bytes, but the index says 23"
    );
    assert_eq!(shorter.id(), "shard-length");
    let short = meta.as_ref().map(|meta| &meta[1..]);
    assert_eq!(open(&entry, &data, short).unwrap_err().id(), "shard-length");
}

#[test]
fn config_mismatch_error_names_the_first_difference() {
    let written = mds(&[("a", "str"), ("b", "int")]);
    let (data, _) = encode(&written, &[]);
    let other = |change: &dyn Fn(&mut ShardConfig)| {
        let mut config = (*written).clone();
        change(&mut config);
        let entry = entry(&Arc::new(config), 0, &data, None);
        open(&entry, &data, None).unwrap_err().to_string()
    };
    assert_eq!(
        other(&|config| config.size_limit = None),
        "the config in the shard has size_limit 67108864, but the index says null"
    );
    assert_eq!(
        other(&|config| config.hashes = vec![HashAlgo::Md5]),
        "the config in the shard has hashes [], but the index says [md5]"
    );
    assert_eq!(
        other(&|config| config.compression = Some("gz".parse().unwrap())),
        "the config in the shard has compression null, but the index says gz"
    );
    assert_eq!(
        other(&|config| config.layout = Layout::Mds {
            columns: Vec::new()
        }),
        "the config in the shard has columns a: str, b: int, but the index says "
    );
    // Different whitespace is the same config.
    let config = written.to_json().replace(": ", ":  ");
    let mut spaced = Vec::new();
    encode_header(&written, &config, [].into_iter(), &mut spaced).unwrap();
    let same = entry(&written, 0, &spaced, None);
    assert!(open(&same, &spaced, None).unwrap().is_empty());

    // A config that an index may not have is refused as well, and the error names the field.
    let mut broken = Vec::new();
    let config = written.to_json().replace("\"int\"", "\"inn\"");
    encode_header(&written, &config, [].into_iter(), &mut broken).unwrap();
    let error = open(&entry(&written, 0, &broken, None), &broken, None)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the config in the shard is wrong at column_encodings of column `b`: unknown encoding `inn`"
    );
    let config = written
        .to_json()
        .replace("\"version\": 2", "\"samples\": 2");
    let mut broken = Vec::new();
    encode_header(&written, &config, [].into_iter(), &mut broken).unwrap();
    let error = read_config(&broken, false, &Limits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the config in the shard is wrong at samples: the field is unknown"
    );
}

#[test]
fn sample_with_inconsistent_lengths_is_an_error() {
    let config = mds(&[("a", "int16"), ("b", "str"), ("c", "bytes")]);
    let fields = |sample: &[u8]| {
        let (data, _) = encode(&config, &[sample.to_vec()]);
        let entry = entry(&config, 1, &data, None);
        let view = open(&entry, &data, None).unwrap();
        view.fields(0)
            .map(|fields| {
                fields
                    .iter()
                    .map(|field| field.datum.to_vec())
                    .collect::<Vec<_>>()
            })
            .map_err(|error| (error.id(), error.to_string()))
    };
    let good = b"\x01\0\0\0\x02\0\0\0\xff\xffxyz";
    assert_eq!(
        fields(good),
        Ok(vec![b"\xff\xff".to_vec(), b"x".to_vec(), b"yz".to_vec()])
    );
    let message = |sample: &[u8]| fields(sample).unwrap_err();
    assert_eq!(
        message(&good[..7]),
        (
            "sample-truncated",
            "sample 0 has 7 bytes, but the lengths of its columns alone need 8".to_owned()
        )
    );
    assert_eq!(
        message(&good[..9]),
        (
            "sample-truncated",
            "column `a` of sample 0 needs 2 bytes, but 1 are left".to_owned()
        )
    );
    assert_eq!(
        message(&good[..12]),
        (
            "sample-truncated",
            "column `c` of sample 0 needs 2 bytes, but 1 are left".to_owned()
        )
    );
    assert_eq!(
        message(b"\xff\xff\xff\xff\x02\0\0\0\xff\xffxyz"),
        (
            "sample-truncated",
            "column `b` of sample 0 needs 4294967295 bytes, but 3 are left".to_owned()
        )
    );
    assert_eq!(
        message(b"\0\0\0\0\x02\0\0\0\xff\xffxyz"),
        (
            "sample-trailing",
            "sample 0 has 1 bytes after its last column".to_owned()
        )
    );
    // A value is decoded by its column.
    let (data, _) = encode(&config, &[b"\x01\0\0\0\0\0\0\0\xff\xff\xff".to_vec()]);
    let entry = entry(&config, 1, &data, None);
    let error = open(&entry, &data, None).unwrap().values(0).unwrap_err();
    assert_eq!(error.id(), "sample-utf8");
    assert!(
        error.to_string().starts_with("column `b` of sample 0: "),
        "{error}"
    );

    let lines = json_config();
    let (data, meta) = encode(&lines, &[]);
    let meta = meta.unwrap();
    let empty = super::entry(&lines, 0, &data, Some(&meta));
    assert_eq!(
        open(&empty, &data, Some(&meta))
            .unwrap()
            .fields(0)
            .unwrap_err()
            .id(),
        "shard-format"
    );
}
