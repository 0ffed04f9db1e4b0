//! Windows of arrays: which there are, and in which order.

use std::collections::BTreeMap;

use shardmill_core::{Error, escape};

use crate::{SourceProblem, ZarrOptions};

/// A dimension that windows move along.
#[derive(Clone, Debug)]
pub(super) struct WindowAxis {
    pub name: String,
    /// The elements of a window.
    pub size: u64,
    stride: u64,
    /// The number of windows along it.
    count: u64,
}

/// The windows of all variables. The last of the dimensions moves first.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    pub axes: Vec<WindowAxis>,
    /// Their number.
    pub count: u64,
}

impl Windows {
    /// Checks the options against the lengths of the dimensions.
    pub(super) fn new(options: &ZarrOptions, lengths: &BTreeMap<&str, u64>) -> Result<Self, Error> {
        let unknown = |option, name: &str| {
            let known: Vec<_> = lengths.keys().map(|name| escape(name)).collect();
            SourceProblem::ZarrWindow
                .at(
                    option,
                    format!("no variable has the dimension `{}`", escape(name)),
                )
                .with_hint(format!("the dimensions are {}", known.join(", ")))
        };
        let stride = |name: &str| options.stride.iter().find(|(own, _)| own == name);
        if let Some((name, _)) = options
            .stride
            .iter()
            .find(|(name, _)| !options.window.iter().any(|(own, _)| own == name))
        {
            let reason = format!("`{}` is no dimension of --window", escape(name));
            return Err(SourceProblem::ZarrWindow.at("--stride", reason));
        }
        let mut axes: Vec<WindowAxis> = Vec::new();
        let mut count = Some(1_u64);
        for (name, size) in &options.window {
            let length = *lengths
                .get(name.as_str())
                .ok_or_else(|| unknown("--window", name))?;
            if axes.iter().any(|axis| axis.name == *name) {
                let reason = format!("has the dimension `{}` twice", escape(name));
                return Err(SourceProblem::ZarrWindow.at("--window", reason));
            }
            if *size > length || *size == 0 {
                let reason = format!(
                    "a window of {size} does not fit the dimension `{}` of {length}",
                    escape(name)
                );
                return Err(SourceProblem::ZarrWindow.at("--window", reason));
            }
            let stride = stride(name).map_or(*size, |(_, stride)| *stride);
            if stride == 0 {
                return Err(
                    SourceProblem::ZarrWindow.at("--stride", "a stride of 0 repeats a window")
                );
            }
            let own = (length - size) / stride + 1;
            count = count.and_then(|count| count.checked_mul(own));
            axes.push(WindowAxis {
                name: name.clone(),
                size: *size,
                stride,
                count: own,
            });
        }
        let count = count.ok_or_else(|| {
            SourceProblem::ZarrWindow.at("--window", "there are too many windows")
        })?;
        Ok(Self { axes, count })
    }

    /// Returns where a window starts along each axis.
    pub(super) fn starts(&self, mut number: u64) -> Vec<u64> {
        let mut starts: Vec<u64> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let at = number % axis.count;
                number /= axis.count;
                at * axis.stride
            })
            .collect();
        starts.reverse();
        starts
    }
}
