mod hostile;
mod lines;

use std::sync::Arc;

use proptest::prelude::*;
use shardmill_core::{Diagnostic as _, Format, Limits};

use super::*;
use crate::config::{Column, Layout, TextColumn, TextEncoding};
use crate::index::{Index, ShardEntry};
use crate::testdata::{Dataset, datasets, unhex};
use crate::value::Value;
use shardmill_codec::FileInfo;
use shardmill_codec::{FileHashes, HashAlgo, hash_hex};

fn info(bytes: &[u8]) -> FileInfo {
    FileInfo {
        basename: "x".into(),
        bytes: bytes.len() as u64,
        hashes: FileHashes::default(),
    }
}

/// Returns the entry that a writer creates for these files.
fn entry(config: &Arc<ShardConfig>, samples: u64, data: &[u8], meta: Option<&[u8]>) -> ShardEntry {
    ShardEntry {
        config: Arc::clone(config),
        samples,
        raw_data: info(data),
        zip_data: None,
        raw_meta: meta.map(info),
        zip_meta: None,
    }
}

/// Returns the files of a shard with these samples, which include their newlines.
fn encode(config: &ShardConfig, samples: &[Vec<u8>]) -> (Vec<u8>, Option<Vec<u8>>) {
    let sizes = samples
        .iter()
        .map(|sample| u32::try_from(sample.len()).unwrap());
    let json = config.to_json();
    let mut data = config.xsv_header();
    let mut meta = None;
    if config.format() == Format::Mds {
        encode_header(config, &json, sizes, &mut data).unwrap();
    } else {
        let mut bytes = Vec::new();
        encode_meta(&json, data.len() as u64, sizes, &mut bytes).unwrap();
        meta = Some(bytes);
    }
    for sample in samples {
        data.extend_from_slice(sample);
    }
    (data, meta)
}

fn open<'a>(
    entry: &'a ShardEntry,
    data: &'a [u8],
    meta: Option<&'a [u8]>,
) -> Result<ShardView<'a>, MdsError> {
    ShardView::open(entry, data, meta, &Limits::default())
}

fn mds(columns: &[(&str, &str)]) -> Arc<ShardConfig> {
    let column = |(name, encoding): &(&str, &str)| Column {
        name: (*name).to_owned(),
        encoding: encoding.parse().unwrap(),
    };
    let columns = columns.iter().map(column).collect();
    Arc::new(ShardConfig::new_mds(columns, None, Vec::new(), Some(1 << 26)).unwrap())
}

const SI: [(&str, TextEncoding); 3] = [
    ("f", TextEncoding::Float),
    ("i", TextEncoding::Int),
    ("s", TextEncoding::Str),
];

fn text_columns() -> Vec<TextColumn> {
    let column = |(name, encoding): (&str, TextEncoding)| TextColumn {
        name: name.to_owned(),
        encoding,
    };
    SI.map(column).into()
}

fn json_config() -> Arc<ShardConfig> {
    Arc::new(ShardConfig::new_json(text_columns(), "\n", None, Vec::new(), None).unwrap())
}

fn xsv_config(separator: &str) -> Arc<ShardConfig> {
    let config = ShardConfig::new_xsv(
        Format::Xsv,
        text_columns(),
        "\n",
        Some(separator),
        None,
        Vec::new(),
        None,
    );
    Arc::new(config.unwrap())
}

#[test]
fn specification_example_shard_is_written_byte_for_byte() {
    let config = Arc::new(
        ShardConfig::new_mds(
            vec![
                Column {
                    name: "b".to_owned(),
                    encoding: "str".parse().unwrap(),
                },
                Column {
                    name: "a".to_owned(),
                    encoding: "int32".parse().unwrap(),
                },
            ],
            None,
            vec![HashAlgo::Sha1, HashAlgo::Xxh64],
            Some(67_108_864),
        )
        .unwrap(),
    );
    let samples = [unhex("02000000010000006869"), unhex("00000000feffffff")];
    let (data, meta) = encode(&config, &samples);
    assert_eq!(meta, None);
    assert_eq!(data[..16], unhex("02000000d6000000e0000000e8000000"));
    assert_eq!(data.len(), 232);
    assert_eq!(
        hash_hex(HashAlgo::Sha1, &data),
        "e4e88f71527c928950e66489b96189ea5aa91c35"
    );
    assert_eq!(hash_hex(HashAlgo::Xxh64, &data), "af8c543fd0e706f7");

    let entry = entry(&config, 2, &data, None);
    let view = open(&entry, &data, None).unwrap();
    assert_eq!(
        (view.len(), view.is_empty(), view.sample(1)),
        (2, false, Ok(&samples[1][..]))
    );
    let fields = view.fields(0).unwrap();
    assert_eq!((fields[0].name, fields[0].datum), ("a", &[1, 0, 0, 0][..]));
    assert_eq!((fields[1].name, fields[1].datum), ("b", &b"hi"[..]));
    assert_eq!(
        view.values(1).unwrap(),
        [
            ("a", SampleValue::Mds(Value::I32(-2))),
            ("b", SampleValue::Mds(Value::Str("")))
        ]
    );
    assert_eq!(
        view.sample(2),
        Err(MdsProblem::NoSample.because("there is no sample 2 in a shard of 2"))
    );
    assert_eq!(view.sample(u64::MAX).unwrap_err().id(), "sample-range");
    assert_eq!(
        read_config(&data[..214], false, &Limits::default()),
        Ok(((*config).clone(), 2))
    );
}

