// As steps.py.
import assert from "node:assert";

export const { CLIENT_URL: ROOT, CLIENT_KEY: KEY, CLIENT_STORE: STORE } = process.env;
export const URL = `${ROOT}/v1`;
export const MODEL = "SmolLM2-135M-Instruct";
export const MODEL_AT = `${MODEL}@${STORE}`;
export const QUESTION = "Who composed the music of Billy Elliot?";
export const NEXT = "When was it released?";
export const AS_KEY = { Authorization: `Bearer ${KEY}` };

export function did(step, ...facts) {
  facts.forEach((fact, i) => assert.ok(fact, `${step}: fact ${i}`));
  console.log(step);
}
