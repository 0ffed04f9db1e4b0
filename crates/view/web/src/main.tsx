// The page: its navigation, its keys, and the page that the address names.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { begin, type Facts, facts, isReport } from "./api";
import { parseRoute, routeText, visible } from "./format";
import { Columns } from "./pages/columns";
import { Live } from "./pages/live";
import { Order } from "./pages/order";
import { Overview } from "./pages/overview";
import { Plan } from "./pages/plan";
import { Samples } from "./pages/samples";
import { Shards } from "./pages/shards";
import { Status, useLoaded } from "./parts";

const PAGES: [string, string, typeof Samples][] = [
	["overview", "Overview", Overview],
	["samples", "Samples", Samples],
	["columns", "Columns", Columns],
	["shards", "Shards", Shards],
	["order", "Order", Order],
	["plan", "Plan", Plan],
	["live", "Live", Live],
];

/** A report has no server that could run a simulation. */
const OF_REPORTS = ["overview", "samples", "columns", "shards"];

/** A source has no shards yet. */
const OF_SOURCES = ["overview", "samples", "columns"];

/** Returns whether there is something to show on a page. */
function hasPage(name: string, facts: Facts | undefined): boolean {
	if (isReport() && !OF_REPORTS.includes(name)) return false;
	if (facts?.kind === "source" && !OF_SOURCES.includes(name)) return false;
	return name !== "live" || !!facts?.metrics;
}

function App() {
	const [route, setRoute] = useState(parseRoute(location.hash));
	const loaded = useLoaded(facts, []);
	const pages = PAGES.filter(([name]) => hasPage(name, loaded.value));
	const page = pages.find(([name]) => name === route.page) ?? pages[0];
	const name = loaded.value?.location;

	useEffect(() => {
		const changed = () => setRoute(parseRoute(location.hash));
		addEventListener("hashchange", changed);
		return () => removeEventListener("hashchange", changed);
	}, []);

	useEffect(() => {
		document.title = `${page?.[1] ?? ""} · ${visible(name ?? "shardmill")}`;
	}, [page, name]);

	useEffect(() => {
		const pressed = (event: KeyboardEvent) => {
			if (event.altKey || event.ctrlKey || event.metaKey || (event.target as Element).closest("input, select")) return;
			const chosen = pages[Number(event.key) - 1];
			if (chosen) location.hash = routeText(chosen[0]);
			else if (event.key === "/") {
				location.hash = location.hash.startsWith("#/samples") ? location.hash : routeText("samples");
				setTimeout(() => document.querySelector<HTMLInputElement>(".jump input")?.focus());
			} else return;
			event.preventDefault();
		};
		addEventListener("keydown", pressed);
		return () => removeEventListener("keydown", pressed);
	}, [pages]);

	const Page = page?.[2];
	return (
		<>
			<header>
				<b>shardmill</b>
				<nav aria-label="Pages">
					{pages.map(([name, title], at) => (
						<a
							key={name}
							href={routeText(name)}
							aria-current={name === page?.[0] ? "page" : undefined}
							title={`key ${at + 1}`}
						>
							{title}
						</a>
					))}
				</nav>
			</header>
			<main data-page={page?.[0]}>
				<Status of={loaded} />
				{loaded.value && Page ? <Page facts={loaded.value} values={route.values} /> : null}
			</main>
			<footer>
				{isReport() ? "A report of " : ""}shardmill {loaded.value?.version}. Keys: 1 to {pages.length} for pages, / to
				search, arrows for samples, Esc for the grid.
			</footer>
		</>
	);
}

begin();
const root = document.getElementById("app");
if (root) render(<App />, root);
