//! Draws the quality of an order as SVG: the distances of neighbours, and what larger shuffle blocks would give.

use super::picture::{GAP, LEFT, PANEL, RIGHT, Svg, TOP, WIDTH, begin, fraction, to_f64};
use super::quality::{QualityReport, tenths, window_name};
use crate::output::{bytes, count};

/// One column of a panel: a bar, and the value of a full shuffle.
struct Bar {
    label: String,
    value: f64,
    full_shuffle: f64,
    /// A second line below the label.
    note: String,
}

struct Panel {
    title: String,
    axis: &'static str,
    bars: Vec<Bar>,
}

/// Draws both panels.
pub fn draw(title: &str, report: &QualityReport) -> String {
    let panels = [distances(report), blocks(report)];
    let height = TOP + to_f64(panels.len()) * (PANEL + GAP + 16.0) + 24.0;
    let styles = (
        ".bar{fill:#0b62a4}.full{fill:none;stroke:#b3470b;stroke-width:2.5}\n",
        ".bar{fill:#6cb6ff}.full{stroke:#f0a060}",
    );
    let mut svg = Svg(begin(title, &description(report), height, styles));
    for (index, panel) in panels.iter().enumerate() {
        draw_panel(&mut svg, panel, TOP + to_f64(index) * (PANEL + GAP + 16.0));
    }
    let y = height - 14.0;
    svg.path("full", &format!("M{LEFT} {:.1}h36", y - 4.0));
    svg.text("text", (LEFT + 44.0, y), "start", "a full shuffle");
    svg.0 + "</svg>\n"
}

/// Describes the drawing.
fn description(report: &QualityReport) -> String {
    let neighbours = &report.quality.neighbours;
    let mut description = format!(
        "Two charts of bars. The first has the distances in storage of samples that a rank receives one after the other: \
         their median is {}, and that of a full shuffle is {}.",
        count(neighbours.median),
        count(neighbours.full_shuffle_median)
    );
    for window in &report.quality.windows {
        description += &format!(
            " The samples of {} come from {} shards on average, and from {} in a full shuffle.",
            window_name(window.steps, window.samples),
            tenths(window.shards),
            tenths(window.full_shuffle_shards)
        );
    }
    description += " The second has the shards in a step for several shuffle blocks, and the cache that they need.";
    description
}

fn distances(report: &QualityReport) -> Panel {
    let bins = &report.quality.neighbours.distances;
    let bars = bins.iter().map(|bin| Bar {
        label: count(bin.from),
        value: bin.share * 100.0,
        full_shuffle: bin.full_shuffle * 100.0,
        note: String::new(),
    });
    Panel {
        title: "Distance of neighbours (% of pairs, by powers of two)".to_owned(),
        axis: "samples in storage",
        bars: bars.collect(),
    }
}

fn blocks(report: &QualityReport) -> Panel {
    let bars = report.blocks.iter().map(|block| Bar {
        label: count(block.choice.block),
        value: block.choice.shards,
        full_shuffle: block.choice.full_shuffle_shards,
        note: bytes(block.cache_bytes),
    });
    Panel {
        title: "Shards in a step, for shuffle blocks that need a cache of this size".to_owned(),
        axis: "samples of a block",
        bars: bars.collect(),
    }
}

fn draw_panel(svg: &mut Svg, panel: &Panel, top: f64) {
    let (bottom, right) = (top + PANEL, WIDTH - RIGHT);
    let values = panel.bars.iter();
    let max = values
        .map(|bar| bar.value.max(bar.full_shuffle))
        .fold(0.0, f64::max);
    svg.panel(&panel.title, top, max);
    let step = (right - LEFT) / to_f64(panel.bars.len().max(1));
    // Labels that would overlap are left out.
    let every = panel.bars.len().div_ceil(12).max(1);
    for (index, bar) in panel.bars.iter().enumerate() {
        let (left, width) = (LEFT + step * to_f64(index) + step * 0.1, step * 0.8);
        let height = PANEL * fraction(bar.value, max);
        svg.path(
            "bar",
            &format!("M{left:.1} {bottom}v-{height:.1}h{width:.1}V{bottom}z"),
        );
        let y = bottom - PANEL * fraction(bar.full_shuffle, max);
        svg.path(
            "full",
            &format!("M{:.1} {y:.1}h{step:.1}", left - step * 0.1),
        );
        if index % every == 0 {
            let middle = left + width / 2.0;
            svg.text("soft", (middle, bottom + 17.0), "middle", &bar.label);
            svg.text("soft", (middle, bottom + 33.0), "middle", &bar.note);
        }
    }
    svg.path("axis", &format!("M{LEFT} {top}V{bottom}H{right}"));
    svg.text("soft", (right, bottom + 49.0), "end", panel.axis);
}
