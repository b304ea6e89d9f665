import { createMCPClient } from "@ai-sdk/mcp";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamText, tool } from "ai";
import { z } from "zod";
import { AS_KEY, KEY, MODEL, MODEL_AT, NEXT, QUESTION, ROOT, STORE, URL, did } from "./steps.mjs";

const openai = createOpenAI({ baseURL: URL, apiKey: KEY });
const compatible = createOpenAICompatible({ name: "ragkv", baseURL: URL, apiKey: KEY, supportsStructuredOutputs: true });
const model = openai.chat(MODEL_AT);
const schema = z.object({ name: z.string() });

const answer = await generateText({ model, prompt: QUESTION });
did("answer", answer.text, answer.sources[0].title);
const stream = streamText({ model, prompt: QUESTION });
did("stream", (await stream.text) === answer.text);
const turns = [{ role: "user", content: QUESTION }, ...answer.response.messages, { role: "user", content: NEXT }];
did("second turn", (await generateText({ model, messages: turns })).text);
did("sampling", (await generateText({ model, prompt: QUESTION, temperature: 0.7, topP: 0.9, seed: 1 })).text);
const objects = [model, compatible(MODEL_AT)].map((kind) =>
  generateObject({ model: kind, schema, prompt: QUESTION, maxOutputTokens: 200 }),
);
did("structured answer", ...(await Promise.all(objects)).map(({ object }) => typeof object.name === "string"));
const add = tool({ description: "Add two numbers.", inputSchema: z.object({ a: z.number() }), execute: async () => 0 });
did("tools offered", (await generateText({ model, prompt: QUESTION, tools: { add } })).text);
const fileSearch = openai.tools.fileSearch({ vectorStoreIds: [STORE], maxNumResults: 4 });
const tools = { file_search: fileSearch };
const found = await generateText({ model: openai.responses(MODEL), prompt: QUESTION, tools });
did("file search", found.text, found.sources.length);
const searched = streamText({ model: openai.responses(MODEL), prompt: QUESTION, tools });
did("file search stream", (await searched.text) === found.text);

const mcp = await createMCPClient({ transport: { type: "http", url: `${ROOT}/mcp`, headers: AS_KEY } });
const { search } = await mcp.tools();
const passages = await search.execute({ question: QUESTION, collection: STORE }, { toolCallId: "1", messages: [] });
did("MCP", JSON.stringify(passages).includes("Billy Elliot"));
await mcp.close();
