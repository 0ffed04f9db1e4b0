// JSON as it is written. The parser of a browser rounds numbers and reorders keys. Pure functions.

/** A number, a string or a word as it is written, or the members of an array or of an object in their order. */
export type Node = string | Members;

export interface Members {
	isArray: boolean;
	members: [string, Node][];
}

const TOKEN = /[{}[\]]|"(?:[^"\\]+|\\.)*"|[^\s,:{}[\]"]+/g;

/** Parses JSON. Throws an error for text that is not JSON. */
export function parseTree(text: string): Node {
	JSON.parse(text);
	const root: Members = { isArray: true, members: [] };
	const open = [root];
	let key: string | undefined;
	for (const [token] of text.matchAll(TOKEN)) {
		const within = open.at(-1) ?? root;
		if (token === "}" || token === "]") open.pop();
		else if (!within.isArray && key === undefined) key = JSON.parse(token);
		else {
			const opens = token === "{" || token === "[";
			const node = opens ? { isArray: token === "[", members: [] } : token;
			within.members.push([key ?? String(within.members.length), node]);
			key = undefined;
			if (typeof node !== "string") open.push(node);
		}
	}
	return root.members[0]?.[1] ?? "null";
}

/** Parses JSON. A number that would be written otherwise, such as `1.0` or one beyond 2^53, becomes its text. */
export function parseExact(text: string): unknown {
	return exactValue(parseTree(text));
}

function exactValue(node: Node): unknown {
	if (typeof node === "string") {
		const value = JSON.parse(node);
		return typeof value === "number" && String(value) !== node ? node : value;
	}
	const members = node.members.map(([name, member]): [string, unknown] => [name, exactValue(member)]);
	return node.isArray ? members.map(([, member]) => member) : Object.fromEntries(members);
}
