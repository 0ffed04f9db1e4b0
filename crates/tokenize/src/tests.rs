//! The tokens of the Python package, and the errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, DictionaryArray, LargeStringArray,
    StringArray, StringViewArray,
};
use arrow::datatypes::{DataType, Int32Type, UInt16Type};
use shardmill_core::{Error, ErrorKind};

use crate::{ColumnTokenizer, EmptyTokens, TextKind, TokenOptions, Tokenizer};

const NAMES: [&str; 4] = ["bpe", "split", "wordpiece", "unigram"];

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn open(name: &str, options: &TokenOptions) -> Tokenizer {
    Tokenizer::open(&testdata(&format!("{name}.json")), options).unwrap()
}

fn special() -> TokenOptions {
    TokenOptions {
        special_tokens: true,
        ..TokenOptions::default()
    }
}

/// The texts of `generate.py`, and the ids of the Python package for each tokenizer.
struct Golden(serde_json::Value);

impl Golden {
    fn read() -> Self {
        let text = std::fs::read(testdata("ids.json")).unwrap();
        Self(serde_json::from_slice(&text).unwrap())
    }

    fn texts(&self) -> Vec<&str> {
        let texts = self.0["texts"].as_array().unwrap().iter();
        texts.map(|text| text.as_str().unwrap()).collect()
    }

    fn ids(&self, name: &str, key: &str) -> Vec<Vec<u32>> {
        serde_json::from_value(self.0["ids"][name][key].clone()).unwrap()
    }
}

fn lists(column: &ArrayRef) -> Vec<Option<Vec<u32>>> {
    let lists = column.as_list::<i64>();
    let ids = lists.values().as_primitive::<UInt16Type>();
    let row = |row: usize| {
        let range = lists.value_offsets()[row]..lists.value_offsets()[row + 1];
        let ids = range.map(|at| u32::from(ids.value(usize::try_from(at).unwrap())));
        lists.is_valid(row).then(|| ids.collect())
    };
    (0..lists.len()).map(row).collect()
}

#[test]
fn ids_match_the_python_package() {
    let golden = Golden::read();
    for name in NAMES {
        for (key, options) in [("plain", TokenOptions::default()), ("special", special())] {
            let tokenizer = open(name, &options);
            for (text, ids) in golden.texts().iter().zip(golden.ids(name, key)) {
                assert_eq!(tokenizer.encode(text), Ok(ids), "{name} {key}: {text:?}");
            }
        }
    }
}

#[test]
fn tokens_do_not_depend_on_column_type_or_thread_count() {
    let golden = Golden::read();
    // More than one piece, and words that are remembered from one text to the next.
    let texts: Vec<Option<&str>> = (0..60)
        .flat_map(|_| golden.texts().into_iter().map(Some).chain([None]))
        .collect();
    let columns: [ArrayRef; 5] = [
        Arc::new(StringArray::from(texts.clone())),
        Arc::new(LargeStringArray::from(texts.clone())),
        Arc::new(StringViewArray::from(texts.clone())),
        Arc::new(BinaryArray::from(
            texts
                .iter()
                .map(|text| text.map(str::as_bytes))
                .collect::<Vec<_>>(),
        )),
        Arc::new(
            texts
                .iter()
                .copied()
                .collect::<DictionaryArray<Int32Type>>(),
        ),
    ];
    for name in NAMES {
        let ids = golden.ids(name, "special").into_iter().map(Some);
        let ids: Vec<_> = ids.chain([None]).collect();
        for column in &columns {
            for jobs in [1, 3] {
                let tokenizer = open(name, &special());
                let tokenizer =
                    ColumnTokenizer::new(tokenizer, "text".to_owned(), EmptyTokens::Keep, jobs);
                let tokens = tokenizer.encode(column, |row| row.to_string()).unwrap();
                assert_eq!(tokens.data_type(), &tokenizer.data_type());
                for (row, found) in lists(&tokens).into_iter().enumerate() {
                    assert_eq!(found, ids[row % ids.len()], "{name} row {row}");
                }
            }
        }
    }
}

#[test]
fn special_tokens_surround_texts_but_not_nulls() {
    let options = TokenOptions {
        special_tokens: true,
        prepend: Some("[MASK]".to_owned()),
        append: Some("[PAD]".to_owned()),
    };
    let tokenizer = open("wordpiece", &options);
    let id = |token: &str| tokenizer_id(&tokenizer, token);
    let (mask, pad, cls, sep) = (id("[MASK]"), id("[PAD]"), id("[CLS]"), id("[SEP]"));
    let ids = tokenizer.encode("def").unwrap();
    assert_eq!(ids.first_chunk(), Some(&[mask, cls]));
    assert_eq!(ids.last_chunk(), Some(&[sep, pad]));
    let column: ArrayRef = Arc::new(StringArray::from(vec![None, Some("")]));
    let tokenizer = ColumnTokenizer::new(tokenizer, "text".to_owned(), EmptyTokens::Keep, 1);
    let tokens = tokenizer.encode(&column, |row| row.to_string()).unwrap();
    assert_eq!(lists(&tokens), [None, Some(vec![mask, cls, sep, pad])]);
}

