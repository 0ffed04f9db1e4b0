// A sample in a grid.

import type { Field, Sample } from "./api";
import { facts, Media } from "./field";
import { count, routeText, visible } from "./format";

/** Images of more bytes are not shown in a grid. */
const THUMBNAIL_BYTES = 4 << 20;

/** `where` and `at` are the condition of the grid, and the position among the samples that meet it. */
export function Tile({ sample, where, at }: { sample: Sample; where?: string; at?: number }) {
	const fields = sample.fields ?? [];
	const image = fields.find((field) => field.kind === "image" && field.bytes <= THUMBNAIL_BYTES);
	return (
		<a class="tile" href={routeText("samples", where ? { where, at } : { n: sample.number })}>
			<span class="tile-number">{count(sample.number)}</span>
			{sample.error ? <span class="failed">{visible(sample.error.message)}</span> : null}
			{image ? <Media field={image} sample={sample.number} item={0} tile /> : null}
			{fields
				.filter((field) => field !== image)
				.slice(0, image ? 2 : 5)
				.map((field) => (
					<span class="tile-field" key={field.name}>
						<b>{visible(field.name)}</b> {summary(field)}
					</span>
				))}
		</a>
	);
}

/** Describes a value in a few words. */
function summary(field: Field): string {
	if (field.decoded) return visible(field.decoded).slice(0, 120);
	switch (field.kind) {
		case "text":
		case "json":
		case "number":
			return visible(field.text ?? "").slice(0, 120);
		case "array":
			return field.items_truncated ? `${facts(field)}: ${field.items}, …` : (field.items ?? "");
		default:
			return facts(field);
	}
}
