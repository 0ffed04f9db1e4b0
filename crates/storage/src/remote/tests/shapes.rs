//! Typical shapes of keys.

use std::collections::BTreeSet;

use shardmill_testing::draw::Draw;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Uniform,
    Numbered,
    Skewed,
    Dated,
    Deep,
    Utf8,
    /// A hash before each number, so that a store distributes them.
    Hashed,
    /// Numbers without leading zeros.
    Unpadded,
    /// Tables as Spark and Hive write them.
    Partitioned,
    /// Eight levels of two or three folders, with some files in each of the last.
    Bushy,
    /// A folder with half of the keys, and thousands with a few.
    OneHuge,
    /// Unpacked samples of tar shards.
    WebDataset,
    /// All keys share a prefix of eighty letters, and another one after the first folder.
    LongCommon,
    /// Versions of a few runs, each with files of the same names.
    Runs,
    /// File names that people write: words, dates, spaces.
    Words,
    /// One folder per sample, with three files.
    Triples,
    /// UUIDs in two levels of folders of two digits.
    Uuids,
    /// Three tables of very different sizes, next to each other.
    Tables,
    /// Powers: each folder has half as many keys as the one before it.
    Halves,
}

/// The shapes of the requirement, and numbers.
pub(super) const SHAPES: [Shape; 6] = [
    Shape::Uniform,
    Shape::Numbered,
    Shape::Skewed,
    Shape::Dated,
    Shape::Deep,
    Shape::Utf8,
];

/// Other shapes, for which the algorithm was not tuned.
pub(super) const OTHERS: [Shape; 13] = [
    Shape::Hashed,
    Shape::Unpadded,
    Shape::Partitioned,
    Shape::Bushy,
    Shape::OneHuge,
    Shape::WebDataset,
    Shape::LongCommon,
    Shape::Runs,
    Shape::Words,
    Shape::Triples,
    Shape::Uuids,
    Shape::Tables,
    Shape::Halves,
];

const LETTERS: [char; 33] = [
    'а', 'б', 'в', 'г', 'д', 'е', 'ж', 'з', 'и', 'й', 'к', 'л', 'м', 'н', 'о', 'п', 'р', 'с', 'т',
    'у', 'ф', 'х', 'ц', 'ч', 'ш', 'щ', '日', '本', '語', '漢', '字', '年', '月',
];

const WORDS: [&str; 16] = [
    "annual", "Report", "draft", "Invoice", "photo", "IMG", "scan", "Meeting", "notes", "final",
    "backup", "copy of", "budget", "Letter", "readme", "x",
];

/// Returns this many keys, determined by the seed.
pub(super) fn keys(shape: Shape, count: u64, seed: u64) -> BTreeSet<String> {
    let mut draw = Draw::new(count ^ seed << 32);
    let mut keys = BTreeSet::new();
    let mut at = 0;
    while (keys.len() as u64) < count {
        at += 1;
        keys.insert(key(shape, count, at, &mut draw));
    }
    keys
}

fn key(shape: Shape, count: u64, at: u64, draw: &mut Draw) -> String {
    match shape {
        Shape::Uniform => format!("{:016x}.jpg", draw.next()),
        Shape::Numbered => format!("train/part-{at:08}.parquet"),
        // Nine tenths of the keys are in one of a hundred folders.
        Shape::Skewed if draw.below(10) > 0 => format!("big/{:08}", draw.below(10 * count)),
        Shape::Skewed => format!("{:02}/{:06}", draw.below(100), draw.below(1_000_000)),
        Shape::Dated => format!(
            "events/year={}/month={:02}/day={:02}/{:010x}.json",
            2019 + draw.below(6),
            1 + draw.below(12),
            1 + draw.below(28),
            draw.next() % (1 << 40)
        ),
        Shape::Deep => {
            let mut key = "a/very/long/way/down/".to_owned();
            for _ in 0..draw.below(6) {
                key.push_str(draw.pick(&["left/", "right/", "up/", "down/"]).unwrap());
            }
            key.push_str(&format!("{:x}", draw.below(1 << 36)));
            key
        }
        Shape::Utf8 => {
            let name: String = (0..6).map(|_| *draw.pick(&LETTERS).unwrap()).collect();
            format!("файлы/{name}")
        }
        Shape::Hashed => format!("{:04x}-images-{at:09}.png", draw.below(1 << 16)),
        Shape::Unpadded => format!("data/{at}.bin"),
        Shape::Partitioned => format!(
            "lake/sales/year={}/month={:02}/part-{:05}-{:08x}-c000.snappy.parquet",
            2020 + draw.below(5),
            1 + draw.below(12),
            draw.below(200),
            draw.below(1 << 32)
        ),
        Shape::Bushy => {
            let mut key = String::new();
            for level in 0..8 {
                key.push_str(&format!("n{}/", draw.below(2 + level % 2)));
            }
            key.push_str(&format!("f{:05}", draw.below(20 * count)));
            key
        }
        Shape::OneHuge if draw.below(2) == 0 => format!("logs/all/{:012}.gz", draw.below(1 << 39)),
        Shape::OneHuge => format!(
            "logs/user-{:04}/{:06x}.gz",
            draw.below(4000),
            draw.below(1 << 24)
        ),
        Shape::WebDataset => {
            let sample = at / 3;
            let kind = ["cls", "jpg", "json"][(at % 3) as usize];
            format!(
                "imagenet/train-{:06}/{sample:08}.{kind}",
                sample / (count / 400).max(1)
            )
        }
        Shape::LongCommon => format!(
            "org/department/project/experiment-with-a-very-long-name/output/attempt_2024_000/{}/org/department/project/experiment-with-a-very-long-name/file_{:08}",
            draw.pick(&["a", "b", "c"]).unwrap(),
            draw.below(count * 4)
        ),
        Shape::Runs => format!(
            "runs/run-{:03}/step-{:06}/shard-{}-of-8.ckpt",
            draw.below(12),
            draw.below(count) * 10 % 1_000_000,
            draw.below(8)
        ),
        Shape::Words => format!(
            "{}/{} {} {:04}-{:02}-{:02} {}.pdf",
            draw.pick(&["home/anna", "home/bob", "home/Chris", "shared", "Old"])
                .unwrap(),
            draw.pick(&WORDS).unwrap(),
            draw.pick(&WORDS).unwrap(),
            2000 + draw.below(24),
            1 + draw.below(12),
            1 + draw.below(28),
            draw.below(10_000)
        ),
        Shape::Triples => format!(
            "set/{:08}/{}",
            at / 3,
            ["image.png", "label.txt", "meta.json"][(at % 3) as usize]
        ),
        Shape::Uuids => {
            let (a, b) = (draw.next(), draw.next());
            format!(
                "blobs/{:02x}/{:02x}/{a:016x}-{b:016x}",
                a >> 56,
                a >> 48 & 255
            )
        }
        Shape::Tables => match draw.below(100) {
            0..5 => format!("warehouse/customers/{:08}.orc", draw.below(1 << 26)),
            5..25 => format!(
                "warehouse/orders/dt=2023-{:02}-{:02}/{:06}_0",
                1 + draw.below(12),
                1 + draw.below(28),
                draw.below(1_000_000)
            ),
            _ => format!(
                "warehouse/clicks/{:016x}/{}.orc",
                draw.next() >> 40 << 40,
                draw.below(1000)
            ),
        },
        Shape::Halves => format!(
            "p{:02}/{:010}",
            draw.next().leading_zeros(),
            draw.below(1 << 33)
        ),
    }
}
