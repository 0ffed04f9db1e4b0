//! Damaged data of the original writer must give an error or a value, never a panic.

use shardmill_mds::{Encoding, Index, ShardView, check_datum, decode, read_config};

use crate::fixtures::{self, limits};

/// A small random number generator (xorshift), so that a failure can be reproduced from its seed.
struct Mutator(u64);

impl Mutator {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }

    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(out.len());
            match self.below(5) {
                0 => out.truncate(at),
                1 => out.insert(at.min(out.len()), self.byte()),
                2 if !out.is_empty() => out[at] ^= 1 << self.below(8),
                3 if !out.is_empty() => out[at] = self.byte(),
                4 if !out.is_empty() => drop(out.remove(at)),
                _ => out.push(self.byte()),
            }
        }
        out
    }

    fn byte(&mut self) -> u8 {
        [0, 1, 3, 0x7f, 0x80, 0xff, b'"', b'{'][self.below(8)]
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SHARDMILL_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_250_717);
    eprintln!("SHARDMILL_SEED={seed}");
    seed
}

fn data() -> Vec<(Encoding, Vec<u8>)> {
    let mut out = Vec::new();
    for fixture in fixtures::accepted()
        .iter()
        .filter(|fixture| fixture.name.starts_with("mds-enc-"))
    {
        for shard in fixture.shards() {
            let view = shard.open(&limits());
            for sample in 0..view.len() {
                out.extend(
                    view.fields(sample)
                        .unwrap()
                        .iter()
                        .map(|field| (field.encoding.clone(), field.datum.to_vec())),
                );
            }
        }
    }
    out
}

#[test]
fn a_damaged_value_is_refused_or_well_formed() {
    let mut mutator = Mutator(seed());
    let data = data();
    assert!(data.len() > 400, "only {}", data.len());
    let mut accepted = 0;
    for case in 0..10_000 {
        let (encoding, datum) = &data[mutator.below(data.len())];
        // The largest ones are mostly zeros.
        let datum = mutator.mutate(&datum[..datum.len().min(4096)]);
        let decoded = decode(encoding, &datum, &limits());
        // The check for writers is stricter: it inspects image files, and readers do not.
        let checked = check_datum(encoding, &datum, &limits());
        assert!(
            decoded.is_ok() || checked.is_err(),
            "case {case}: {encoding} {datum:02x?}: {decoded:?} and {checked:?}"
        );
        accepted += u32::from(decoded.is_ok());
    }
    assert!(
        (1000..9900).contains(&accepted),
        "{accepted} of 10000 accepted: the mutants are too weak or too strong"
    );
}

#[test]
fn a_damaged_shard_or_index_is_refused_or_well_formed() {
    let mut mutator = Mutator(seed());
    for name in [
        "mds-all-encodings",
        "mds-heads",
        "mds-names",
        "json-mixed",
        "csv-mixed",
        "xsv-separator-long",
    ] {
        let fixture = fixtures::named(name);
        let index = fixture.index_bytes();
        for _ in 0..300 {
            if let Ok(index) = Index::parse(&mutator.mutate(&index), &limits()) {
                // Every accepted index round-trips.
                assert_eq!(
                    Index::parse(index.to_json().as_bytes(), &limits()).unwrap(),
                    index
                );
            }
        }
        for shard in fixture.shards() {
            for _ in 0..300 {
                let data = mutator.mutate(&shard.data);
                let meta = shard.meta.as_ref().map(|meta| mutator.mutate(meta));
                let _ = read_config(meta.as_deref().unwrap_or(&data), meta.is_some(), &limits());
                let Ok(view) = ShardView::open(&shard.entry, &data, meta.as_deref(), &limits())
                else {
                    continue;
                };
                for sample in 0..=view.len() {
                    let _ = (
                        view.sample(sample),
                        view.fields(sample),
                        view.values(sample),
                    );
                }
            }
        }
    }
}
