import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { AS_KEY, QUESTION, ROOT, STORE, did } from "./steps.mjs";

const client = new Client({ name: "tests", version: "1" });
const options = { requestInit: { headers: AS_KEY } };
await client.connect(new StreamableHTTPClientTransport(new globalThis.URL(`${ROOT}/mcp`), options));
const names = (await client.listTools()).tools.map((tool) => tool.name);
did("list tools", names.includes("search"), names.includes("ask"));
const asked = { question: QUESTION, collection: STORE };
const found = await client.callTool({ name: "search", arguments: asked });
did("search", found.content[0].text.includes("Billy Elliot"));
const answer = await client.callTool({ name: "ask", arguments: asked });
did("ask", answer.structuredContent.citations.length);
const wrong = await client.callTool({ name: "search", arguments: { query: QUESTION } });
did("errors", wrong.isError, wrong.content[0].text.includes("query"));
await client.close();
