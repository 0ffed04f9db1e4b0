//! Parses the names of encodings.

use std::str::FromStr;

use shardmill_core::escape;

use crate::encoding::{DType, Encoding};
use crate::error::{MdsError, MdsProblem};
use crate::limits;

/// Parses one dimension in the canonical form of the format: digits without sign, whitespace or leading zero, at least
/// 1. Other spellings would not round-trip.
fn parse_dim(text: &str) -> Option<u64> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    canonical.then(|| text.parse().ok()).flatten()
}

fn parse_shape(encoding: &str, dtype: DType, text: &str) -> Result<Vec<u64>, MdsError> {
    let error = |reason: &str| {
        let encoding = escape(encoding);
        MdsProblem::EncodingShape.because(format!("the shape of encoding `{encoding}` {reason}"))
    };
    // The header of a datum could not express more dimensions either.
    if text.split(',').count() > usize::from(limits::ARRAY_HEADER_DIMS) {
        return Err(error("has more than 63 dimensions"));
    }
    let shape: Vec<u64> = text
        .split(',')
        .map(parse_dim)
        .collect::<Option<_>>()
        .ok_or_else(|| error("is not a list of dimensions of at least 1, such as 2,3"))?;
    shape
        .iter()
        .try_fold(dtype.size_bytes(), |size, dim| size.checked_mul(*dim))
        .ok_or_else(|| error("is larger than 2^64 bytes"))?;
    Ok(shape)
}

impl FromStr for Encoding {
    type Err = MdsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(parameters) = text.strip_prefix("ndarray:") else {
            return Self::plain(text).ok_or_else(|| MdsError::UnknownEncoding {
                encoding: text.to_owned(),
            });
        };
        let (name, shape) = match parameters.split_once(':') {
            Some((name, shape)) => (name, Some(shape)),
            None => (parameters, None),
        };
        let dtype = DType::from_name(name).ok_or_else(|| MdsError::UnknownDtype {
            encoding: text.to_owned(),
            dtype: name.to_owned(),
        })?;
        let shape = shape
            .map(|shape| parse_shape(text, dtype, shape))
            .transpose()?;
        Ok(Self::NdArray {
            dtype: Some(dtype),
            shape,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::{Diagnostic as _, ErrorKind};

    use super::*;

    #[test]
    fn every_encoding_name_round_trips() {
        for name in Encoding::names() {
            assert_eq!(name.parse::<Encoding>().unwrap().to_string(), name);
        }
        for name in ["ndarray:uint8", "ndarray:float64:1", "ndarray:int16:2,3,4"] {
            assert_eq!(name.parse::<Encoding>().unwrap().to_string(), name);
        }
        let unique: std::collections::BTreeSet<_> = Encoding::names().into_iter().collect();
        assert_eq!(unique.len(), 28);
    }

    #[test]
    fn fixed_size_is_known_for_fixed_size_encodings() {
        for (name, size) in [
            ("int", Some(8)),
            ("uint8", Some(1)),
            ("int16", Some(2)),
            ("float16", Some(2)),
            ("float32", Some(4)),
            ("uint64", Some(8)),
            ("ndarray:int32:2,3", Some(24)),
            ("ndarray:int32", None),
            ("ndarray", None),
            ("str", None),
            ("bytes", None),
            ("pil", None),
            ("json", None),
        ] {
            assert_eq!(
                name.parse::<Encoding>().unwrap().fixed_size(),
                size,
                "{name}"
            );
        }
        let vast = Encoding::NdArray {
            dtype: Some(DType::U64),
            shape: Some(vec![u64::MAX, 2]),
        };
        assert_eq!(vast.fixed_size(), Some(u64::MAX));
    }

    #[test]
    fn unknown_encoding_names_are_rejected() {
        for name in [
            "",
            "Str",
            "STR",
            "bool",
            "float",
            "int:1",
            "str:",
            "jxl",
            "webp",
            "list",
            "list[str]",
            "list[jpeg",
            " str",
            "str ",
            "ndarray ",
            "uint128",
            "timestamp",
            "pickle",
            "utf8",
            "foo:1",
        ] {
            let error = name.parse::<Encoding>().unwrap_err();
            assert_eq!(error.id(), "encoding-unknown", "{name}");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.hint().unwrap().contains("ndarray, uint8"));
        }
        for name in [
            "ndarray:",
            "ndarray::",
            "ndarray::2,3",
            "ndarray:bool",
            "ndarray:2,3",
            "ndarray:UINT8",
            "ndarray:bfloat16:2",
        ] {
            assert_eq!(
                name.parse::<Encoding>().unwrap_err().id(),
                "encoding-dtype",
                "{name}"
            );
        }
        for shape in [
            "",
            ",",
            "2,",
            ",2",
            "0",
            "2,0",
            "-1",
            "+1",
            "03",
            " 3",
            "3 ",
            "1_0",
            "2:3",
            "1.5",
            "a",
            "18446744073709551616",
            "18446744073709551615,2",
            "4294967296,4294967296",
        ] {
            let name = format!("ndarray:uint8:{shape}");
            assert_eq!(
                name.parse::<Encoding>().unwrap_err().id(),
                "encoding-shape",
                "{name}"
            );
        }
        let error = "no\x1bne".parse::<Encoding>().unwrap_err();
        assert_eq!(error.to_string(), "unknown encoding `no\\u{1b}ne`");
    }

    #[test]
    fn ndarray_shape_has_at_most_63_dimensions() {
        let name = |dims: usize| format!("ndarray:uint8:{}", vec!["1"; dims].join(","));
        assert!(name(63).parse::<Encoding>().is_ok());
        assert!(name(64).parse::<Encoding>().is_err());
    }

    #[test]
    fn dtypes_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(u64::from(dtype.code() & !7) / 8, dtype.size_bytes());
            assert_eq!(dtype.is_float(), dtype.name().starts_with("float"));
            assert!(Encoding::names().contains(&dtype.name()));
        }
        for code in (0..=255).filter(|code| DType::ALL.iter().all(|dtype| dtype.code() != *code)) {
            assert_eq!(DType::from_code(code), None);
        }
    }

    proptest! {
        #[test]
        fn parsed_encoding_displays_the_same_text(text in "(ndarray(:(u?int(8|16)|float32)(:[0-9,]{0,8})?)?|[a-z_\\[\\]:]{0,10})") {
            if let Ok(encoding) = text.parse::<Encoding>() {
                prop_assert_eq!(encoding.to_string(), text);
            }
        }
    }
}
