// The machines of a run and its order: the form that the pages "order" and "plan" share.

import type { Query } from "./api";
import { type PythonArguments, routeText } from "./format";
import { Check, Input, Select, Slider } from "./parts";

const ALGORITHMS = ["py1e", "py1br", "py1b", "py1s", "py2s", "naive", "keyed"];

/** Powers of two from 1 to `most`. */
export function powers(most: number): number[] {
	return Array.from({ length: Math.log2(most) + 1 }, (_, power) => 2 ** power);
}

/** A name on the command line, its name in Python, and its default. */
const OPTIONS: [string, string, string][] = [
	["nodes", "num_nodes", "1"],
	["ranks-per-node", "ranks_per_node", "1"],
	["batch-size", "batch_size", "32"],
	["shuffle", "shuffle", ""],
	["shuffle-algo", "shuffle_algo", "py1e"],
	["shuffle-seed", "shuffle_seed", "9176"],
	["shuffle-block-size", "shuffle_block_size", ""],
	["num-canonical-nodes", "num_canonical_nodes", ""],
];

/** Returns the options of the address that differ from their defaults. */
export function worldQuery(values: URLSearchParams): Query {
	const query: Query = {};
	for (const [name, , usual] of OPTIONS) {
		const value = values.get(name) ?? "";
		if (value !== "" && value !== usual) query[name] = value;
	}
	return query;
}

/** Returns the same options as arguments of Python. */
export function worldArguments(values: URLSearchParams): PythonArguments {
	const found: PythonArguments = {};
	for (const [name, argument, usual] of OPTIONS) {
		const value = values.get(name) ?? "";
		if (value === "" || value === usual) continue;
		// A seed may exceed 2^53.
		const number = /^\d+$/.test(value) ? BigInt(value) : Number(value);
		found[argument] = name === "shuffle" ? true : name === "shuffle-algo" ? value : number;
	}
	return found;
}

/** Replaces values in the address. */
export function setValues(
	page: string,
	values: URLSearchParams,
	changes: Record<string, string | number | boolean>,
): void {
	const all: Record<string, string | number | boolean> = { ...Object.fromEntries(values), ...changes };
	history.replaceState(null, "", routeText(page, all));
	dispatchEvent(new HashChangeEvent("hashchange"));
}

export function World({ page, values }: { page: string; values: URLSearchParams }) {
	const value = (name: string) => values.get(name) ?? OPTIONS.find(([known]) => known === name)?.[2] ?? "";
	const set = (name: string) => (next: string | number | boolean) => setValues(page, values, { [name]: next });
	return (
		<>
			<Slider label="Nodes" value={Number(value("nodes"))} values={powers(64)} onChange={set("nodes")} />
			<Slider
				label="Ranks per node"
				value={Number(value("ranks-per-node"))}
				values={powers(16)}
				onChange={set("ranks-per-node")}
			/>
			<Slider
				label="Batch size"
				value={Number(value("batch-size"))}
				values={powers(1024)}
				onChange={set("batch-size")}
			/>
			<Check label="Shuffle" checked={value("shuffle") === "true"} onChange={set("shuffle")} />
			<Select label="Algorithm" value={value("shuffle-algo")} options={ALGORITHMS} onChange={set("shuffle-algo")} />
			<Input label="Seed" value={value("shuffle-seed")} onChange={set("shuffle-seed")} />
			<Input
				label="Block size"
				value={value("shuffle-block-size")}
				placeholder="default"
				onChange={set("shuffle-block-size")}
			/>
			<Input
				label="Canonical nodes"
				value={value("num-canonical-nodes")}
				placeholder="default"
				onChange={set("num-canonical-nodes")}
			/>
		</>
	);
}
