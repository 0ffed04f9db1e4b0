//! Writes every shard again from its decoded values, and compares the bytes.

use shardmill_mds::{
    Encoding, Image, Layout, SampleValue, ShardConfig, ShardView, TextValue, Value, decode,
    encode_header, encode_jpeg_array, encode_list, encode_meta, ndarray_header, write_decimal,
    write_float, write_json_float, write_json_string,
};

use crate::fixtures::{self, limits};

/// Datasets with contents that shardmill does not write: values that the original reader refuses, other spellings of
/// text, 63 dimensions, no columns, lone surrogates.
const NOT_OURS: [&str; 6] = [
    "csv-unreadable",
    "json-surrogates",
    "mds-enc-ndarray-63d",
    "mds-loose-text",
    "mds-no-columns",
    "mds-unreadable",
];

fn write_image(image: &Image<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match image.pil {
        Some(frame) => {
            let mode_bytes = u32::try_from(frame.mode.len()).unwrap();
            for word in [frame.width, frame.height, mode_bytes] {
                out.extend(word.to_le_bytes());
            }
            out.extend_from_slice(&[frame.mode.as_bytes(), frame.raw].concat());
        }
        None => out.extend_from_slice(image.bytes),
    }
    out
}

/// Splits a text like `1.50E+7` into sign, coefficient and scale, as an Arrow decimal has them, and writes it again.
fn write_decimal_text(text: &str, out: &mut Vec<u8>) {
    let (negative, number) = match text.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, text),
    };
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        // Infinity and NaN are not Arrow decimals.
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let (mantissa, exponent) = number.split_once('E').unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = match digits.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let exponent: i32 = exponent.parse().unwrap();
    let scale = i32::try_from(fraction.len()).unwrap() - exponent;
    write_decimal(negative, digits, scale, out);
}

fn write_value(encoding: &Encoding, value: &Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Bytes(bytes) | Value::Pickle(bytes) => out.extend_from_slice(bytes),
        Value::Str(text) | Value::BigInt(text) | Value::Json(text) => {
            out.extend_from_slice(text.as_bytes())
        }
        Value::Int(x) | Value::I64(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::U8(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::I8(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::U16(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::I16(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::F16(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::U32(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::I32(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::F32(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::U64(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::F64(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::Float(x) => write_float(*x, &mut out),
        Value::Decimal(text) => write_decimal_text(text, &mut out),
        Value::NdArray(array) => {
            let Encoding::NdArray { dtype, shape } = encoding else {
                panic!("an array in {encoding}");
            };
            if shape.is_none() {
                let written = dtype.is_none().then_some(array.dtype);
                ndarray_header(written, &array.shape, &mut out).unwrap();
            }
            out.extend_from_slice(array.data);
        }
        Value::Image(image) => out = write_image(image),
        Value::Images(images) => {
            let items: Vec<Vec<u8>> = images.iter().map(write_image).collect();
            let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            match encoding {
                Encoding::JpegArray { .. } => encode_jpeg_array(&items, &mut out).unwrap(),
                _ => encode_list(&items, &mut out).unwrap(),
            }
        }
    }
    out
}

fn mds_samples(view: &ShardView<'_>) -> Vec<Vec<u8>> {
    let sample = |sample| {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        for field in view.fields(sample).unwrap() {
            let value = decode(field.encoding, field.datum, &limits()).unwrap();
            let datum = write_value(field.encoding, &value);
            if field.encoding.fixed_size().is_none() {
                head.extend_from_slice(&u32::try_from(datum.len()).unwrap().to_le_bytes());
            }
            body.extend_from_slice(&datum);
        }
        head.extend_from_slice(&body);
        head
    };
    (0..view.len()).map(sample).collect()
}

fn write_text(value: &SampleValue<'_>, json: bool, out: &mut Vec<u8>) {
    let SampleValue::Text(value) = value else {
        panic!("{value:?} in a text shard");
    };
    match value {
        TextValue::Str(text) if json => write_json_string(text, out),
        TextValue::Str(text) => out.extend_from_slice(text.as_bytes()),
        TextValue::Int(x) => out.extend_from_slice(x.to_string().as_bytes()),
        TextValue::BigInt(text) | TextValue::Json(text) => out.extend_from_slice(text.as_bytes()),
        TextValue::Float(x) if json => write_json_float(*x, out),
        TextValue::Float(x) => write_float(*x, out),
    }
}

fn json_samples(view: &ShardView<'_>, newline: &str) -> Vec<Vec<u8>> {
    let sample = |sample| {
        let mut line = b"{".to_vec();
        for (column, (name, value)) in view.values(sample).unwrap().iter().enumerate() {
            if column > 0 {
                line.extend_from_slice(b", ");
            }
            write_json_string(name, &mut line);
            line.extend_from_slice(b": ");
            write_text(value, true, &mut line);
        }
        line.push(b'}');
        line.extend_from_slice(newline.as_bytes());
        line
    };
    (0..view.len()).map(sample).collect()
}

fn xsv_samples(view: &ShardView<'_>, separator: &str, newline: &str) -> Vec<Vec<u8>> {
    let sample = |sample| {
        let mut line = Vec::new();
        for (column, (_, value)) in view.values(sample).unwrap().iter().enumerate() {
            if column > 0 {
                line.extend_from_slice(separator.as_bytes());
            }
            write_text(value, false, &mut line);
        }
        line.extend_from_slice(newline.as_bytes());
        line
    };
    (0..view.len()).map(sample).collect()
}

fn sizes(samples: &[Vec<u8>]) -> impl ExactSizeIterator<Item = u32> {
    samples
        .iter()
        .map(|sample| u32::try_from(sample.len()).unwrap())
}

/// Returns the data and meta files of a shard, written from its decoded values.
fn write_shard(config: &ShardConfig, view: &ShardView<'_>) -> (Vec<u8>, Option<Vec<u8>>) {
    let config_json = config.to_json();
    let (samples, is_mds) = match &config.layout {
        Layout::Mds { .. } => (mds_samples(view), true),
        Layout::Json { newline, .. } => (json_samples(view, newline), false),
        Layout::Xsv {
            newline, separator, ..
        } => (xsv_samples(view, separator, newline), false),
    };
    if is_mds {
        let mut data = Vec::new();
        encode_header(config, &config_json, sizes(&samples), &mut data).unwrap();
        data.extend(samples.concat());
        (data, None)
    } else {
        let mut data = config.xsv_header();
        let mut meta = Vec::new();
        encode_meta(&config_json, data.len() as u64, sizes(&samples), &mut meta).unwrap();
        data.extend(samples.concat());
        (data, Some(meta))
    }
}

#[test]
fn every_shard_is_rewritten_byte_for_byte() {
    let mut shards = 0;
    for fixture in fixtures::accepted()
        .iter()
        .filter(|fixture| !NOT_OURS.contains(&fixture.name.as_str()))
    {
        for shard in fixture.shards() {
            let place = format!("{}/{}", fixture.name, shard.entry.raw_data.basename);
            let (data, meta) = write_shard(&shard.entry.config, &shard.open(&limits()));
            let differs = data.iter().zip(&shard.data).position(|(a, b)| a != b);
            assert!(
                data == shard.data,
                "{place}: {} and {} bytes, first difference at {differs:?}",
                data.len(),
                shard.data.len()
            );
            assert_eq!(meta, shard.meta, "{place}.meta");
            shards += 1;
        }
    }
    assert!(shards > 250, "only {shards} shards");
}
