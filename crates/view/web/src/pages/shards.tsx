// A map of the shards, coloured by a property, and the facts of one.

import { useMemo, useState } from "preact/hooks";
import { type Cached, cached, type Facts, isReport, run } from "../api";
import { bytes, count, routeText, short, visible } from "../format";
import { Copy, Names, Select, Status, useLoaded, Wide } from "../parts";

interface Shard {
	shard: number;
	samples: number;
	raw_bytes: number;
	stored_bytes: number;
	basename: string;
	hashes?: Record<string, string>;
}

/** A problem or a warning that `verify` found. */
interface Finding {
	id: string;
	/** The number of the shard. */
	shard?: number;
	object?: string;
	sample?: number;
	message: string;
}

interface Verified {
	ok: boolean;
	problems: Finding[];
	warnings: Finding[];
	problem_count: number;
}

/** The readers whose rules are checked on request. */
const READERS = "webdataset,hf,dali,energon,wids,open_clip";

/** The findings that are listed. */
const LISTED = 200;

/** The most shards of the map, and of a page of the table. */
const MAP = 4000;
const PAGE = 100;

const COLOURS: Record<string, (shard: Shard) => number> = {
	"stored size": (shard) => shard.stored_bytes,
	"raw size": (shard) => shard.raw_bytes,
	samples: (shard) => shard.samples,
	"compression ratio": (shard) => shard.raw_bytes / Math.max(shard.stored_bytes, 1),
	"bytes per sample": (shard) => shard.raw_bytes / Math.max(shard.samples, 1),
};

/** What is known of a shard, for the map. */
interface Marks {
	cached?: Cached;
	damaged?: Map<number, Finding[]>;
}

/** Colours by what is known of a shard: a level and words. */
function marked(marks: Marks): Record<string, (shard: Shard) => [number, string]> {
	const found: Record<string, (shard: Shard) => [number, string]> = {};
	const { cached, damaged } = marks;
	if (cached) {
		const [raw, stored] = [new Set(cached.raw), new Set(cached.stored)];
		found["in the cache"] = ({ shard }) =>
			raw.has(shard)
				? [1, "in the cache"]
				: stored.has(shard)
					? [0.6, "in the cache, compressed"]
					: [0, "not in the cache"];
	}
	const problems =
		(of: Map<number, Finding[]>) =>
		(shard: Shard): [number, string] => {
			const count = of.get(shard.shard)?.length ?? 0;
			return [count ? 1 : 0, count === 1 ? "1 finding" : `${count} findings`];
		};
	if (damaged) found.verification = problems(damaged);
	return found;
}

/** Groups findings by the number of their shard. Findings about no shard are under -1. */
function byShard(findings: Finding[]): Map<number, Finding[]> {
	const found = new Map<number, Finding[]>();
	for (const finding of findings) {
		const number = finding.shard ?? -1;
		found.set(number, [...(found.get(number) ?? []), finding]);
	}
	return found;
}

