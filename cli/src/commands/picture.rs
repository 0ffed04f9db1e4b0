//! Draws a plan as SVG: resident bytes, fetch rate and waiting time over time, with one curve for each node.
//!
//! The file is self-contained. It follows the viewer's light or dark theme, distinguishes curves by dashes as well as
//! by colour, and describes its contents in text.

use shardmill_core::escape;
use shardmill_core::number::float;
use shardmill_reader::{Forecast, Point};

use crate::output::{bytes, count, many, percent, seconds};

/// The styles of the curves: colours for light and dark themes, and dashes.
const LINES: [(&str, &str, &str); 8] = [
    ("#0b62a4", "#6cb6ff", "none"),
    ("#b3470b", "#f0a060", "8 3"),
    ("#1a7a3c", "#63d08c", "2 3"),
    ("#8a2f8f", "#df92e3", "10 3 2 3"),
    ("#7a6200", "#e0c440", "5 5"),
    ("#a8213a", "#ff8896", "14 4"),
    ("#00707a", "#54cfdb", "1 4"),
    ("#555555", "#bbbbbb", "6 2 1 2 1 2"),
];

pub const WIDTH: f64 = 960.0;
pub const LEFT: f64 = 96.0;
pub const RIGHT: f64 = 24.0;
pub const TOP: f64 = 64.0;
pub const PANEL: f64 = 150.0;
pub const GAP: f64 = 56.0;

/// One panel of the drawing.
struct Panel {
    title: String,
    /// Returns the value of a point in the unit of the panel.
    value: Box<dyn Fn(&Point) -> f64>,
    max: f64,
    /// A horizontal line: its value and its label.
    mark: Option<(f64, String)>,
}

/// Draws the forecast of the Belady caches of the nodes.
pub fn draw(title: &str, forecast: &Forecast, cache_limit: Option<u64>) -> String {
    let nodes: Vec<(u64, &[Point])> = forecast
        .nodes
        .iter()
        .take(LINES.len())
        .map(|node| (node.node, node.belady.timeline.as_slice()))
        .collect();
    let end = forecast
        .nodes
        .iter()
        .map(|node| node.belady.seconds)
        .fold(0.0, f64::max);
    let panels = panels(&nodes, cache_limit);
    let legend_rows = nodes.len().div_ceil(4);
    let bottom = TOP + to_f64(panels.len()) * (PANEL + GAP);
    let height = bottom + 24.0 + to_f64(legend_rows) * 22.0;
    let mut svg = Svg(head(title, forecast, height));
    for (index, panel) in panels.iter().enumerate() {
        let top = TOP + to_f64(index) * (PANEL + GAP);
        axes(&mut svg, panel, top, end);
        for (line, (_, points)) in nodes.iter().enumerate() {
            curve(&mut svg, panel, top, end, line, points);
        }
    }
    legend(&mut svg, &nodes, forecast, bottom);
    svg.0 + "</svg>\n"
}

/// The text of the drawing so far.
pub struct Svg(pub String);

impl Svg {
    /// Writes text whose `anchor` (`start`, `middle` or `end`) is at a position.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = xml(text);
        self.0 += &format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        );
    }

    /// Draws a line with the commands of a path.
    pub fn path(&mut self, class: &str, commands: &str) {
        self.0 += &format!("<path class=\"{class}\" d=\"{commands}\"/>\n");
    }

    /// Draws the title of a panel, and its grid up to the value `most`.
    pub fn panel(&mut self, title: &str, top: f64, max: f64) {
        self.text("text", (LEFT, top - 8.0), "start", title);
        for tick in ticks(max, 4) {
            let y = top + PANEL - PANEL * fraction(tick, max);
            self.path("grid", &format!("M{LEFT} {y:.1}H{}", WIDTH - RIGHT));
            self.text("soft", (LEFT - 8.0, y + 4.0), "end", &number(tick));
        }
    }
}

