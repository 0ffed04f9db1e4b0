//! Compares tar shards with those of the format crate's builder, one sample at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int32Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{Float32Type, Schema};
use proptest::prelude::*;
use shardmill_core::{Error, Limits, Progress};
use shardmill_mds::HashAlgo;
use shardmill_storage::{Destination, Dir};
use shardmill_webdataset::{
    DType, FieldSet, GROUP_BYTES, Profile, ShardBuilder, ShardMap, TarCompression, Value,
    compress_shard, decode, tar_cutter, write_offsets,
};
use shardmill_writer::{
    Base, Batches, ColumnEncoder, DatasetIndex, Input, InputBatch, Output, Resources, RowEncoder,
    RowNumbers, ShardEnds, ShardForm, ShardPattern, TarForm, TarKeys, TarRows, Target,
    default_field, run,
};

use crate::engine::{Forgetful, Memory, Row, Rows, batch, convert_to, files, rows};

/// The columns of the rows as fields, and what they are called.
fn encoder(schema: &Schema, keys: TarKeys, nulls: bool) -> RowEncoder {
    let mut columns = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        if matches!(&keys, TarKeys::Column { source, .. } if *source == at) {
            continue;
        }
        let (name, encoding) = default_field(field).unwrap();
        let field = field.as_ref().clone().with_name(name.to_lowercase());
        let column =
            ColumnEncoder::compile(at, &field, Target::Field(encoding), &Limits::default())
                .unwrap();
        columns.push(if nulls {
            column.omitting_nulls()
        } else {
            column
        });
    }
    columns.sort_by(|a, b| a.name().cmp(b.name()));
    let profile = Profile::default();
    RowEncoder::tar(columns, TarRows { profile, keys }, 1 << 30)
}

fn form(
    encoder: &RowEncoder,
    compression: Option<TarCompression>,
    limit: Option<u64>,
) -> ShardForm {
    let names = |omitted: bool| {
        let columns = encoder.columns().iter();
        let columns = columns.filter(move |column| column.omits_null() == omitted);
        columns.map(|column| column.name().into()).collect()
    };
    ShardForm::Tar(Arc::new(TarForm {
        pattern: ShardPattern::default(),
        profile: Profile::default(),
        fields: Arc::new(FieldSet {
            always: names(false),
            sometimes: names(true),
        }),
        compression,
        hashes: vec![HashAlgo::Sha256],
        size_limit: limit,
    }))
}