/// Returns every shard of a dataset, as its entry, raw data and raw offsets.
fn shards(dataset: &Dataset) -> Vec<(ShardEntry, Vec<u8>, Option<Vec<u8>>)> {
    let index = Index::parse(dataset.index.as_bytes(), &Limits::default()).unwrap();
    let load = |entry: &ShardEntry, raw: &FileInfo, zip: Option<&FileInfo>| {
        let stored = zip.unwrap_or(raw);
        let bytes = &dataset.files[&*stored.basename];
        assert_eq!(stored.bytes, bytes.len() as u64);
        for algo in &entry.config.hashes {
            assert_eq!(stored.hashes.check(*algo, bytes), Ok(()));
        }
        let bytes = match &entry.config.compression {
            Some(compression) => compression
                .decompress(bytes, Some(raw.bytes), &Limits::default())
                .unwrap(),
            None => bytes.clone(),
        };
        assert_eq!(FileHashes::of(&entry.config.hashes, &bytes), raw.hashes);
        bytes
    };
    index
        .shards
        .into_iter()
        .map(|entry| {
            let data = load(&entry, &entry.raw_data, entry.zip_data.as_ref());
            let meta = entry
                .raw_meta
                .as_ref()
                .map(|raw| load(&entry, raw, entry.zip_meta.as_ref()));
            (entry, data, meta)
        })
        .collect()
}

#[test]
fn mosaicml_streaming_shards_round_trip_byte_for_byte() {
    let mut samples = 0;
    for dataset in datasets() {
        let name = dataset.name;
        let mut cutter = None;
        let mut sizes = Vec::new();
        for (number, (entry, data, meta)) in (0..).zip(shards(&dataset)) {
            let config = &*entry.config;
            let view = open(&entry, &data, meta.as_deref()).unwrap();
            assert_eq!(view.len(), entry.samples);
            let stored: Vec<Vec<u8>> = (0..view.len())
                .map(|sample| view.sample(sample).unwrap().to_vec())
                .collect();
            assert_eq!(
                encode(config, &stored),
                (data.clone(), meta.clone()),
                "{name}"
            );
            let (again, count) = read_config(
                meta.as_ref().unwrap_or(&data),
                meta.is_some(),
                &Limits::default(),
            )
            .unwrap();
            assert_eq!((&again, count), (config, entry.samples), "{name}");
            for sample in 0..view.len() {
                let values = view.values(sample).unwrap();
                assert_eq!(values.len(), config.column_names().count(), "{name}");
            }
            if name != "merged" {
                for (field, file) in entry.files() {
                    let zip = config
                        .compression
                        .as_ref()
                        .filter(|_| field.starts_with("zip"));
                    let expected = basename(number, config.format(), field.ends_with("meta"), zip);
                    assert_eq!(&*file.basename, expected, "{name}");
                }
                // The cutter cuts at the same samples.
                let cutter = cutter.get_or_insert_with(|| config.cutter_like_original());
                if number > 0 {
                    sizes.push(stored.len());
                }
                for (position, sample) in stored.iter().enumerate() {
                    assert_eq!(
                        cutter.push(sample.len() as u64),
                        position == 0 && number > 0,
                        "{name} {number} {position}"
                    );
                }
            }
            samples += stored.len();
            let owned = OwnedShard::open(&entry, data, meta, &Limits::default()).unwrap();
            let views: Vec<_> = (0..owned.view().len())
                .map(|sample| owned.view().sample(sample).unwrap().to_vec())
                .collect();
            assert_eq!(views, stored);
        }
    }
    assert!(samples > 200, "{samples}");
}

