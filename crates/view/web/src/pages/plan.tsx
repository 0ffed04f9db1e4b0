// Predicts a run: the simulation of `shardmill plan`, with sliders.

import { type Facts, run } from "../api";
import { Lines, type Series } from "../charts";
import {
	bytes,
	count,
	type PythonArguments,
	percent,
	pythonArguments,
	pythonText,
	pythonView,
	seconds,
	visible,
} from "../format";
import { Copy, Names, Slider, Status, useLoaded, Wide } from "../parts";
import { setValues, World, worldArguments, worldQuery } from "../world";

interface Cache {
	first_batch_seconds: number;
	seconds: number;
	most_resident_bytes: number;
	epochs: { epoch: number; uses: number; hits: number; fetched_bytes: number; wait_seconds: number; seconds: number }[];
	timeline: { seconds: number; resident_bytes: number; fetched_bytes_per_second: number; waiting: number }[];
}

interface Planned {
	global_batch: number;
	stored_bytes: number;
	nodes_in_all: number;
	epochs: { epoch: number; steps: number; padded: number; dropped: number }[];
	nodes: { node: number; belady: Cache }[];
	advice: string[];
}

const MEGA = 1024 * 1024;
/** Sizes of a cache in MiB; 0 stands for no limit. */
const CACHES = [0, ...Array.from({ length: 21 }, (_, power) => 2 ** power)];
/** Bandwidths in MiB per second. */
const BANDWIDTHS = Array.from({ length: 14 }, (_, power) => 2 ** power);
const LATENCIES = [0, 1, 5, 10, 30, 50, 100, 200, 500];
const STEPS = [1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000];

export function Plan({ facts, values }: { facts: Facts; values: URLSearchParams }) {
	const number = (name: string, usual: number) => Number(values.get(name) ?? usual);
	const [cache, bandwidth, latency, step, epochs] = [
		number("cache", 0),
		number("bandwidth", 1024),
		number("latency", 30),
		number("step-time", 100),
		number("epochs", 3),
	];
	const query = {
		...worldQuery(values),
		epochs: epochs === 3 ? undefined : epochs,
		"cache-limit": cache ? `${cache}MiB` : undefined,
		bandwidth: bandwidth === 1024 ? undefined : `${bandwidth}MiB/s`,
		latency: latency === 30 ? undefined : `${latency}ms`,
		"step-time": step === 100 ? undefined : `${step}ms`,
	};
	const loaded = useLoaded((signal) => run<Planned>("plan", query, signal), [JSON.stringify(query)], 250);
	const found = loaded.value?.output[0];
	const set = (name: string) => (next: number) => setValues("plan", values, { [name]: next });
	const python: PythonArguments = { ...pythonView(facts), ...worldArguments(values) };
	if (epochs !== 3) python.epochs = epochs;
	if (cache) python.cache_limit = `${cache}MiB`;
	if (bandwidth !== 1024) python.bandwidth = `${bandwidth}MiB/s`;
	if (latency !== 30) python.latency = latency / 1000;
	if (step !== 100) python.step_time = step / 1000;
	return (
		<>
			<h1>Plan</h1>
			<p class="note">
				Every node is simulated: when it needs which shards, what its cache holds, and how long its batches wait. Only
				the index is read.
			</p>
			<form class="options" onSubmit={(event) => event.preventDefault()}>
				<World page="plan" values={values} />
				<Slider
					label="Cache of a node"
					value={cache}
					values={CACHES}
					onChange={set("cache")}
					text={(value) => (value ? bytes(value * MEGA) : "no limit")}
				/>
				<Slider
					label="Bandwidth of a node"
					value={bandwidth}
					values={BANDWIDTHS}
					onChange={set("bandwidth")}
					text={(value) => `${bytes(value * MEGA)}/s`}
				/>
				<Slider
					label="Latency"
					value={latency}
					values={LATENCIES}
					onChange={set("latency")}
					text={(value) => `${value} ms`}
				/>
				<Slider
					label="Time of a step"
					value={step}
					values={STEPS}
					onChange={set("step-time")}
					text={(value) => `${value} ms`}
				/>
				<Slider label="Epochs" value={epochs} values={[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]} onChange={set("epochs")} />
			</form>
			<Status of={loaded} />
			{found ? <Forecast of={found} /> : null}
			{loaded.value ? <Copy label="CLI" text={loaded.value.command} /> : null}
			<Copy label="Python" text={`shardmill.plan(${pythonText(facts.location)}${pythonArguments(python)})`} />
		</>
	);
}

function Forecast({ of }: { of: Planned }) {
	const nodes = of.nodes.slice(0, 4);
	const series = (value: (point: Cache["timeline"][number]) => number): Series[] =>
		nodes.map((node) => ({
			name: `node ${node.node}`,
			points: node.belady.timeline.map((point) => [point.seconds, value(point)]),
		}));
	const worst = of.nodes.reduce(
		(most, node) =>
			Math.max(
				most,
				node.belady.epochs.reduce((sum, epoch) => sum + epoch.wait_seconds, 0),
			),
		0,
	);
	const longest = of.nodes.reduce((most, node) => Math.max(most, node.belady.seconds), 0);
	return (
		<>
			<Names
				of={[
					["steps of an epoch", count(of.epochs[0]?.steps ?? 0)],
					["samples of a step", count(of.global_batch)],
					["duration", seconds(longest)],
					["waiting", `${seconds(worst)} (${percent(worst, longest)})`],
					["first batch after", seconds(Math.max(...of.nodes.map((node) => node.belady.first_batch_seconds), 0))],
					[
						"cache of a node",
						`at most ${bytes(Math.max(...of.nodes.map((node) => node.belady.most_resident_bytes), 0))}`,
					],
				]}
			/>
			{of.advice.length > 0 ? (
				<ul class="advice">
					{of.advice.map((line) => (
						<li key={line}>{visible(line)}</li>
					))}
				</ul>
			) : null}
			<Lines label="Bytes in the cache" series={series((point) => point.resident_bytes)} unit={bytes} />
			<Lines
				label="Fetched per second"
				series={series((point) => point.fetched_bytes_per_second)}
				unit={(value) => `${bytes(Math.round(value))}/s`}
			/>
			<Lines
				label="Waiting for data"
				series={series((point) => 100 * point.waiting)}
				unit={(value) => `${value.toFixed(0)} %`}
			/>
			<Wide label="Epochs of the nodes">
				<table>
					<thead>
						<tr>
							<th scope="col">node</th>
							<th scope="col">epoch</th>
							<th scope="col">fetched</th>
							<th scope="col">hits</th>
							<th scope="col">waiting</th>
						</tr>
					</thead>
					<tbody>
						{nodes.flatMap((node) =>
							node.belady.epochs.map((epoch) => (
								<tr key={`${node.node}/${epoch.epoch}`}>
									<td>{node.node}</td>
									<td>{epoch.epoch}</td>
									<td>{bytes(epoch.fetched_bytes)}</td>
									<td>{percent(epoch.hits, epoch.uses)}</td>
									<td>{seconds(epoch.wait_seconds)}</td>
								</tr>
							)),
						)}
					</tbody>
				</table>
			</Wide>
			{of.nodes_in_all > nodes.length ? (
				<p class="note">
					The first {nodes.length} of {count(of.nodes_in_all)} nodes.
				</p>
			) : null}
		</>
	);
}