/// The shards of the rows, and what is in them.
fn expected(input: &Rows, limit: Option<u64>) -> Vec<(Vec<u8>, ShardMap)> {
    let mut shards = Vec::new();
    let mut cut = tar_cutter(limit, None);
    let mut shard = ShardBuilder::new(Profile::default());
    for (number, (z, text, blob)) in input.units.iter().flatten().enumerate() {
        let z = z.to_string();
        let fields: [(&str, &[u8]); 3] = [
            ("blob", blob),
            ("text", text.as_bytes()),
            ("z.cls", z.as_bytes()),
        ];
        let key = format!("{number:09}");
        let sizes = fields
            .iter()
            .map(|(name, bytes)| (*name, bytes.len() as u64));
        let bytes = Profile::default().sample_bytes(&key, sizes).unwrap();
        if cut.push(bytes) {
            shards.push(std::mem::replace(
                &mut shard,
                ShardBuilder::new(Profile::default()),
            ));
        }
        shard.push(&key, &fields).unwrap();
    }
    if shard.samples() > 0 {
        shards.push(shard);
    }
    shards.into_iter().map(ShardBuilder::finish).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn numbered_tar_shards_match_the_tar_builder(
        input in rows(),
        limit in 10_000_u64..60_000,
        jobs in 1_usize..6,
        zip in 0_usize..3,
    ) {
        let compression = [None, Some(TarCompression::Zstd { level: 1 }), Some(TarCompression::Gzip { level: 1 })][zip];
        let encoder = encoder(&batch(&[]).schema(), TarKeys::Number, false);
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let form = form(&encoder, compression, Some(limit));
        let written = convert_to(&input, &encoder, form, jobs, &dir, &Forgetful).unwrap();
        let mut wanted = BTreeMap::new();
        for (number, (bytes, map)) in expected(&input, Some(limit)).into_iter().enumerate() {
            let name = format!("shard-{number:06}.tar");
            wanted.insert(format!("{name}.idx"), write_offsets(&map.offsets()));
            match compression {
                None => wanted.insert(name, bytes),
                Some(zip) => {
                    let bytes = compress_shard(&bytes, &map.offsets(), zip, GROUP_BYTES).unwrap();
                    wanted.insert(format!("{name}{}", zip.ending()), bytes)
                }
            };
        }
        let found = files(&dir);
        prop_assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
        prop_assert!(found == wanted);
        prop_assert_eq!(written.indexes[0].samples(), input.units.iter().flatten().count() as u64);
    }

    #[test]
    fn resumed_tar_run_continues_the_sample_numbers(input in rows(), limit in 10_000_u64..40_000, keep in any::<u64>()) {
        let encoder = encoder(&batch(&[]).schema(), TarKeys::Number, false);
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let form = form(&encoder, None, Some(limit));
        let first = Memory::default();
        let whole = convert_to(&input, &encoder, form.clone(), 2, &dir, &first).unwrap();
        let wanted = files(&dir);
        let mut known = first.seen.into_inner().unwrap();
        known.retain(|shard, _| (keep >> (shard % 64)) & 1 == 1 || keep % 3 == 0);
        for number in (0..whole.indexes[0].shards()).filter(|number| !known.contains_key(number)) {
            dir.remove(&format!("shard-{number:06}.tar")).unwrap();
        }
        let second = Memory { known: known.clone(), ..Memory::default() };
        let resumed = convert_to(&input, &encoder, form, 2, &dir, &second).unwrap();
        prop_assert_eq!(resumed.indexes[0].to_json(), whole.indexes[0].to_json());
        prop_assert_eq!(resumed.reused, known.len() as u64);
        prop_assert!(files(&dir) == wanted);
    }
}

fn text_rows(keys: &[&str]) -> Rows {
    let row = |key: &&str| -> Row { (7, (*key).to_owned(), vec![1, 2, 3]) };
    Rows {
        units: vec![Vec::new(), keys.iter().map(row).collect()],
        batch_rows: 2,
        fail_unit: None,
    }
}

fn keyed(keys: &[&str], unique: bool) -> Result<BTreeSet<String>, Error> {
    let schema = batch(&[]).schema();
    let source = schema.index_of("text").unwrap();
    let name = "text".to_owned();
    let keyed = TarKeys::Column {
        source,
        name,
        unique,
    };
    let encoder = encoder(&schema, keyed, false);
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    let form = form(&encoder, None, None);
    match convert_to(&text_rows(keys), &encoder, form, 2, &dir, &Forgetful) {
        Ok(_) => {
            let bytes = &files(&dir)["shard-000000.tar"];
            let map = ShardMap::read(bytes, &Limits::default()).unwrap();
            Ok(map
                .samples
                .iter()
                .map(|sample| sample.key.to_string())
                .collect())
        }
        Err(error) => {
            assert_eq!(files(&dir).len(), 0, "nothing is left");
            Err(error)
        }
    }
}

#[test]
fn keys_from_a_column_must_be_unique_and_valid() {
    let found = keyed(&["a", "b/c", "d"], false).unwrap();
    assert_eq!(found, ["a", "b/c", "d"].map(str::to_owned).into());
    // Another thread may find the second repetition before the first one has ended the run.
    for _ in 0..100 {
        let error = keyed(&["a", "b", "c", "b", "a"], false).unwrap_err();
        assert_eq!(error.id(), "sample-key-twice");
        assert_eq!(error.object(), Some("column text"));
        assert_eq!(
            error.to_string(),
            "row 3 of unit 1: the key `b` was there before"
        );
    }
    for (bad, id, row) in [
        ("", "sample-key", "row 1 of unit 1"),
        ("a.b", "sample-key", "row 1 of unit 1"),
        ("../a", "sample-key", "row 1 of unit 1"),
        ("é", "tar-long-name", "row 1 of unit 1"),
        (&"x".repeat(100), "tar-long-name", "row 1 of unit 1"),
    ] {
        let error = keyed(&["a", bad], false).unwrap_err();
        assert_eq!(error.id(), id, "{bad}");
        assert!(error.to_string().starts_with(row), "{error}");
    }
}

