// Which rank receives which samples at a step.

import { useMemo } from "preact/hooks";
import { type Facts, run } from "../api";
import { count, type PythonArguments, pythonDataset, routeText, shardOf } from "../format";
import { Copy, Input, Status, useLoaded, Wide } from "../parts";
import { setValues, World, worldArguments, worldQuery } from "../world";

interface Batch {
	rank: number;
	batch: number;
	samples: number[];
	repeated: number[];
}

/** The most ranks and samples of a rank that are shown. */
const RANKS = 64;
const POSITIONS = 256;

export function Order({ facts, values }: { facts: Facts; values: URLSearchParams }) {
	const step = Number(values.get("step") ?? 0);
	const epoch = values.get("epoch") ?? "0";
	const query = { ...worldQuery(values), epoch: epoch === "0" ? undefined : epoch };
	const inputs = JSON.stringify([query, step]);
	const loaded = useLoaded((signal) => run<Batch>("order", { ...query, batches: step }, signal), [inputs], 150);
	const shards = useLoaded((signal) => run<{ samples: number }>("shards", {}, signal), []);
	const firsts = useMemo(() => {
		let first = 0;
		return (shards.value?.output ?? []).map((shard) => {
			first += shard.samples;
			return first - shard.samples;
		});
	}, [shards.value]);
	const number = (name: string) => Number(values.get(name) ?? 1) || 1;
	const batch = Number(values.get("batch-size") ?? 32) || 32;
	const steps = Math.max(1, Math.ceil(facts.samples / (number("nodes") * number("ranks-per-node") * batch)));
	const set = (changes: Record<string, string | number>) => setValues("order", values, changes);
	const batches = loaded.value?.output ?? [];
	const python = pythonDataset(facts, { ...worldOfDataset(values), batch_size: batch });
	return (
		<>
			<h1>Order</h1>
			<p class="note">
				The samples of every rank at a step. The colour is the shard: with a shuffle, neighbours in a batch come from
				many of them.
			</p>
			<form class="options" onSubmit={(event) => event.preventDefault()}>
				<label class="input slider">
					<span>
						Step: <output>{count(step)}</output> of about {count(steps)}
					</span>
					<input
						type="range"
						min={0}
						max={steps - 1}
						value={step}
						onInput={(event) => set({ step: event.currentTarget.value })}
					/>
				</label>
				<Input label="Step" value={String(step)} onChange={(next) => set({ step: next })} />
				<Input label="Epoch" value={epoch} onChange={(next) => set({ epoch: next })} />
				<World page="order" values={values} />
			</form>
			<Status of={loaded} />
			<Wide label={`Samples at step ${step}`}>
				<table class="ranks">
					<tbody>
						{batches.slice(0, RANKS).map((one) => (
							<tr key={one.rank}>
								<th scope="row">rank {one.rank}</th>
								<td>
									<ul>
										{one.samples.slice(0, POSITIONS).map((sample, at) => {
											const shard = shardOf(sample, firsts);
											const repeated = one.repeated.includes(at) ? ", repeated" : "";
											return (
												<li key={at}>
													<a
														href={routeText("samples", { n: sample })}
														title={`sample ${sample}, shard ${shard}${repeated}`}
														style={{ "--hue": String((shard * 137) % 360) }}
													>
														{sample}
														{repeated ? "*" : ""}
													</a>
												</li>
											);
										})}
									</ul>
								</td>
							</tr>
						))}
					</tbody>
				</table>
			</Wide>
			{batches.length > RANKS ? (
				<p class="note">
					The first {RANKS} of {count(batches.length)} ranks.
				</p>
			) : null}
			{loaded.value ? <Copy label="CLI" text={loaded.value.command} /> : null}
			<Copy label="Python" text={`${python}.which(${step})`} />
		</>
	);
}

/** The arguments that a dataset takes: it learns about nodes and ranks from the process group. */
function worldOfDataset(values: URLSearchParams): PythonArguments {
	const { num_nodes: _nodes, ranks_per_node: _ranks, batch_size: _batch, ...rest } = worldArguments(values);
	return rest;
}
