// Statistics of the columns over the first rows.

import { useState } from "preact/hooks";
import { type Facts, frequent, isReport, run } from "../api";
import { type Bar, Bars } from "../charts";
import { binCondition, count, percent, pythonDataset, routeText, valueCondition, visible } from "../format";
import { Copy, Names, Select, Status, useLoaded } from "../parts";

interface Column {
	name: string;
	type: string;
	count: number;
	nulls: number;
	distinct: { count: number; exact: boolean } | null;
	special: { nan: number; infinity: number; negative_infinity: number; unreadable: number };
	measure: string;
	min: number | string | null;
	max: number | string | null;
	mean: number | string | null;
	histogram: Bar[];
}

interface Measured {
	rows: number;
	complete: boolean;
	columns: Column[];
}

const LIMITS = ["1000", "10000", "100000", "1000000"];

/** The rows in which frequent values are counted. */
const FREQUENT_ROWS = 2000;

export function Columns({ facts, values }: { facts: Facts; values: URLSearchParams }) {
	const limit = values.get("limit") ?? "1000";
	const chosen = values.get("column");
	const loaded = useLoaded((signal) => run<Measured>("stats", { limit }, signal), [limit]);
	const found = loaded.value?.output[0];
	const columns = found?.columns.filter((column) => chosen === null || column.name === chosen) ?? [];
	return (
		<>
			<h1>Columns</h1>
			{isReport() ? null : (
				<Select
					label="Rows to read"
					value={limit}
					options={LIMITS}
					onChange={(next) => {
						location.hash = routeText("columns", { limit: next, column: chosen ?? undefined });
					}}
				/>
			)}
			{chosen === null ? null : (
				<p>
					<a href={routeText("columns", { limit })}>All columns</a>
				</p>
			)}
			<Status of={loaded} />
			{found ? (
				<p class="note">
					{found.complete
						? `All ${count(found.rows)} rows.`
						: `The first ${count(found.rows)} rows of ${count(facts.samples)}.`}
				</p>
			) : null}
			{columns.map((column) => (
				<section key={column.name} class="field" aria-label={visible(column.name)}>
					<h2>
						<a href={routeText("columns", { limit, column: column.name })}>{visible(column.name)}</a>{" "}
						<small>{column.type}</small>
					</h2>
					<Names
						of={[
							["values", count(column.count)],
							["nulls", `${count(column.nulls)} (${percent(column.nulls, column.count + column.nulls)})`],
							...(column.distinct
								? [
										["distinct", `${column.distinct.exact ? "" : "about "}${count(column.distinct.count)}`] as [
											string,
											string,
										],
									]
								: []),
							...(column.min == null || column.max == null
								? []
								: ([[column.measure, `${column.min} to ${column.max}`]] as [string, string][])),
							...(column.mean == null ? [] : ([["mean", column.mean]] as [string, string][])),
							...Object.entries(column.special)
								.filter(([, number]) => number > 0)
								.map(([name, number]) => [name.replace("_", " "), count(number)] as [string, string]),
						]}
					/>
					{column.histogram.length > 0 ? (
						<Bars
							bars={column.histogram}
							label={`Histogram of ${visible(column.name)}, ${column.measure}`}
							href={
								isReport()
									? undefined
									: (bar) => {
											const where = binCondition(column.name, column.type, column.measure, bar.from, bar.to);
											return where ? routeText("samples", { where }) : undefined;
										}
							}
						/>
					) : null}
					{chosen === null || isReport() ? null : <Frequent column={column.name} type={column.type} />}
				</section>
			))}
			{loaded.value ? <Copy label="CLI" text={loaded.value.command} /> : null}
			{facts.kind === "source" ? null : (
				<Copy label="Python" text={`${pythonDataset(facts)}.to_pandas(0, ${limit}).describe()`} />
			)}
		</>
	);
}

function Frequent({ column, type }: { column: string; type: string }) {
	const [rows] = useState(FREQUENT_ROWS);
	const loaded = useLoaded((signal) => frequent(column, rows, signal), [column, rows]);
	const found = loaded.value;
	return (
		<>
			<h3>Most frequent values</h3>
			<Status of={loaded} />
			{found ? (
				<>
					<p class="note">
						In the first {count(found.rows)} samples
						{found.other ? `; ${count(found.other)} values are too long or have no text` : ""}.
					</p>
					<ol class="frequent">
						{found.values.map((value) => {
							const shown = value.text === null ? "(null)" : visible(value.text) || "(empty)";
							const where = valueCondition(column, type, value.text);
							return (
								<li key={value.text}>
									<meter min={0} max={found.rows} value={value.count} aria-label={`share of ${shown}`} />{" "}
									{count(value.count)}{" "}
									{where ? (
										<a href={routeText("samples", { where })}>
											<code>{shown}</code>
										</a>
									) : (
										<code>{shown}</code>
									)}
								</li>
							);
						})}
					</ol>
				</>
			) : null}
		</>
	);
}
