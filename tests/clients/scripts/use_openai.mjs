import OpenAI, { toFile } from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { KEY, MODEL, MODEL_AT, NEXT, QUESTION, STORE, URL, did } from "./steps.mjs";

const client = new OpenAI({ baseURL: URL, apiKey: KEY });
const messages = [{ role: "user", content: QUESTION }];
const search = { type: "file_search", vector_store_ids: [STORE] };
const add = { type: "function", function: { name: "add", parameters: { type: "object", properties: {} } } };

const answer = (await client.chat.completions.create({ model: MODEL_AT, messages })).choices[0].message;
did("answer", answer.content, answer.citations.length, answer.annotations[0].url_citation.title);

const stream = client.chat.completions.stream({ model: MODEL_AT, messages });
did("stream", (await stream.finalContent()) === answer.content);

const turns = [...messages, answer, { role: "user", content: NEXT }];
did("second turn", (await client.chat.completions.create({ model: MODEL_AT, messages: turns })).choices[0].message.content);

did("sampling", (await client.chat.completions.create({ model: MODEL_AT, messages, temperature: 0.7 })).choices.length);

const response_format = zodResponseFormat(z.object({ name: z.string() }), "person");
const typed = await client.chat.completions.parse({ model: MODEL_AT, messages, response_format, max_tokens: 200 });
did("structured answer", typeof typed.choices[0].message.parsed.name === "string");

const offered = await client.chat.completions.create({ model: MODEL_AT, messages, tools: [add] });
did("tools offered", offered.choices[0].message.content);

const response = await client.responses.create({ model: MODEL, input: QUESTION, tools: [search] });
did("file search", response.output_text, response.output[1].content[0].annotations.length);

const events = client.responses.stream({ model: MODEL, input: QUESTION, tools: [search] });
did("file search stream", (await events.finalResponse()).output_text === response.output_text);

const store = await client.vectorStores.create({ name: "node" });
const file = await toFile(Buffer.from("Das Wrack liegt östlich des Riffs."), "Löschübung.md");
did("upload", (await client.vectorStores.files.uploadAndPoll(store.id, file)).status === "completed");
did("search", (await client.vectorStores.search(STORE, { query: QUESTION })).data[0].filename === "films.md");
