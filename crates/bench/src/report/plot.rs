//! Plots as SVG: bars in groups, and lines over an axis in steps of a factor of two.

use super::markup::escape;
use super::{BarSeries, Cell, LineSeries, Plot};
use std::fmt::Write;

const WIDTH: f64 = 620.0;
const COLOURS: usize = 6;
const BAR: f64 = 16.0;
const BAR_GAP: f64 = 4.0;
const GROUP_GAP: f64 = 16.0;
const LEGEND_LINE: f64 = 18.0;
const LINES_HEIGHT: f64 = 240.0;

/// A plot as a figure of a page.
pub(super) fn svg(plot: &Plot) -> String {
    let (title, height, body) = match plot {
        Plot::Bars { title, unit, groups, series } => {
            let (height, body) = bars(unit, groups, series);
            (title, height, body)
        }
        Plot::Lines { title, x, y, series } => {
            let (height, body) = lines(x, y, series);
            (title, height, body)
        }
    };
    format!(
        "<figure>\n<figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"{title}\">\n{body}</svg>\n</figure>\n",
        title = escape(title)
    )
}

/// A number with few digits.
fn short(number: f64) -> String {
    if number.abs() >= 1e6 {
        return format!("{} M", Cell::number(number / 1e6, 1).text);
    }
    let decimals = match number.abs() {
        size if size >= 100.0 || size.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    Cell::number(number, decimals).text
}

fn legend(names: &[&str], top: f64) -> String {
    let mut out = String::new();
    for (index, name) in names.iter().enumerate() {
        let y = top + LEGEND_LINE * index as f64;
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "<rect class=\"c{}\" x=\"0\" y=\"{:.1}\" width=\"11\" height=\"11\" rx=\"2\"/>\
             <text x=\"18\" y=\"{:.1}\">{}</text>",
            index % COLOURS,
            y,
            y + 10.0,
            escape(name)
        );
    }
    out
}

fn bars(unit: &str, groups: &[String], series: &[BarSeries]) -> (f64, String) {
    const LEFT: f64 = 130.0;
    const RIGHT: f64 = 90.0;
    let values = series.iter().flat_map(|series| series.values.iter().flatten());
    let most = values.copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut out = String::new();
    let mut y = 4.0;
    for (group, name) in groups.iter().enumerate() {
        let shown: Vec<(usize, f64)> = series
            .iter()
            .enumerate()
            .filter_map(|(index, series)| Some((index, (*series.values.get(group)?)?)))
            .collect();
        let height = shown.len() as f64 * (BAR + BAR_GAP);
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            y + height / 2.0 + 3.0,
            escape(name)
        );
        for (index, value) in shown {
            let width = (WIDTH - LEFT - RIGHT) * value / most;
            let _ = writeln!(
                out,
                "<rect class=\"c{}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\">{} {}</text>",
                index % COLOURS,
                LEFT + width + 6.0,
                y + BAR - 3.5,
                short(value),
                escape(unit)
            );
            y += BAR + BAR_GAP;
        }
        y += GROUP_GAP;
    }
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    out.push_str(&legend(&names, y));
    (y + LEGEND_LINE * names.len() as f64, out)
}

fn lines(x_label: &str, y_label: &str, series: &[LineSeries]) -> (f64, String) {
    const LEFT: f64 = 64.0;
    const RIGHT: f64 = 16.0;
    const TOP: f64 = 22.0;
    const BOTTOM: f64 = 40.0;
    let points = || series.iter().flat_map(|series| series.points.iter().copied());
    let (mut xs, most) = (points().map(|(x, _)| x).collect::<Vec<_>>(), points().map(|(_, y)| y).fold(0.0, f64::max));
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let (Some(&first), Some(&last)) = (xs.first(), xs.last()) else { return (0.0, String::new()) };
    let scale = Scale::new(points().map(|(_, y)| y).filter(|&y| y > 0.0).fold(most, f64::min), most);
    let span = (last.log2() - first.log2()).max(1.0);
    let at_x = |x: f64| LEFT + (WIDTH - LEFT - RIGHT) * (x.log2() - first.log2()) / span;
    let at_y = |y: f64| TOP + (LINES_HEIGHT - TOP - BOTTOM) * (1.0 - scale.part(y));
    let mut out = format!("<text class=\"soft\" x=\"{LEFT}\" y=\"12\">{}</text>\n", escape(y_label));
    for tick in scale.ticks() {
        let y = at_y(tick);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"soft\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            short(tick)
        );
    }
    for &x in &xs {
        let label = if x >= 1024.0 && x % 1024.0 == 0.0 { format!("{} Ki", x / 1024.0) } else { short(x) };
        let place = at_x(x);
        let y = LINES_HEIGHT - BOTTOM + 17.0;
        let _ =
            writeln!(out, "<text class=\"soft\" x=\"{place:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>");
    }
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        WIDTH - RIGHT,
        LINES_HEIGHT - BOTTOM + 34.0,
        escape(x_label)
    );
    for (index, series) in series.iter().enumerate() {
        let colour = index % COLOURS;
        let joined: Vec<String> =
            series.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", at_x(x), at_y(y))).collect();
        let _ = writeln!(out, "<polyline class=\"c{colour}\" style=\"fill: none\" points=\"{}\"/>", joined.join(" "));
        for &(x, y) in &series.points {
            let name = format!("{}: {} at {}", series.name, short(y), short(x));
            let _ = writeln!(
                out,
                "<circle class=\"c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
                at_x(x),
                at_y(y),
                escape(&name)
            );
        }
    }
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    out.push_str(&legend(&names, LINES_HEIGHT + 4.0));
    (LINES_HEIGHT + 4.0 + LEGEND_LINE * names.len() as f64, out)
}

/// If the largest value is more than this many times the smallest, the axis shows powers of ten.
const MAX_LINEAR: f64 = 50.0;

/// The vertical axis.
enum Scale {
    Linear {
        step: f64,
        top: f64,
    },
    /// From one power of ten to another.
    Powers {
        low: i32,
        high: i32,
    },
}

impl Scale {
    fn new(least: f64, most: f64) -> Self {
        if least > 0.0 && most / least > MAX_LINEAR {
            return Self::Powers { low: least.log10().floor() as i32, high: most.log10().ceil() as i32 };
        }
        let (step, top) = ticks(most);
        Self::Linear { step, top }
    }

    /// How far up a value is, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        match *self {
            Self::Linear { top, .. } => value / top,
            Self::Powers { low, high } => {
                ((value.log10() - f64::from(low)) / f64::from((high - low).max(1))).clamp(0.0, 1.0)
            }
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match *self {
            Self::Linear { step, top } => (0..=(top / step).round() as u32).map(|n| f64::from(n) * step).collect(),
            Self::Powers { low, high } => (low..=high).map(|power| 10f64.powi(power)).collect(),
        }
    }
}

/// The distance of the lines of a grid, and the value of the top one, for four to eight lines.
fn ticks(most: f64) -> (f64, f64) {
    if most <= 0.0 {
        return (1.0, 1.0);
    }
    let raw = most / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= raw);
    let step = step.unwrap_or(10.0 * power);
    (step, (most / step).ceil() * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_reaches_above_all_values() {
        for most in [0.0, 0.3, 1.0, 7.0, 99.0, 1234.0, 1e9] {
            let (step, top) = ticks(most);
            assert!(top >= most && top / step <= 8.0, "{most}: {step} {top}");
        }
    }
}
