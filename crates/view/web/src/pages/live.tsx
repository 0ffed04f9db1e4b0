// The metrics of a running job, requested again and again.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Facts, metrics, Refused } from "../api";
import { Lines } from "../charts";
import { type Metric, parseMetrics, short, visible } from "../format";
import { Copy, Failed, Wide } from "../parts";

/** The time between two requests, and the answers that are kept. */
const EVERY_MS = 2000;
const KEPT = 150;

interface Seen {
	seconds: number;
	values: Map<string, Metric>;
}

export function Live({ facts, values }: { facts: Facts; values: URLSearchParams }) {
	const [seen, setSeen] = useState<Seen[]>([]);
	const [failure, setFailure] = useState<Refused | null>(null);
	const started = useRef(performance.now());
	useEffect(() => {
		const controller = new AbortController();
		let timer = 0;
		const ask = async () => {
			try {
				const found = parseMetrics(await metrics(controller.signal));
				const seconds = (performance.now() - started.current) / 1000;
				setFailure(null);
				setSeen((old) => [...old.slice(1 - KEPT), { seconds, values: found }]);
			} catch (error) {
				if (controller.signal.aborted) return;
				setFailure(error instanceof Refused ? error : new Refused({ message: String(error) }));
			}
			timer = window.setTimeout(ask, EVERY_MS);
		};
		ask();
		return () => {
			controller.abort();
			clearTimeout(timer);
		};
	}, []);
	const last = seen.at(-1);
	const before = seen.at(-2);
	const chosen = values.get("metric") ?? "";
	const rate = (name: string, at: number) => {
		const [now, old] = [seen[at], seen[at - 1]];
		const [value, earlier] = [now?.values.get(name)?.value, old?.values.get(name)?.value];
		if (!now || !old || value === undefined || earlier === undefined) return Number.NaN;
		return (value - earlier) / Math.max(now.seconds - old.seconds, 0.001);
	};
	const metric = last?.values.get(chosen);
	const points = seen
		.map((one, at): [number, number] => [
			one.seconds,
			metric?.type === "counter" ? rate(chosen, at) : (one.values.get(chosen)?.value ?? Number.NaN),
		])
		.filter(([, value]) => Number.isFinite(value));
	return (
		<>
			<h1>Live metrics</h1>
			<p class="note">{visible(facts.metrics ?? "")}</p>
			<p class="status" role="status">
				{last || failure ? "" : "Loading…"}
			</p>
			{failure ? <Failed failure={failure.failure} /> : null}
			{metric && points.length > 1 ? (
				<Lines
					series={[{ name: chosen, points }]}
					label={metric.type === "counter" ? `${chosen} per second` : chosen}
					unit={short}
				/>
			) : null}
			{last ? (
				<Wide label="Metrics">
					<table>
						<thead>
							<tr>
								<th scope="col">metric</th>
								<th scope="col">value</th>
								<th scope="col">per second</th>
							</tr>
						</thead>
						<tbody>
							{[...last.values].map(([name, one]) => (
								<tr key={name}>
									<th scope="row">
										<a href={`#/live?metric=${encodeURIComponent(name)}`} title={one.help}>
											{visible(name)}
										</a>
									</th>
									<td>{one.text}</td>
									<td>{one.type === "counter" && before ? short(rate(name, seen.length - 1), 3) : ""}</td>
								</tr>
							))}
						</tbody>
					</table>
				</Wide>
			) : null}
			<Copy label="CLI" text={`curl ${facts.metrics ?? ""}`} />
			<Copy label="Python" text="shardmill.metrics.serve(loader, port=9100)" />
		</>
	);
}
