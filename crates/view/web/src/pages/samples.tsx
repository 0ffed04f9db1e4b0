// A grid of all samples, and single ones by number or key.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Facts, find, isReport, Refused, run, type Sample, samples, saveView, select } from "../api";
import { FieldView } from "../field";
import { bytes, count, MOST_PIXELS, pythonDataset, quoted, routeText, scrollOf, visible, visibleRows } from "../format";
import { Copy, Failed, Input, Status, useLoaded } from "../parts";
import { Tile } from "../tile";

const ROW_HEIGHT = 196;
const TILE_WIDTH = 190;

/** Samples are requested in groups of this many. */
const GROUP = 24;

/** The groups that are kept. */
const KEPT = 60;

/** The samples of a report. */
const REPORT_SAMPLES = 24;

export function Samples({ facts, values }: { facts: Facts; values: URLSearchParams }) {
	const number = values.get("n");
	const where = isReport() ? "" : (values.get("where") ?? "");
	const selected = useLoaded(async (signal) => (where ? select(where, signal) : undefined), [where]);
	const total = isReport() ? Math.min(facts.samples, REPORT_SAMPLES) : facts.samples;
	const found = selected.loading ? undefined : selected.value;
	const at = values.get("at");
	const grid = (
		<Grid key={where} total={found?.samples ?? total} where={where} from={Number(values.get("from") ?? 0)} />
	);
	return (
		<>
			<Jump total={total} />
			{isReport() || number !== null || at !== null ? null : <Filter key={where} where={where} />}
			{where && number === null ? <Status of={selected} /> : null}
			{number !== null ? (
				<Single facts={facts} total={total} at={Number(number)} where="" />
			) : where && !found ? null : at !== null ? (
				<Single facts={facts} total={found?.samples ?? total} at={Number(at)} where={where} />
			) : (
				grid
			)}
			{found && number === null && at === null ? (
				<>
					<p>
						<SaveView where={where} size={found.bytes} />
					</p>
					<Copy label="CLI" text={`${found.command} -o selection.view`} />
					{hasPython(facts) ? <Copy label="Python" text={pythonDataset(facts, { view: "selection.view" })} /> : null}
				</>
			) : null}
		</>
	);
}

/** Returns whether Python reads the samples as a dataset. */
function hasPython(facts: Facts): boolean {
	return facts.kind !== "source" || facts.format !== null;
}

/** The condition of the grid, in SQL. */
function Filter({ where }: { where: string }) {
	const [text, setText] = useState(where);
	return (
		<search>
			<form
				class="jump"
				onSubmit={(event) => {
					event.preventDefault();
					location.hash = routeText("samples", { where: text.trim() });
				}}
			>
				<Input label="SQL condition" type="text" value={text} placeholder='"label" = 3' onChange={setText} />
				<button type="submit">Filter</button>
				{where ? <a href={routeText("samples")}>All samples</a> : null}
			</form>
		</search>
	);
}

function SaveView({ where, size }: { where: string; size: number }) {
	const [failure, setFailure] = useState<Refused | null>(null);
	const save = () =>
		saveView(where).then(
			() => setFailure(null),
			(error) => setFailure(error instanceof Refused ? error : new Refused({ message: String(error) })),
		);
	return (
		<>
			<button type="button" onClick={save}>
				Save as view ({bytes(size)})
			</button>
			{failure ? <Failed failure={failure.failure} /> : null}
		</>
	);
}

/** Goes to a sample by number or key. */
function Jump({ total }: { total: number }) {
	const [text, setText] = useState("");
	const [state, setState] = useState<{ message?: string; error?: Refused }>({});
	const go = async (event: Event) => {
		event.preventDefault();
		const wanted = text.trim();
		if (/^\d+$/.test(wanted) && Number(wanted) < total) {
			location.hash = routeText("samples", { n: wanted });
			return;
		}
		if (isReport() || !wanted) return;
		try {
			let from = 0;
			for (;;) {
				setState({ message: `searching from sample ${count(from)}…` });
				const found = await find(wanted, from);
				if (found.number !== null) {
					setState({});
					location.hash = routeText("samples", { n: found.number });
					return;
				}
				if (found.next === undefined) break;
				from = found.next;
			}
			setState({ message: `no sample has the number or the key ${wanted}` });
		} catch (error) {
			setState(error instanceof Refused ? { error } : { message: String(error) });
		}
	};
	return (
		<search>
			<form class="jump" onSubmit={go}>
				<Input label={`Number below ${count(total)}, or key`} type="text" value={text} onChange={setText} />
				<button type="submit">Go</button>
				<span role="status">{state.message}</span>
				{state.error ? <Failed failure={state.error.failure} /> : null}
			</form>
		</search>
	);
}

