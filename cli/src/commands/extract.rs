//! Writes fields as files.

use std::collections::HashMap;

use shardmill_core::{Error, ErrorKind, check_relative_path, escape};
use shardmill_mds::{ImageKind, NdArray, Value};
use shardmill_storage::{Dir, PublishMode};
use shardmill_webdataset::{WebdatasetError, npy_header};

use crate::error::Stop;
use crate::output::number_text;

/// A directory that receives files. Files are written only inside it, and existing files are not overwritten.
pub struct Extractor {
    dir: Dir,
    files: u64,
    /// The dataset as the user named it.
    dataset: String,
    /// The keys used as file names, with their samples.
    keys: HashMap<String, u64>,
}

/// What the files of a sample are named after: its key, or else its number.
pub struct SampleName<'a> {
    pub number: u64,
    pub key: Option<&'a str>,
}

impl Extractor {
    pub fn new(dir: Dir, dataset: &str) -> Self {
        Self {
            dir,
            files: 0,
            dataset: dataset.to_owned(),
            keys: HashMap::new(),
        }
    }

    /// Begins the files of a sample, and checks that its key is new.
    pub fn begin(&mut self, sample: &SampleName<'_>) -> Result<(), Error> {
        let Some(key) = sample.key else {
            return Ok(());
        };
        let Some(first) = self.keys.insert(key.to_owned(), sample.number) else {
            return Ok(());
        };
        let message = format!(
            "the key `{}` is that of samples {first} and {}, and files cannot be named after both",
            escape(key),
            sample.number
        );
        Err(Error::new(ErrorKind::Corrupt, "key-twice", message)
            .about(&self.dataset)
            .with_hint("omit --by-key to name files by the numbers of the samples"))
    }

    pub const fn files(&self) -> u64 {
        self.files
    }

    /// Writes one value. A list of images becomes several files, every other value one.
    pub fn write(
        &mut self,
        sample: &SampleName<'_>,
        column: &str,
        value: &Value<'_>,
    ) -> Result<(), Stop> {
        if let Value::Images(images) = value {
            for (index, image) in images.iter().enumerate() {
                let column = format!("{column}.{index:05}");
                self.write_bytes(sample, &column, image_extension(image.kind), image.bytes)?;
            }
            return Ok(());
        }
        let mut buffer = Vec::new();
        let (extension, bytes) = contents(column, value, &mut buffer)?;
        self.write_bytes(sample, column, extension, bytes)
    }

    /// Writes the file of one column.
    pub fn write_bytes(
        &mut self,
        sample: &SampleName<'_>,
        column: &str,
        extension: &str,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        self.publish(&file_name(sample, column, extension)?, bytes)
    }

    /// Writes a field of a tar shard. The name of the field is the extension.
    pub fn write_field(
        &mut self,
        sample: &SampleName<'_>,
        field: &str,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        if sample.key.is_some() {
            return self.write_bytes(sample, field, field, bytes);
        }
        let name = format!("{0}/{0}.{field}", sample.number);
        check_name(sample, &name)?;
        self.publish(&name, bytes)
    }

    fn publish(&mut self, name: &str, bytes: &[u8]) -> Result<(), Stop> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.dir.make_dir(folder)?;
        }
        self.dir
            .publish_bytes(None, name, bytes, PublishMode::CreateNew)?;
        self.files += 1;
        Ok(())
    }
}

/// Returns a file name: `7/image.jpg` by number. By key, files are named as in a file tree: `a/001.jpg` if the column
/// has the name of the extension, or if the extension is unknown. Otherwise the name is `a/001.image.jpg`.
fn file_name(sample: &SampleName<'_>, column: &str, extension: &str) -> Result<String, Error> {
    let name = match sample.key {
        None => format!("{}/{column}.{extension}", sample.number),
        Some(key) => {
            check_name(sample, key)?;
            match column == extension || extension == "bin" {
                true => format!("{key}.{column}"),
                false => format!("{key}.{column}.{extension}"),
            }
        }
    };
    check_name(sample, &name)?;
    Ok(name)
}

/// Checks that a file of a sample can have this name.
fn check_name(sample: &SampleName<'_>, name: &str) -> Result<(), Error> {
    check_relative_path(name).map_err(|source| {
        let message = format!(
            "the file cannot be named after `{}`: {source}",
            escape(name)
        );
        Error::new(ErrorKind::Corrupt, source.id(), &message)
            .about(format!("sample {}", sample.number))
            .with_hint("omit --by-key to name the files by sample number")
    })
}

const fn image_extension(kind: ImageKind) -> &'static str {
    match kind {
        ImageKind::Pil => "pil",
        ImageKind::Jpeg => "jpg",
        ImageKind::Png => "png",
    }
}

/// Returns the extension and the contents of a value's file.
fn contents<'a>(
    column: &str,
    value: &Value<'a>,
    buffer: &'a mut Vec<u8>,
) -> Result<(&'static str, &'a [u8]), WebdatasetError> {
    Ok(match value {
        Value::Bytes(bytes) => ("bin", bytes),
        Value::Str(text) => ("txt", text.as_bytes()),
        Value::Json(text) => ("json", text.as_bytes()),
        Value::Image(image) => (image_extension(image.kind), image.bytes),
        Value::Pickle(bytes) => ("pkl", bytes),
        Value::NdArray(array) => {
            npy(column, array, buffer)?;
            ("npy", buffer)
        }
        _ => {
            *buffer = number_text(value).into_bytes();
            ("txt", buffer)
        }
    })
}

/// Writes an array as a NumPy file.
fn npy(column: &str, array: &NdArray<'_>, out: &mut Vec<u8>) -> Result<(), WebdatasetError> {
    npy_header(column, array.dtype.numpy(), &array.shape, out)?;
    out.extend_from_slice(array.data);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_by_key_match_the_source_tree() {
        let key = SampleName {
            number: 3,
            key: Some("a/001"),
        };
        for (column, extension, name) in [
            ("jpg", "jpg", "a/001.jpg"),
            ("jpg", "bin", "a/001.jpg"),
            ("json", "json", "a/001.json"),
            ("cls", "txt", "a/001.cls.txt"),
            ("image", "jpg", "a/001.image.jpg"),
        ] {
            assert_eq!(file_name(&key, column, extension).unwrap(), name);
        }
        assert_eq!(
            file_name(&numbered(7), "image", "jpg").unwrap(),
            "7/image.jpg"
        );
    }

    fn numbered(number: u64) -> SampleName<'static> {
        SampleName { number, key: None }
    }

    #[test]
    fn file_names_outside_the_directory_are_errors() {
        for key in ["../a", "/etc/passwd", "a/../../b", "a\0b", "C:/x", ""] {
            let sample = SampleName {
                key: Some(key),
                ..numbered(0)
            };
            assert!(file_name(&sample, "../x", "txt").is_err(), "{key}");
        }
        assert!(file_name(&numbered(0), "../../x", "txt").is_err());
        assert!(file_name(&numbered(0), "/x", "txt").is_err());
    }

    #[test]
    fn arrays_are_written_as_npy_files() {
        let mut out = Vec::new();
        npy(
            "array",
            &NdArray {
                dtype: shardmill_mds::DType::I16,
                shape: vec![2],
                data: &[1, 0, 2, 0],
            },
            &mut out,
        )
        .unwrap();
        assert_eq!(out.len(), 128 + 4);
        assert_eq!(&out[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert!(
            out[10..].starts_with(b"{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }  ")
        );
        assert_eq!(&out[127..], b"\n\x01\x00\x02\x00");
    }
}
