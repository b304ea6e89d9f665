// Requests to the service. The browser sends the session's cookie; every request carries the CSRF token.

import { confirmed } from "./confirm.js";

const LOGIN = "/admin/login";
const ENDED = "Your session has ended.";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function csrfToken(page = document) {
  return page.querySelector('meta[name="csrf-token"]').content;
}

/** Fetch; returns a successful response. Throws Problem with a reason to show. Goes to the login if the session has ended, but
 * asks before what was typed is lost. */
export async function call(url, options = {}) {
  const headers = new Headers(options.headers);
  headers.set("X-CSRF-Token", csrfToken());
  const response = await reach(url, { ...options, headers });
  if (response.status === 401) {
    if (!options.body || (await confirmed(`${ENDED} Logging in leaves this page: copy what you typed here and still need.`, "Log in"))) toLogin();
    throw new Problem(response.status, ENDED);
  }
  if (!response.ok) throw new Problem(response.status, await reasonOf(response));
  return response;
}

/** Send FormData, or another value as JSON, if there is one; returns the JSON of the response, or null. */
export async function send(method, url, value) {
  const options = { method };
  if (value instanceof FormData) options.body = value;
  else if (value !== undefined) {
    options.body = JSON.stringify(value);
    options.headers = { "Content-Type": "application/json" };
  }
  const response = await call(url, options);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** The reason given by an error response; of a request that is not valid, its fields and what each should be. */
async function reasonOf(response) {
  try {
    const problem = await response.json();
    const invalid = problem.errors?.map(({ key, message }) => [key, message].filter(Boolean).join(": ")).join("; ");
    return invalid || problem.detail || problem.title || `error ${response.status}`;
  } catch {
    return `error ${response.status}`;
  }
}

export function toLogin() {
  const here = location.pathname + location.search;
  location.assign(`${LOGIN}?next=${encodeURIComponent(here)}`);
}

async function reach(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the service does not respond: is it running?");
  }
}