fn panels(nodes: &[(u64, &[Point])], cache_limit: Option<u64>) -> Vec<Panel> {
    let max = |value: fn(&Point) -> f64| {
        let points = nodes.iter().flat_map(|(_, points)| points.iter());
        points.map(value).fold(0.0, f64::max)
    };
    let resident = max(|point| float(point.resident_bytes));
    let limit = cache_limit.map(float);
    // A limit far above the used size would flatten the curves.
    let limit = limit.filter(|limit| *limit <= 2.0 * resident);
    let (unit, unit_name) = binary_unit(limit.unwrap_or(0.0).max(resident));
    let (rate, rate_name) = binary_unit(max(|point| point.fetched_bytes_per_second));
    vec![
        Panel {
            title: format!("Resident bytes ({unit_name})"),
            value: Box::new(move |point| float(point.resident_bytes) / unit),
            max: limit.unwrap_or(0.0).max(resident) / unit,
            mark: limit.map(|limit| (limit / unit, "cache limit".to_owned())),
        },
        Panel {
            title: format!("Fetched ({rate_name}/s)"),
            value: Box::new(move |point| point.fetched_bytes_per_second / rate),
            max: max(|point| point.fetched_bytes_per_second) / rate,
            mark: None,
        },
        Panel {
            title: "Waiting for data (% of the time)".to_owned(),
            value: Box::new(|point| point.waiting * 100.0),
            max: 100.0,
            mark: None,
        },
    ]
}

/// Returns the beginning of the drawing: its size, its description, its styles and its title.
fn head(title: &str, forecast: &Forecast, height: f64) -> String {
    let mut description = String::from(
        "Three charts over the time of the run, with a line for each node: bytes in the cache, bytes fetched a second, and \
         the part of the time spent waiting for data.",
    );
    for node in &forecast.nodes {
        let cache = &node.belady;
        let (hits, uses) = cache.epochs.iter().fold((0, 0), |(hits, uses), epoch| {
            (hits + epoch.hits, uses + epoch.uses)
        });
        description += &format!(
            " Node {}: {} fetched, {} hits, at most {} resident, {} waited in {}.",
            count(node.node),
            bytes(cache.fetched_bytes()),
            percent(hits, uses),
            bytes(cache.most_resident_bytes),
            seconds(cache.wait_seconds()),
            seconds(cache.seconds)
        );
    }
    let (mut light_lines, mut dark_lines) = (String::new(), String::new());
    for (number, (light, dark, dashes)) in LINES.iter().enumerate() {
        light_lines += &format!(".n{number}{{stroke:{light};stroke-dasharray:{dashes}}}\n");
        dark_lines += &format!(".n{number}{{stroke:{dark}}}");
    }
    begin(title, &description, height, (&light_lines, &dark_lines))
}

/// Returns the beginning of a drawing with this title, a description in words, and styles for light and dark themes.
pub fn begin(title: &str, description: &str, height: f64, (light, dark): (&str, &str)) -> String {
    let (title, description) = (xml(title), xml(description));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title desc\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title id=\"title\">{title}</title>\n\
         <desc id=\"desc\">{description}</desc>\n\
         <style>\n\
         .back{{fill:#fff}}.text{{fill:#1b1f24}}.soft{{fill:#57606a}}.axis{{fill:none;stroke:#57606a}}.grid{{stroke:#d8dee4}}\n\
         .mark{{stroke:#1b1f24;stroke-dasharray:3 3}}.line{{fill:none;stroke-width:1.8;stroke-linejoin:round}}\n\
         {light}\
         @media (prefers-color-scheme:dark){{.back{{fill:#0d1117}}.text{{fill:#e6edf3}}.soft{{fill:#9ea7b1}}\
         .axis{{stroke:#9ea7b1}}.grid{{stroke:#2b3138}}.mark{{stroke:#e6edf3}}{dark}}}\n\
         </style>\n\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"text\" x=\"{LEFT}\" y=\"28\" font-size=\"16\" font-weight=\"600\">{title}</text>\n"
    )
}

fn axes(svg: &mut Svg, panel: &Panel, top: f64, end: f64) {
    let (bottom, right) = (top + PANEL, WIDTH - RIGHT);
    svg.panel(&panel.title, top, panel.max);
    let (unit, name) = time_unit(end);
    for tick in ticks(end / unit, 8) {
        let x = LEFT + (right - LEFT) * fraction(tick, end / unit);
        svg.path("axis", &format!("M{x:.1} {bottom}v5"));
        svg.text("soft", (x, bottom + 19.0), "middle", &number(tick));
    }
    svg.text(
        "soft",
        (right, bottom + 34.0),
        "end",
        &format!("time ({name})"),
    );
    svg.path("axis", &format!("M{LEFT} {top}V{bottom}H{right}"));
    if let Some((value, what)) = &panel.mark {
        let y = bottom - PANEL * fraction(*value, panel.max);
        svg.path("mark", &format!("M{LEFT} {y:.1}H{right}"));
        svg.text("text", (right, y - 4.0), "end", what);
    }
}