/// One batch of a unit.
struct One(RecordBatch);

impl Input for One {
    fn units(&self) -> usize {
        1
    }
    fn open(&self, _: usize) -> Result<Box<dyn Batches>, Error> {
        Ok(Box::new(OneBatch(Some(self.0.clone()))))
    }
    fn row_origin(&self, _: usize, row: u64) -> String {
        format!("row {row}")
    }
}

struct OneBatch(Option<RecordBatch>);

impl Batches for OneBatch {
    fn next(&mut self) -> Result<Option<InputBatch>, Error> {
        Ok(self.0.take().map(|batch| InputBatch {
            split: 0,
            batch,
            rows: RowNumbers::From(0),
            input_bytes: 0,
            dropped: 0,
        }))
    }
}

fn write_one(columns: Vec<(&str, ArrayRef)>) -> (DatasetIndex, Vec<u8>) {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let encoder = encoder(&batch.schema(), TarKeys::Number, true);
    let form = form(&encoder, None, None);
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    dir.make_dir("work").unwrap();
    let output = Output {
        destination: &Destination::Local(dir.clone()),
        temp_folder: "work",
        splits: &[String::new()],
        form,
        ends: ShardEnds::Size,
        at: None,
        key_prefix: "",
    };
    let resources = Resources {
        jobs: 1,
        budget_bytes: 1 << 16,
    };
    let progress = Progress::new();
    let mut written = match run(
        &One(batch),
        &encoder,
        &output,
        Base::default(),
        resources,
        &Forgetful,
        &progress,
    ) {
        Ok(written) => written,
        Err(error) => panic!("{error}"),
    };
    let shard = files(&dir).remove("shard-000000.tar").unwrap();
    (written.indexes.remove(0), shard)
}

#[test]
fn tar_values_round_trip_and_nulls_are_omitted() {
    let lists = ListArray::from_iter_primitive::<Float32Type, _, _>([
        Some(vec![Some(1.5), Some(2.5)]),
        None,
        Some(vec![]),
    ]);
    let (index, shard) = write_one(vec![
        ("v", Arc::new(lists)),
        (
            "n",
            Arc::new(Int32Array::from(vec![None, Some(-5), Some(6)])),
        ),
        (
            "f",
            Arc::new(Float32Array::from(vec![Some(0.5), Some(1.0), None])),
        ),
        ("t", Arc::new(StringArray::from(vec!["a", "é", ""]))),
    ]);
    let fields = &index.entries[0].tar().unwrap().fields;
    assert_eq!(fields.always, [Box::from("t.txt")]);
    assert_eq!(
        fields.sometimes,
        ["f.json", "n.cls", "v.npy"].map(Box::from)
    );
    let limits = Limits::default();
    let map = ShardMap::read(&shard, &limits).unwrap();
    let value = |sample: usize, name: &str| {
        let field = map.samples[sample].field(name)?;
        let at = field.offset as usize;
        let bytes = &shard[at..at + field.bytes as usize];
        Some(format!("{:?}", decode(name, bytes, &limits).unwrap()))
    };
    assert_eq!(value(0, "n.cls"), None);
    assert_eq!(value(1, "n.cls"), Some(format!("{:?}", Value::Int(-5))));
    assert_eq!(value(1, "t.txt"), Some(format!("{:?}", Value::Text("é"))));
    assert_eq!(value(1, "v.npy"), None);
    let field = map.samples[0].field("v.npy").unwrap();
    let bytes = &shard[field.offset as usize..(field.offset + field.bytes) as usize];
    let Value::Array(array) = decode("v.npy", bytes, &limits).unwrap() else {
        panic!("an array");
    };
    assert_eq!(
        (array.dtype, array.shape.as_slice(), array.data),
        (
            DType::Float32,
            &[2_u64][..],
            &[1.5_f32.to_le_bytes(), 2.5_f32.to_le_bytes()].concat()[..],
        )
    );
    let field = map.samples[2].field("v.npy").unwrap();
    let bytes = &shard[field.offset as usize..(field.offset + field.bytes) as usize];
    assert!(
        matches!(decode("v.npy", bytes, &limits).unwrap(), Value::Array(array) if array.shape == [0])
    );
}