#[test]
fn shard_beyond_32_bit_offsets_is_rejected() {
    struct Many(usize);
    impl Iterator for Many {
        type Item = u32;
        fn next(&mut self) -> Option<u32> {
            self.0 = self.0.checked_sub(1)?;
            Some(u32::MAX)
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (self.0, Some(self.0))
        }
    }
    impl ExactSizeIterator for Many {}

    let config = mds(&[("a", "bytes")]);
    let json = config.to_json();
    let room = u32::MAX - 12 - 4 - u32::try_from(json.len()).unwrap() + 4;
    let header = 8 + 4 + json.len();
    let mut out = b"kept".to_vec();
    for sizes in [&[room + 1][..], &[room, 1], &[u32::MAX, u32::MAX, 5]] {
        let error = encode_header(&config, &json, sizes.iter().copied(), &mut out).unwrap_err();
        assert_eq!((error.id(), &out[..]), ("shard-too-large", &b"kept"[..]));
    }
    encode_header(&config, &json, [room].into_iter(), &mut out).unwrap();
    assert_eq!(out.len(), 4 + header);
    assert_eq!(out[12..16], u32::MAX.to_le_bytes());

    let mut out = Vec::new();
    let error = encode_header(&config, &json, Many(1 << 32), &mut out).unwrap_err();
    assert_eq!((error.id(), out.len()), ("shard-too-many-samples", 0));
    let error = encode_meta(&json, 7, Many(2), &mut out).unwrap_err();
    assert_eq!(error, MdsError::shard_too_large(7 + 2 * 0xffff_ffff));
    assert_eq!(
        encode_meta(&json, u64::from(u32::MAX) + 1, Many(0), &mut out)
            .unwrap_err()
            .id(),
        "shard-too-large"
    );
    assert_eq!(
        encode_header(&json_config(), &json, Many(1), &mut out)
            .unwrap_err()
            .id(),
        "shard-format"
    );
}

#[test]
fn shard_header_and_meta_file_are_not_confused() {
    let (data, _) = encode(&mds(&[("a", "str")]), &[]);
    let (_, meta) = encode(&json_config(), &[]);
    let limits = Limits::default();
    assert_eq!(
        read_config(&data, true, &limits).unwrap_err().id(),
        "shard-format"
    );
    assert!(read_config(&data, false, &limits).is_ok());
    let meta = meta.unwrap();
    assert!(read_config(&meta, true, &limits).is_ok());
    assert_eq!(
        read_config(&meta, false, &limits).unwrap_err().id(),
        "shard-offsets"
    );
    for end in 0..data.len() {
        assert!(read_config(&data[..end], false, &limits).is_err(), "{end}");
    }
}

/// Generates samples of a shard of any format, with its config.
fn any_shard() -> impl Strategy<Value = (Arc<ShardConfig>, Vec<Vec<u8>>)> {
    let columns = [("a", "int16"), ("b", "str"), ("é", "bytes")];
    let mds_sample = (
        any::<i16>(),
        ".{0,20}",
        prop::collection::vec(any::<u8>(), 0..20),
    )
        .prop_map(|(a, b, c)| {
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
            [
                &length(b.as_bytes())[..],
                &length(&c),
                &a.to_le_bytes(),
                b.as_bytes(),
                &c,
            ]
            .concat()
        });
    let json_sample = (any::<f64>(), any::<i64>(), ".{0,20}").prop_map(|(f, i, s)| {
        let mut line = b"{\"f\": ".to_vec();
        crate::text::write_json_float(f, &mut line);
        line.extend(format!(", \"i\": {i}, \"s\": ").bytes());
        shardmill_core::write_json_string(&s, &mut line);
        line.extend(b"}\n");
        line
    });
    let xsv_sample = (any::<f64>(), any::<i64>(), "[^;\n]{0,20}").prop_map(|(f, i, s)| {
        let mut line = Vec::new();
        crate::text::write_float(f, &mut line);
        line.extend(format!(";{i};{s}\n").bytes());
        line
    });
    prop_oneof![
        prop::collection::vec(mds_sample, 0..8).prop_map(move |samples| (mds(&columns), samples)),
        prop::collection::vec(json_sample, 0..8).prop_map(|samples| (json_config(), samples)),
        prop::collection::vec(xsv_sample, 0..8).prop_map(|samples| (xsv_config(";"), samples)),
    ]
}

/// Returns everything in a shard, if all of it is valid.
fn contents(entry: &ShardEntry, data: &[u8], meta: Option<&[u8]>) -> Result<Vec<String>, MdsError> {
    let view = open(entry, data, meta)?;
    (0..view.len())
        .map(|sample| Ok(format!("{:?}", view.values(sample)?)))
        .collect()
}