function Grid({ total, where, from }: { total: number; where: string; from: number }) {
	const area = useRef<HTMLDivElement>(null);
	const [size, setSize] = useState({ columns: 1, height: 600 });
	const [scrollTop, setScrollTop] = useState(0);
	const [groups, setGroups] = useState(new Map<number, Sample[]>());
	const [failure, setFailure] = useState<Refused | null>(null);
	const rows = Math.ceil(total / size.columns);
	const shown = visibleRows(rows, ROW_HEIGHT, size.height, scrollTop);
	const first = shown.first * size.columns;
	const last = Math.min(shown.last * size.columns, total);

	useEffect(() => {
		const element = area.current;
		if (!element) return;
		const observer = new ResizeObserver(() => {
			setSize({ columns: Math.max(1, Math.floor(element.clientWidth / TILE_WIDTH)), height: element.clientHeight });
		});
		observer.observe(element);
		return () => observer.disconnect();
	}, []);

	useEffect(() => {
		if (area.current) area.current.scrollTop = scrollOf(Math.floor(from / size.columns), rows, ROW_HEIGHT, size.height);
	}, [from, size.columns, rows, size.height]);

	// A scrolled area that stands for more pixels than it has moves in proportion, and a wheel would skip rows.
	useEffect(() => {
		const element = area.current;
		const factor = (rows * ROW_HEIGHT) / MOST_PIXELS;
		if (!element || factor <= 1) return;
		const wheel = (event: WheelEvent) => {
			event.preventDefault();
			element.scrollTop += event.deltaY / factor;
		};
		element.addEventListener("wheel", wheel, { passive: false });
		return () => element.removeEventListener("wheel", wheel);
	}, [rows]);

	const wanted = useMemo(() => {
		const missing: number[] = [];
		for (let group = Math.floor(first / GROUP); group * GROUP < last; group++) {
			if (!groups.has(group)) missing.push(group);
		}
		return missing;
	}, [first, last, groups]);

	useEffect(() => {
		if (wanted.length === 0) return;
		const controller = new AbortController();
		// While the reader scrolls quickly, nothing is requested.
		const timer = setTimeout(async () => {
			for (const group of wanted) {
				try {
					const found = await samples(group * GROUP, GROUP, false, where, controller.signal);
					setFailure(null);
					setGroups((old) => new Map([...[...old].slice(-KEPT), [group, found]]));
				} catch (error) {
					if (!controller.signal.aborted)
						setFailure(error instanceof Refused ? error : new Refused({ message: String(error) }));
					return;
				}
			}
		}, 80);
		return () => {
			clearTimeout(timer);
			controller.abort();
		};
	}, [wanted, where]);

	const moved = (event: KeyboardEvent) => {
		const steps: Record<string, number> = {
			ArrowLeft: -1,
			ArrowRight: 1,
			ArrowUp: -size.columns,
			ArrowDown: size.columns,
		};
		const step = steps[event.key];
		const tiles = [...(area.current?.querySelectorAll<HTMLAnchorElement>("a.tile") ?? [])];
		const at = tiles.indexOf(document.activeElement as HTMLAnchorElement);
		if (step === undefined || at < 0) return;
		event.preventDefault();
		if (tiles[at + step]) tiles[at + step]?.focus();
		else if (area.current) area.current.scrollTop += Math.sign(step) * ROW_HEIGHT;
	};

	const numbers = Array.from({ length: Math.max(last - first, 0) }, (_, at) => first + at);
	return (
		<>
			<p class="note" role="status">
				{total
					? `${where ? "Matching samples" : "Samples"} ${count(first)} to ${count(Math.max(last - 1, 0))} of ${count(total)}`
					: "No samples"}
			</p>
			{failure ? <Failed failure={failure.failure} /> : null}
			{/* biome-ignore lint/a11y/noStaticElementInteractions: the keys move the focus among the links in it */}
			<div class="grid" ref={area} onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)} onKeyDown={moved}>
				<div style={{ height: `${Math.min(rows * ROW_HEIGHT, MOST_PIXELS)}px` }}>
					<ul
						style={{
							transform: `translateY(${shown.top}px)`,
							gridTemplateColumns: `repeat(${size.columns}, minmax(0, 1fr))`,
						}}
					>
						{numbers.map((number) => {
							const sample = groups.get(Math.floor(number / GROUP))?.[number % GROUP];
							return (
								<li key={number} style={{ height: `${ROW_HEIGHT - 8}px` }}>
									{sample ? (
										<Tile sample={sample} where={where} at={number} />
									) : (
										<a class="tile loading" href={routeText("samples", where ? { where, at: number } : { n: number })}>
											<span class="tile-number">{where ? "…" : count(number)}</span>
										</a>
									)}
								</li>
							);
						})}
					</ul>
				</div>
			</div>
		</>
	);
}

