#!/usr/bin/env python3
"""Draws the chart of the README from the tables of docs/reference/benchmarks.md.

    scripts/draw_benchmarks.py            # writes docs/assets/benchmarks.svg
    scripts/draw_benchmarks.py --check    # fails if the file differs from what the tables say
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "docs/reference/benchmarks.md"
CHART = ROOT / "docs/assets/benchmarks.svg"

WIDTH, LABEL, VALUE, BAR, GAP, TITLE = 760, 160, 130, 18, 6, 30
STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-weight: 600; }
    .ours { fill: #0a7ea4; }
    .peer { fill: #a8b1bb; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .ours { fill: #39a9d0; }
      .peer { fill: #6b7683; }
    }
"""


@dataclass
class Bar:
    name: str
    length: float
    shown: str


def row(text, heading, first):
    """The cells of the row of a section that begins with these cells."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[: len(first)] == first:
            return cells
    raise SystemExit(f"{TABLES}: no row {first} under {heading}")


def number(cell):
    return float(re.match(r"[\d.,]+", cell)[0].replace(",", ""))


def convert(text):
    cells = row(text, "Conversion", ["tokens, zstd:3, sha256"])
    seconds, mosaic, neprr = number(cells[2]), number(cells[4]), number(cells[5])
    return "Convert 164 MB of Parquet to MDS, zstd and SHA-256: seconds, less is better", [
        Bar("shardmill", seconds, f"{seconds:.2f}"),
        Bar("neprr-streaming", seconds * neprr, f"{neprr} times as long"),
        Bar("MosaicML Streaming", seconds * mosaic, f"{mosaic} times as long"),
    ]


def read(text, title, first):
    cells = row(text, "Reading in Python", first)
    bars = []
    for name, cell in zip(("shardmill", "neprr-streaming", "MosaicML Streaming"), cells[3:6]):
        shown = cell.rsplit(", ", 1)[0]
        bars.append(Bar(name, number(shown), shown))
    return title, bars


def tars(text):
    ours = number(row(text, "WebDataset", ["`StreamingDataset`, with `index.json`"])[1])
    peer = number(row(text, "WebDataset", ["webdataset 1.0.2"])[1])
    return "Read samples of tar shards, one process: microseconds a sample, less is better", [
        Bar("shardmill", ours, f"{ours}"),
        Bar("webdataset", peer, f"{peer}"),
    ]


def draw(groups):
    lines = []
    top = 4
    for title, bars in groups:
        lines.append(f'  <text class="title" x="0" y="{top + 18}">{title}</text>')
        top += TITLE
        longest = max(bar.length for bar in bars)
        for bar in bars:
            width = max(2, round((WIDTH - LABEL - VALUE) * bar.length / longest))
            kind = "ours" if bar.name == "shardmill" else "peer"
            lines.append(f'  <text x="{LABEL - 10}" y="{top + 14}" text-anchor="end">{bar.name}</text>')
            lines.append(f'  <rect class="{kind}" x="{LABEL}" y="{top}" width="{width}" height="{BAR}" rx="2"/>')
            lines.append(f'  <text x="{LABEL + width + 8}" y="{top + 14}">{bar.shown}</text>')
            top += BAR + GAP
        top += 12
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" aria-label="Benchmarks">'
    return "\n".join([opening, f"  <style>{STYLE}  </style>", *lines, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = TABLES.read_text(encoding="utf-8")
    chart = draw(
        [
            convert(text),
            read(
                text,
                "Read text as torch batches, 2 workers: samples a second, more is better",
                ["text, torch's collation", "3", "2, quiet"],
            ),
            read(
                text,
                "Read JPEG bytes as dicts, 2 workers: samples a second, more is better",
                ["JPEG bytes, dicts", "2", "2, quiet"],
            ),
            tars(text),
        ]
    )
    if arguments.check:
        if CHART.read_text(encoding="utf-8") != chart:
            sys.exit(f"{CHART} differs from {TABLES}: run scripts/draw_benchmarks.py")
        return
    CHART.parent.mkdir(exist_ok=True)
    CHART.write_text(chart, encoding="utf-8")


if __name__ == "__main__":
    main()