export function Shards({ facts, values }: { facts: Facts; values: URLSearchParams }) {
	const [wanted, setWanted] = useState<Record<string, string>>();
	const inCache = useLoaded(async (signal) => (facts.cache ? cached(signal) : undefined), [facts.cache]);
	const verified = useLoaded(
		async (signal) => (wanted ? run<Verified>("verify", wanted, signal) : undefined),
		[wanted],
	);
	const loaded = useLoaded((signal) => run<Shard>("shards", {}, signal), []);
	const shards = loaded.value?.output ?? [];
	const [colour, setColour] = useState("stored size");
	const report = verified.value?.output[0];
	const damaged = useMemo(() => (report ? byShard([...report.problems, ...report.warnings]) : undefined), [report]);
	const marks = marked({ cached: inCache.value, damaged });
	const mark = marks[colour];
	const value = COLOURS[colour] ?? ((shard: Shard) => mark?.(shard)[0] ?? 0);
	const [low, high] = useMemo(
		() =>
			shards
				.map(value)
				.reduce(([low, high], now) => [Math.min(low, now), Math.max(high, now)] as [number, number], [
					Infinity,
					-Infinity,
				] as [number, number]),
		[shards, value],
	);
	const firsts = useMemo(() => {
		let first = 0;
		return shards.map((shard) => {
			first += shard.samples;
			return first - shard.samples;
		});
	}, [shards]);
	const chosen = values.get("shard");
	const shard = chosen === null ? undefined : shards[Number(chosen)];
	const [page, setPage] = useState(0);
	const number = colour.includes("size") || colour.includes("bytes") ? bytes : (number: number) => short(number, 3);
	const shown = (one: Shard) => mark?.(one)[1] ?? number(value(one));
	const chosenFindings = damaged?.get(shard?.shard ?? -1) ?? [];
	return (
		<>
			<h1>Shards</h1>
			<Status of={loaded} />
			{facts.cache ? <Status of={inCache} /> : null}
			{inCache.value ? (
				<p class="note">
					{count(inCache.value.raw.length + inCache.value.stored.length)} of {count(shards.length)} shards are in{" "}
					{visible(inCache.value.folder)}.
				</p>
			) : null}
			{isReport() ? null : (
				<p>
					<button type="button" onClick={() => setWanted({})}>
						Verify
					</button>{" "}
					{facts.kind === "tars" ? (
						<button type="button" onClick={() => setWanted({ for: READERS })}>
							Verify for all readers
						</button>
					) : null}
				</p>
			)}
			{wanted ? <Status of={verified} /> : null}
			{report ? (
				<p class={report.ok ? "ok" : "failed"} role="status">
					{report.ok ? "Every shard has its hash." : `${count(report.problem_count)} problems.`}
				</p>
			) : null}
			{shards.length > 0 ? (
				<>
					<Select
						label="Colour"
						value={colour}
						options={[...Object.keys(COLOURS), ...Object.keys(marks)]}
						onChange={setColour}
					/>
					{mark ? null : (
						<p class="legend">
							<span>{number(low)}</span> <i aria-hidden="true" /> <span>{number(high)}</span>
						</p>
					)}
					<ul class="map" aria-label={`Shards by ${colour}`}>
						{shards.slice(0, MAP).map((one) => (
							<li key={one.shard}>
								<a
									href={routeText("shards", { shard: one.shard })}
									aria-current={shard === one}
									title={`${visible(one.basename)}: ${shown(one)}`}
									style={{ "--level": String(high > low ? (value(one) - low) / (high - low) : 0.5) }}
								>
									<span class="unseen">
										shard {one.shard}, {shown(one)}
									</span>
								</a>
							</li>
						))}
					</ul>
					{shards.length > MAP ? (
						<p class="note">
							The first {count(MAP)} of {count(shards.length)} shards.
						</p>
					) : null}
				</>
			) : null}
			{shard ? (
				<section aria-label="Chosen shard">
					<h2>{visible(shard.basename)}</h2>
					<Names
						of={[
							["number", count(shard.shard)],
							["samples", count(shard.samples)],
							[
								"first sample",
								<a href={routeText("samples", { from: firsts[shard.shard] })}>{count(firsts[shard.shard] ?? 0)}</a>,
							],
							["stored", `${bytes(shard.stored_bytes)} (${count(shard.stored_bytes)} bytes)`],
							["raw", `${bytes(shard.raw_bytes)} (${count(shard.raw_bytes)} bytes)`],
							["ratio", short(shard.raw_bytes / Math.max(shard.stored_bytes, 1), 3)],
							...Object.entries(shard.hashes ?? {}).map(
								([name, hash]) => [name, <code>{hash}</code>] as [string, preact.VNode],
							),
						]}
					/>
				</section>
			) : null}
			{chosenFindings.length > 0 ? <Findings label="Findings of this shard" of={chosenFindings} /> : null}
			{!shard && report && !report.ok ? <Findings label="Problems" of={report.problems} /> : null}
			{!shard && report && report.warnings.length > 0 ? <Findings label="Warnings" of={report.warnings} /> : null}
			{shards.length > 0 ? (
				<>
					<h2>All shards</h2>
					<Wide label="All shards">
						<table>
							<thead>
								<tr>
									<th scope="col">shard</th>
									<th scope="col">samples</th>
									<th scope="col">stored</th>
									<th scope="col">raw</th>
								</tr>
							</thead>
							<tbody>
								{shards.slice(page * PAGE, (page + 1) * PAGE).map((one) => (
									<tr key={one.shard}>
										<th scope="row">
											<a href={routeText("shards", { shard: one.shard })}>{visible(one.basename)}</a>
										</th>
										<td>{count(one.samples)}</td>
										<td>{bytes(one.stored_bytes)}</td>
										<td>{bytes(one.raw_bytes)}</td>
									</tr>
								))}
							</tbody>
						</table>
					</Wide>
					{shards.length > PAGE ? (
						<p>
							<button type="button" disabled={page === 0} onClick={() => setPage(page - 1)}>
								Earlier
							</button>{" "}
							<button type="button" disabled={(page + 1) * PAGE >= shards.length} onClick={() => setPage(page + 1)}>
								Later
							</button>
						</p>
					) : null}
				</>
			) : null}
			{loaded.value ? <Copy label="CLI" text={loaded.value.command} /> : null}
			{verified.value ? <Copy label="CLI" text={verified.value.command} /> : null}
		</>
	);
}

/** Problems with their places: the file or the sample. */
function Findings({ label, of }: { label: string; of: Finding[] }) {
	return (
		<>
			<h2>{label}</h2>
			<Wide label={label}>
				<table>
					<thead>
						<tr>
							<th scope="col">id</th>
							<th scope="col">place</th>
							<th scope="col">message</th>
						</tr>
					</thead>
					<tbody>
						{of.slice(0, LISTED).map((one) => (
							<tr key={JSON.stringify(one)}>
								<th scope="row">{one.id}</th>
								<td>{visible(one.object ?? "")}</td>
								<td>{visible(one.message)}</td>
							</tr>
						))}
					</tbody>
				</table>
			</Wide>
			{of.length > LISTED ? (
				<p class="note">
					The first {count(LISTED)} of {count(of.length)}.
				</p>
			) : null}
		</>
	);
}