/// Draws a step curve: each value holds until the next point.
fn curve(svg: &mut Svg, panel: &Panel, top: f64, end: f64, line: usize, points: &[Point]) {
    let (bottom, right) = (top + PANEL, WIDTH - RIGHT);
    let mut commands = String::new();
    for (index, point) in points.iter().enumerate() {
        let x = LEFT + (right - LEFT) * fraction(point.seconds, end);
        let y = bottom - PANEL * fraction((panel.value)(point), panel.max);
        commands += &match index {
            0 => format!("M{x:.1} {y:.1}"),
            _ => format!("H{x:.1}V{y:.1}"),
        };
    }
    if !points.is_empty() {
        commands += &format!("H{right}");
    }
    svg.path(&format!("line n{line}"), &commands);
}

fn legend(svg: &mut Svg, nodes: &[(u64, &[Point])], forecast: &Forecast, top: f64) {
    for (line, (node, _)) in nodes.iter().enumerate() {
        let x = LEFT + to_f64(line % 4) * 200.0;
        let y = top + to_f64(line / 4) * 22.0;
        svg.path(&format!("line n{line}"), &format!("M{x} {y}h36"));
        let name = format!("node {}", count(*node));
        svg.text("text", (x + 44.0, y + 4.0), "start", &name);
    }
    let left = forecast.nodes_in_all.saturating_sub(nodes.len() as u64);
    if left > 0 {
        let text = format!("{} more not shown", many(left, "node"));
        svg.text("soft", (WIDTH - RIGHT, 28.0), "end", &text);
    }
}

/// Returns the ticks of an axis from 0 to `most`: about `wanted` of them, in steps of 1, 2 or 5.
fn ticks(max: f64, wanted: u32) -> Vec<f64> {
    if !(max.is_finite() && max > 0.0) {
        return vec![0.0];
    }
    let rough = max / f64::from(wanted);
    let power = 10.0_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    (0..=4 * wanted)
        .map(|turn| f64::from(turn) * step)
        .take_while(|tick| *tick <= max * 1.001)
        .collect()
}

/// Formats a value of an axis without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0" } else { text }.to_owned()
}

/// Returns the relative position of a value between 0 and `most`, from 0 to 1.
pub fn fraction(value: f64, max: f64) -> f64 {
    if max > 0.0 {
        (value / max).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn binary_unit(max: f64) -> (f64, &'static str) {
    let units = [
        (1024.0_f64.powi(4), "TiB"),
        (1024.0_f64.powi(3), "GiB"),
        (1024.0_f64.powi(2), "MiB"),
        (1024.0, "KiB"),
    ];
    unit(max, &units, "B")
}

fn time_unit(max: f64) -> (f64, &'static str) {
    unit(
        max / 3.0,
        &[(86_400.0, "days"), (3600.0, "h"), (60.0, "min")],
        "s",
    )
}

fn unit(max: f64, units: &[(f64, &'static str)], smallest: &'static str) -> (f64, &'static str) {
    let found = units.iter().find(|(unit, _)| max >= *unit).copied();
    found.unwrap_or((1.0, smallest))
}

/// Escapes text for XML, including control characters.
fn xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in escape(text).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML 1.0 does not allow these characters.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            _ => safe.push(character),
        }
    }
    safe
}

#[expect(clippy::cast_precision_loss, reason = "a number of lines or panels")]
pub const fn to_f64(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_round_numbers() {
        for (max, wanted, expected) in [
            (100.0, 4, vec![0.0, 50.0, 100.0]),
            (7.3, 4, vec![0.0, 2.0, 4.0, 6.0]),
            (1.0, 4, vec![0.0, 0.5, 1.0]),
            (0.0, 4, vec![0.0]),
            (f64::NAN, 4, vec![0.0]),
        ] {
            assert_eq!(ticks(max, wanted), expected, "{max}");
        }
        assert_eq!(number(2.50), "2.5");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(120.0), "120");
    }

    #[test]
    fn xml_markup_in_names_is_escaped() {
        assert_eq!(
            xml("a<b>&\"c\"\u{1b}"),
            "a&lt;b&gt;&amp;&quot;c&quot;\\u{1b}"
        );
    }

    #[test]
    fn unit_is_chosen_by_largest_value() {
        assert_eq!(binary_unit(3.0 * 1024.0 * 1024.0).1, "MiB");
        assert_eq!(binary_unit(12.0), (1.0, "B"));
        assert_eq!(time_unit(60.0).1, "s");
        assert_eq!(time_unit(600.0).1, "min");
    }
}