/** One sample: at a position in the dataset, or among the samples that meet the condition `where`. */
function Single({ facts, total, at, where }: { facts: Facts; total: number; at: number; where: string }) {
	const loaded = useLoaded((signal) => samples(at, 1, true, where, signal), [at, where]);
	const sample = loaded.value?.[0];
	const number = sample?.number ?? at;
	const hasBefore = at > 0;
	const hasAfter = at + 1 < total;
	const single = (next: number) => routeText("samples", where ? { where, at: next } : { n: next });
	const grid = routeText("samples", { where, from: at });

	useEffect(() => {
		const pressed = (event: KeyboardEvent) => {
			const target = event.target as Element;
			if (event.altKey || event.ctrlKey || event.metaKey || target.closest("input, select, audio, video, pre")) return;
			if (event.key === "ArrowLeft" && hasBefore) location.hash = single(at - 1);
			else if (event.key === "ArrowRight" && hasAfter) location.hash = single(at + 1);
			else if (event.key === "Escape") location.hash = grid;
			else return;
			event.preventDefault();
		};
		addEventListener("keydown", pressed);
		return () => removeEventListener("keydown", pressed);
	}, [at, where, hasBefore, hasAfter]);

	const view = facts.view === null ? [] : [`--view=${facts.view}`];
	const options = [...view, ...facts.options].map((option) => ` ${quoted(option)}`).join("");
	return (
		<article>
			<h1>Sample {where && !sample ? "…" : count(number)}</h1>
			<nav class="steps" aria-label="Samples">
				{hasBefore ? <a href={single(at - 1)}>← {where ? "before" : count(at - 1)}</a> : null}
				<a href={grid}>Grid</a>
				{hasAfter ? <a href={single(at + 1)}>{where ? "after" : count(at + 1)} →</a> : null}
			</nav>
			{where ? (
				<p class="note">
					{count(at + 1)} of {count(total)} with <code>{visible(where)}</code>
				</p>
			) : null}
			<Status of={loaded} />
			{loaded.value && !sample ? (
				<p class="failed">
					there is no sample {count(at)}: the dataset has {count(total)}
				</p>
			) : null}
			{sample?.error ? <Failed failure={sample.error} /> : null}
			{sample?.file ? (
				<p class="note">
					shard <a href={routeText("shards", { shard: sample.shard })}>{visible(sample.file)}</a>, position{" "}
					{count(sample.at ?? 0)}
				</p>
			) : null}
			{sample?.fields?.map((field) => (
				<FieldView key={`${number}/${field.name}`} field={field} sample={number} />
			))}
			{isReport() || !sample || facts.kind === "source" ? null : <Origin key={number} number={number} />}
			{facts.kind === "source" ? (
				<Copy label="CLI" text={`shardmill head ${quoted(facts.location)} -n ${number + 1} --json${options}`} />
			) : (
				<Copy label="CLI" text={`shardmill cat ${quoted(facts.location)} ${number}${options}`} />
			)}
			{hasPython(facts) ? <Copy label="Python" text={`${pythonDataset(facts)}[${number}]`} /> : null}
		</article>
	);
}

interface Delivered {
	sample: { file?: string | null; row?: number | null };
	steps: { epoch: number; step: number; rank: number }[];
}

/** Where the sample came from, as far as the dataset records it. */
function Origin({ number }: { number: number }) {
	const [wanted, setWanted] = useState(false);
	const loaded = useLoaded(
		async (signal) => (wanted ? run<Delivered>("which", { sample: number }, signal) : undefined),
		[wanted, number],
	);
	const found = loaded.value?.output[0]?.sample;
	return (
		<section aria-label="Source">
			{wanted ? <Status of={loaded} /> : null}
			{wanted && found ? (
				<p class="note">
					{found.file
						? `from ${visible(found.file)}${found.row == null ? "" : `, row ${count(found.row)}`}`
						: "the dataset does not record its source"}
				</p>
			) : null}
			{wanted ? null : (
				<button type="button" onClick={() => setWanted(true)}>
					Where does it come from?
				</button>
			)}
		</section>
	);
}
