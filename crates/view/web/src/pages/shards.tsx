// A map of the shards, coloured by a property, and the facts of one.

import { useMemo, useState } from "preact/hooks";
import { type Facts, run } from "../api";
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

export function Shards({ values }: { facts: Facts; values: URLSearchParams }) {
	const loaded = useLoaded((signal) => run<Shard>("shards", {}, signal), []);
	const shards = loaded.value?.output ?? [];
	const [colour, setColour] = useState("stored size");
	const value = COLOURS[colour] ?? ((shard: Shard) => shard.samples);
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
	const shown = colour.includes("size") || colour.includes("bytes") ? bytes : (number: number) => short(number, 3);
	return (
		<>
			<h1>Shards</h1>
			<Status of={loaded} />
			{shards.length > 0 ? (
				<>
					<Select label="Colour" value={colour} options={Object.keys(COLOURS)} onChange={setColour} />
					<p class="legend">
						<span>{shown(low)}</span> <i aria-hidden="true" /> <span>{shown(high)}</span>
					</p>
					<ul class="map" aria-label={`Shards by ${colour}`}>
						{shards.slice(0, MAP).map((one) => (
							<li key={one.shard}>
								<a
									href={routeText("shards", { shard: one.shard })}
									aria-current={shard === one}
									title={`${visible(one.basename)}: ${shown(value(one))}`}
									style={{ "--level": String(high > low ? (value(one) - low) / (high - low) : 0.5) }}
								>
									<span class="unseen">
										shard {one.shard}, {shown(value(one))}
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
		</>
	);
}
