// The differences to another dataset, and a changed sample in both.

import { type Facts, run, samples } from "../api";
import { FieldView } from "../field";
import { count, routeText, visible } from "../format";
import { Copy, Failed, Input, Names, Status, useLoaded, Wide } from "../parts";
import { setValues } from "../world";

interface Diff {
	equal: boolean;
	shards: { same: number; changed: number; unknown: number; added: number; removed: number } | null;
	columns: { name: string; before: string | null; after: string | null }[];
	added: number;
	removed: number;
	changed: number;
	same: number;
	changes: { change: string; key: string | null; before: number | null; after: number | null; columns: string[] }[];
}

/** The differences that are listed. */
const LISTED = 200;

export function DiffPage({ facts, values }: { facts: Facts; values: URLSearchParams }) {
	const key = values.get("key-column") ?? "";
	const loaded = useLoaded((signal) => run<Diff>("diff", { "key-column": key, limit: LISTED }, signal), [key], 300);
	const found = loaded.value?.output[0];
	const shards = found?.shards;
	const chosen = values.get("change");
	const change = chosen === null ? undefined : found?.changes[Number(chosen)];
	return (
		<>
			<h1>Differences</h1>
			<p class="note">
				before: {visible(facts.location)}, after: {visible(facts.compared ?? "")}
			</p>
			<Input
				label="Key column; without one, samples at the same position are compared"
				type="text"
				value={key}
				onChange={(next) => setValues("diff", new URLSearchParams(), { "key-column": next })}
			/>
			<Status of={loaded} />
			{found ? (
				<>
					<p class={found.equal ? "ok" : "note"} role="status">
						{found.equal ? `The same: ${count(found.same)} samples.` : "They differ."}
					</p>
					<Names
						of={[
							["samples the same", count(found.same)],
							["changed", count(found.changed)],
							["added", count(found.added)],
							["removed", count(found.removed)],
							...(shards
								? ([
										[
											"shards",
											`${count(shards.same)} same, ${count(shards.changed)} changed, ${count(shards.added)} added, ${count(shards.removed)} removed`,
										],
									] as [string, string][])
								: []),
							...found.columns.map(
								(column) =>
									[
										`column ${visible(column.name)}`,
										visible(
											column.before === null
												? `added, ${column.after}`
												: column.after === null
													? `removed, was ${column.before}`
													: `${column.after}, was ${column.before}`,
										),
									] as [string, string],
							),
						]}
					/>
				</>
			) : null}
			{change ? (
				<div class="sides">
					<Side title="Before" number={change.before} of="" columns={change.columns} />
					<Side title="After" number={change.after} of="compared" columns={change.columns} />
				</div>
			) : null}
			{found && found.changes.length > 0 ? (
				<Wide label="Changed samples">
					<table>
						<thead>
							<tr>
								<th scope="col">sample</th>
								<th scope="col">change</th>
								<th scope="col">columns</th>
							</tr>
						</thead>
						<tbody>
							{found.changes.map((one, at) => (
								<tr key={`${one.before}/${one.after}`} aria-current={one === change ? "true" : undefined}>
									<th scope="row">
										<a href={routeText("diff", { "key-column": key, change: at })}>
											{one.key === null ? count(one.before ?? one.after ?? 0) : visible(one.key)}
										</a>
									</th>
									<td>{one.change}</td>
									<td>{visible(one.columns.join(", "))}</td>
								</tr>
							))}
						</tbody>
					</table>
				</Wide>
			) : null}
			{loaded.value ? <Copy label="CLI" text={loaded.value.command} /> : null}
		</>
	);
}

/** A sample of one of the two. Columns that differ come first. */
function Side(props: { title: string; number: number | null; of: string; columns: string[] }) {
	const { number, of } = props;
	const loaded = useLoaded(
		async (signal) => (number === null ? [] : samples(number, 1, true, "", signal, of)),
		[number, of],
	);
	const sample = loaded.value?.[0];
	const differs = (name: string) => (props.columns.includes(name) ? 0 : 1);
	const fields = [...(sample?.fields ?? [])].sort((a, b) => differs(a.name) - differs(b.name));
	return (
		<section aria-label={props.title}>
			<h2>
				{props.title} {number === null ? <small>missing</small> : <small>sample {count(number)}</small>}
			</h2>
			<Status of={loaded} />
			{sample?.error ? <Failed failure={sample.error} /> : null}
			{fields.map((field) => (
				<FieldView key={`${number}/${field.name}`} field={field} sample={number ?? 0} of={of} />
			))}
		</section>
	);
}
