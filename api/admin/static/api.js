// Requests to the service. The session's cookie goes along by itself; what changes something carries its token.

const LOGIN = "/admin/login";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function csrfToken() {
  return document.querySelector('meta[name="csrf-token"]').content;
}

/** The response, if it is a good one. Throws Problem with a reason fit to show; leads to the login when the session has ended. */
export async function call(url, options = {}) {
  const headers = new Headers(options.headers);
  headers.set("X-CSRF-Token", csrfToken());
  const response = await reach(url, { ...options, headers });
  if (response.status === 401) toLogin();
  if (!response.ok) throw new Problem(response.status, await reasonOf(response));
  return response;
}

/** Send a value as JSON, if there is one; the JSON that comes back, or null. */
export async function send(method, url, value) {
  const options = { method };
  if (value !== undefined) {
    options.body = JSON.stringify(value);
    options.headers = { "Content-Type": "application/json" };
  }
  const response = await call(url, options);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** What a response with an error says. */
export async function reasonOf(response) {
  try {
    const problem = await response.json();
    return problem.detail || problem.title || `error ${response.status}`;
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
    throw new Problem(0, "the service does not answer: is it running?");
  }
}
