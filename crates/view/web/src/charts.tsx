// Bars, lines and heat maps as SVG and canvas.

import { useEffect, useRef } from "preact/hooks";
import { count } from "./format";

/** The bounds are numbers that are exact, or their text. */
export interface Bar {
	from: number | string;
	to: number | string;
	count: number;
}

/** Bars of a histogram. `href` returns the address that a bar leads to, if any. */
export function Bars({ bars, label, href }: { bars: Bar[]; label: string; href?: (bar: Bar) => string | undefined }) {
	const most = Math.max(...bars.map((bar) => bar.count), 1);
	const width = 100 / Math.max(bars.length, 1);
	const first = bars[0];
	const last = bars.at(-1);
	return (
		<figure class="chart">
			<svg viewBox="0 0 100 40" preserveAspectRatio="none" role={href ? "group" : "img"} aria-label={label}>
				{bars.map((bar, at) => {
					const title = `${bar.from} to ${bar.to}: ${count(bar.count)}`;
					const rect = (
						<rect
							key={bar.from}
							x={at * width}
							width={width * 0.9}
							y={40 - (40 * bar.count) / most}
							height={(40 * bar.count) / most}
						>
							<title>{title}</title>
						</rect>
					);
					const target = bar.count > 0 ? href?.(bar) : undefined;
					return target ? (
						<a key={bar.from} href={target} aria-label={title}>
							{rect}
						</a>
					) : (
						rect
					);
				})}
			</svg>
			{first && last ? (
				<figcaption>
					<span>{first.from}</span>
					<span>{last.to}</span>
				</figcaption>
			) : null}
		</figure>
	);
}

export interface Series {
	name: string;
	points: [number, number][];
}

/** Lines over a common horizontal axis. */
export function Lines({ series, label, unit }: { series: Series[]; label: string; unit: (value: number) => string }) {
	const all = series.flatMap((one) => one.points);
	const right = Math.max(...all.map(([x]) => x), Number.MIN_VALUE);
	const low = Math.min(...all.map(([, y]) => y), 0);
	const high = Math.max(...all.map(([, y]) => y), low + Number.MIN_VALUE);
	const path = (points: [number, number][]) =>
		points
			.map(
				([x, y], at) =>
					`${at ? "L" : "M"}${((100 * x) / right).toFixed(2)} ${(40 - (40 * (y - low)) / (high - low || 1)).toFixed(2)}`,
			)
			.join("");
	return (
		<figure class="chart">
			<svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label={label}>
				{series.map((one, at) => (
					<path key={one.name} class={`line line-${at % 4}`} d={path(one.points)} vector-effect="non-scaling-stroke">
						<title>{one.name}</title>
					</path>
				))}
			</svg>
			<figcaption>
				<span>{label}</span>
				<span>at most {unit(high)}</span>
			</figcaption>
		</figure>
	);
}

/** Two dimensions of an array. NaN and infinities are red. */
export function HeatMap(props: {
	values: (number | null)[];
	rows: number;
	columns: number;
	min: number;
	max: number;
	label: string;
}) {
	const canvas = useRef<HTMLCanvasElement>(null);
	useEffect(() => {
		const context = canvas.current?.getContext("2d");
		if (!context) return;
		const image = context.createImageData(props.columns, props.rows);
		const range = props.max - props.min || 1;
		props.values.forEach((value, at) => {
			const level = value === null ? 255 : (255 * (value - props.min)) / range;
			image.data.set(value === null ? [220, 30, 30, 255] : [level, level, level, 255], 4 * at);
		});
		context.putImageData(image, 0, 0);
	}, [props.values, props.rows, props.columns, props.min, props.max]);
	return (
		<canvas ref={canvas} class="heat" width={props.columns} height={props.rows} role="img" aria-label={props.label} />
	);
}