fn tokenizer_id(tokenizer: &Tokenizer, token: &str) -> u32 {
    // The text of a special token is that token.
    tokenizer.encode(token).unwrap()[2]
}

#[test]
fn text_without_tokens_is_empty_null_or_an_error() {
    let column: ArrayRef = Arc::new(StringArray::from(vec![" \n"]));
    let encode = |empty| {
        let tokenizer = open("wordpiece", &TokenOptions::default());
        let tokenizer = ColumnTokenizer::new(tokenizer, "text".to_owned(), empty, 1);
        tokenizer.encode(&column, |row| row.to_string())
    };
    assert_eq!(lists(&encode(EmptyTokens::Keep).unwrap()), [Some(vec![])]);
    assert_eq!(lists(&encode(EmptyTokens::Null).unwrap()), [None]);
    let error = encode(EmptyTokens::Refuse).unwrap_err();
    assert_eq!(error.id(), "tokens-none");
}

#[test]
fn decoded_ids_equal_the_text() {
    let tokenizer = open("bpe", &TokenOptions::default());
    for text in Golden::read().texts() {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).as_deref(), Ok(text));
    }
}

#[test]
fn non_utf8_bytes_are_an_error_with_row_and_offset() {
    let column: ArrayRef = Arc::new(BinaryArray::from(vec![b"ok".as_slice(), b"a\xff"]));
    let tokenizer = open("bpe", &TokenOptions::default());
    let tokenizer = ColumnTokenizer::new(tokenizer, "text".to_owned(), EmptyTokens::Keep, 1);
    let error = tokenizer.encode(&column, |row| format!("row {row} of a.csv"));
    let error = error.unwrap_err();
    assert_eq!(error.id(), "text-utf8");
    assert_eq!(error.object(), Some("row 1 of a.csv, column text"));
    assert!(error.to_string().contains("byte at 1"), "{error}");
    assert_eq!(TextKind::of(&DataType::Int64), None);
}

fn parse(text: &str, options: &TokenOptions) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, text).unwrap();
    Tokenizer::open(&path, options).map(drop).unwrap_err()
}

fn changed(name: &str, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let text = std::fs::read(testdata(&format!("{name}.json"))).unwrap();
    let mut value = serde_json::from_slice(&text).unwrap();
    change(&mut value);
    value.to_string()
}

#[test]
fn invalid_or_unsupported_tokenizer_is_an_error() {
    let options = TokenOptions::default();
    for text in [
        "",
        "{}",
        "[1]",
        "\u{0}\u{1}",
        "{\"model\":{\"type\":\"BPE\"}}",
    ] {
        let error = parse(text, &options);
        assert_eq!(error.id(), "tokenizer-file", "{text}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let random = changed("bpe", |value| value["model"]["dropout"] = 0.1.into());
    let error = parse(&random, &options);
    assert_eq!(error.id(), "tokenizer-random");
    assert!(error.to_string().contains("dropout of 0.1"), "{error}");
    let twice = changed("unigram", |value| {
        let single = value["post_processor"]["single"].as_array_mut().unwrap();
        single.push(single[0].clone());
    });
    assert_eq!(parse(&twice, &options).id(), "tokenizer-template");
    let missing = Tokenizer::open(Path::new("no-such-file.json"), &options);
    let missing = missing.map(drop).unwrap_err();
    assert_eq!(
        (missing.kind(), missing.id()),
        (ErrorKind::NotFound, "not-found")
    );
}

#[test]
fn unknown_token_error_lists_the_special_tokens() {
    let options = TokenOptions {
        append: Some("<|eos|>".to_owned()),
        ..TokenOptions::default()
    };
    let error = parse(&changed("wordpiece", |_| {}), &options);
    assert_eq!(error.id(), "tokenizer-token");
    assert_eq!(error.object(), Some("--append"));
    assert_eq!(
        error.hint(),
        Some("its special tokens are `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]`")
    );
}

#[test]
fn large_vocabulary_uses_uint32_ids() {
    let text = changed("bpe", |value| {
        value["model"]["vocab"]["last"] = 65_536.into();
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, text).unwrap();
    let tokenizer = Tokenizer::open(&path, &TokenOptions::default()).unwrap();
    assert_eq!(tokenizer.ids(), 65_537);
    let tokenizer = ColumnTokenizer::new(tokenizer, "text".to_owned(), EmptyTokens::Keep, 1);
    let column: ArrayRef = Arc::new(StringArray::from(vec!["def"]));
    let tokens = tokenizer.encode(&column, |row| row.to_string()).unwrap();
    let list = tokens.as_list::<i64>();
    assert_eq!(list.value_type(), DataType::UInt32);
    assert_eq!(tokens.data_type(), &tokenizer.data_type());
}
