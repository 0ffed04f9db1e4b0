//! Tests datasets on disk, valid and damaged in many ways.

// `cfg(test)` says to the lints what these are; the files are nothing else.
#[cfg(test)]
mod access;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod indexes;
#[cfg(test)]
mod support;
#[cfg(test)]
mod verify;