proptest! {
    #[test]
    fn shard_round_trips((config, samples) in any_shard()) {
        let (data, meta) = encode(&config, &samples);
        let entry = entry(&config, samples.len() as u64, &data, meta.as_deref());
        let view = open(&entry, &data, meta.as_deref()).unwrap();
        prop_assert_eq!(view.len(), samples.len() as u64);
        for (index, sample) in (0..).zip(&samples) {
            prop_assert_eq!(view.sample(index), Ok(&sample[..]));
            let values = view.values(index).unwrap();
            prop_assert!(values.iter().map(|(name, _)| *name).eq(config.column_names()));
        }
        prop_assert!(view.sample(view.len()).is_err());
    }

    #[test]
    fn damaged_shards_do_not_panic_the_reader(
        (config, samples) in any_shard(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        (cut_data, cut_meta) in any::<(Option<prop::sample::Index>, Option<prop::sample::Index>)>(),
        count in prop::option::of(0_u64..10),
        honest in any::<bool>(),
    ) {
        let (mut data, meta) = encode(&config, &samples);
        let mut meta = meta.unwrap_or_default();
        let mut entry = entry(&config, samples.len() as u64, &data, config.format().is_split().then_some(&meta[..]));
        entry.samples = count.unwrap_or(entry.samples);
        for (offset, byte) in changes {
            let offset = offset.index(data.len() + meta.len());
            match data.get_mut(offset) {
                Some(slot) => *slot ^= byte,
                None => { let offset = offset - data.len(); meta[offset] ^= byte; }
            }
        }
        if let Some(end) = cut_data { data.truncate(end.index(data.len() + 1)); }
        if let Some(end) = cut_meta { meta.truncate(end.index(meta.len() + 1)); }
        if honest {
            entry.raw_data.bytes = data.len() as u64;
            if let Some(info) = &mut entry.raw_meta { info.bytes = meta.len() as u64; }
        }
        let meta = config.format().is_split().then_some(&meta[..]);
        let _ = contents(&entry, &data, meta);
        let _ = read_config(meta.unwrap_or(&data), meta.is_some(), &Limits::default());
        let _ = read_config(&data, false, &Limits::default());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic_the_reader(bytes: Vec<u8>, meta: Vec<u8>, samples in 0_u64..20) {
        let mut entry = entry(&json_config(), samples, &bytes, Some(&meta));
        let _ = contents(&entry, &bytes, Some(&meta));
        entry.config = mds(&[("a", "str")]);
        let _ = contents(&entry, &bytes, None);
        let _ = read_config(&bytes, false, &Limits::default());
        let _ = read_config(&bytes, true, &Limits::default());
    }
}

#[test]
fn flipped_bits_give_an_error_or_changed_values() {
    let datasets = datasets();
    let mut flips = 0;
    for name in [
        "worked-example",
        "json-empty-first-shard",
        "csv",
        "encodings",
    ] {
        let dataset = datasets
            .iter()
            .find(|dataset| dataset.name == name)
            .unwrap();
        for (entry, data, meta) in shards(dataset).into_iter().take(2) {
            let good = contents(&entry, &data, meta.as_deref()).unwrap();
            let header = if meta.is_some() {
                entry.config.xsv_header().len()
            } else {
                data.len()
                    - (0..entry.samples)
                        .map(|sample| {
                            open(&entry, &data, None)
                                .unwrap()
                                .sample(sample)
                                .unwrap()
                                .len()
                        })
                        .sum::<usize>()
            };
            for bit in 0..data.len() * 8 {
                let mut damaged = data.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let result = contents(&entry, &damaged, meta.as_deref());
                // Without hashes, a changed value goes unnoticed. A changed header is an error, unless its JSON means
                // the same: other whitespace, or the other case in an escape.
                if bit / 8 < header {
                    let same = b" abcdef".contains(&data[bit / 8].to_ascii_lowercase())
                        && result.as_ref() == Ok(&good);
                    assert!(result.is_err() || same, "{name} {bit}");
                }
                flips += 1;
            }
            for bit in 0..meta.as_ref().map_or(0, Vec::len) * 8 {
                let mut damaged = meta.clone().unwrap();
                let byte = damaged[bit / 8];
                damaged[bit / 8] ^= 1 << (bit % 8);
                let result = contents(&entry, &data, Some(&damaged));
                let same =
                    b" abcdef".contains(&byte.to_ascii_lowercase()) && result.as_ref() == Ok(&good);
                assert!(result.is_err() || same, "{name} {bit}");
                flips += 1;
            }
        }
    }
    assert!(flips > 20_000, "{flips}");
}
