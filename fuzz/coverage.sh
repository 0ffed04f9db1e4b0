#!/usr/bin/env bash
# The compiler for `make fuzz`: as RUSTC_WORKSPACE_WRAPPER it instruments shardmill's own crates for libFuzzer, on a
# stable toolchain, and no dependency.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1
