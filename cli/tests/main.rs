//! Tests the command line: exit status, standard output and standard error.

#[cfg(test)]
mod add_column;
#[cfg(test)]
mod advice;
#[cfg(test)]
mod again;
#[cfg(test)]
mod cat;
#[cfg(test)]
mod columns;
#[cfg(test)]
mod common;
#[cfg(test)]
mod config_file;
#[cfg(test)]
mod content;
#[cfg(test)]
mod convert;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod deleted;
#[cfg(test)]
mod delta;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod filters;
#[cfg(test)]
mod grammar;
#[cfg(test)]
mod head;
#[cfg(test)]
mod help;
#[cfg(test)]
mod help_more;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod increments;
#[cfg(test)]
mod index;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod json_fields;
#[cfg(test)]
mod lengths;
#[cfg(test)]
mod order;
#[cfg(test)]
mod parquet_files;
#[cfg(test)]
mod patterns;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod shuffle;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod standard_input;
#[cfg(test)]
mod stats;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod tars;
#[cfg(test)]
mod tokenize;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod view;
#[cfg(test)]
mod views;
#[cfg(test)]
mod which;
