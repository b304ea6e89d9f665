"""The dashboard's scripts in Node, each with as much of a browser as it needs."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import playwright
import pytest

import api.admin.router
from api.admin.shell import _ENVIRONMENT

NODE = Path(playwright.__file__).parent / "driver" / "node"
"""The one that Playwright brings."""
SCRIPTS = Path(api.admin.router.__file__).parent / "static"
BROWSER = """
export const elements = {};  // of the page, by id
export const made = [];  // by the scripts
export const listeners = {};  // of the whole page, by type

export class Element extends EventTarget {
  constructor(more = {}) {
    super();
    Object.assign(this, { dataset: {}, textContent: "", hidden: false }, more);
  }
  append() {}
  remove() {}
  removeAttribute() {}
  setAttribute() {}
}

const listen = (type, listener) => { listeners[type] = listener; };
const createElement = () => { made.push(new Element()); return made.at(-1); };
Object.assign(globalThis, {
  addEventListener: listen,
  setTimeout: () => {},
  location: { href: "http://127.0.0.1/admin/kv", pathname: "/admin/kv", search: "" },
  document: {
    addEventListener: listen,
    createElement,
    getElementById: (id) => (elements[id] ??= new Element()),
    querySelector: () => ({ content: "" }),
  },
});
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], Any]:
    """Runs a module that imports the scripts, and gives the value that it prints as JSON."""
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "browser.js").write_text(BROWSER)

    def run(module: str) -> Any:
        (tmp_path / "test.js").write_text(module)
        done = subprocess.run([NODE, "test.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_one_yes_confirms_one_action(run: Callable[[str], Any]):
    """Presses of two buttons that waited for the page's scripts ask at the same moment."""
    asked, *answers = run("""
        import { Element, elements } from "./browser.js";
        import { confirmed } from "./confirm.js";

        const dialog = elements.confirm = new Element({ open: false, showModal() { this.open = true; } });
        const both = [confirmed("Delete A?"), confirmed("Delete B?")];
        const asked = elements["confirm-text"].textContent;
        Object.assign(dialog, { open: false, returnValue: "yes" }).dispatchEvent(new Event("close"));
        console.log(JSON.stringify([asked, ...await Promise.all(both)]));
    """)

    assert (asked, answers) == ("Delete A?", [True, False])


def test_a_refresh_that_fails_gives_the_services_reason(run: Callable[[str], Any]):
    reason = run("""
        import "./browser.js";
        import { refresh } from "./swap.js";

        globalThis.fetch = async (url, { headers }) => (
          headers.get("Accept")?.includes("text/html")
            ? new Response("<!doctype html>", { status: 404 })
            : Response.json({ title: "Not Found", detail: "there is no evaluation 'abc'" }, { status: 404 })
        );
        console.log(JSON.stringify(await refresh("kv").catch((error) => error.message)));
    """)

    assert reason == "there is no evaluation 'abc'"


def test_a_page_that_takes_long_is_refreshed_less_often(run: Callable[[str], Any]):
    pauses = run("""
        import { Element } from "./browser.js";
        import { startPolling } from "./poll.js";

        const pauses = [];
        let now = 0;
        globalThis.performance = { now: () => now };
        globalThis.setTimeout = (go, ms) => { pauses.push(ms); if (pauses.length < 4) go(); };
        globalThis.DOMParser = class { parseFromString() { return { querySelector: document.querySelector, getElementById: () => null }; } };
        const tookMs = [3000, 8000, 20];
        globalThis.fetch = async () => { now += tookMs.shift(); return new Response(""); };
        document.querySelectorAll = () => [new Element({ id: "live", isConnected: true, dataset: { poll: "4s" } })];
        document.dispatchEvent = () => {};
        const { querySelector } = document;
        document.querySelector = (what) => (what.startsWith("dialog") ? null : querySelector(what));
        startPolling();
        while (pauses.length < 4) await new Promise((resolve) => setImmediate(resolve));
        console.log(JSON.stringify(pauses));
    """)

    assert pauses == [4000, 30_000, 60_000, 4000]


VERIFICATION = """
    import { Element, elements, listeners, made } from "./browser.js";
    await import("./kv.js");

    const button = new Element({ dataset: { verify: "/v1/kv/verify", name: "all KV" } });
    async function verified() {
      listeners.click({ target: { closest: () => button } });
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      return elements["verification-text"].textContent;
    }
"""


def test_a_verification_that_breaks_off_says_so_in_words_of_ours(run: Callable[[str], Any]):
    said = run(
        VERIFICATION
        + """
        globalThis.fetch = async () => new Response(new ReadableStream({ pull: (body) => body.error(new TypeError("Load failed")) }));
        console.log(JSON.stringify(await verified()));
        """
    )

    assert said == "The connection broke before all files were read: try again."


def test_the_result_of_a_verification_stays_where_the_page_cannot_be_refreshed(run: Callable[[str], Any]):
    said, announced = run(
        VERIFICATION
        + """
        const found = { checked: 3, total: 3, bytes: 5, damaged: 1, missing: 0, unusable: 0, documents: ["a"] };
        globalThis.fetch = async (url) => {
          if (url !== "/v1/kv/verify") throw new TypeError("fetch failed");
          return new Response(`event: done\\ndata: ${JSON.stringify(found)}\\n\\n`);
        };
        console.log(JSON.stringify([await verified(), made.map((toast) => toast.textContent)]));
        """
    )

    assert said == "3 files, 5 B: 1 damaged file removed. Rebuild 1 document to compute them again."
    assert announced == ["the service does not respond: is it running?"]


def test_an_evaluation_of_a_long_set_takes_its_first_questions(run: Callable[[str], Any]):
    sent = run("""
        import { Element, elements } from "./browser.js";

        const fields = [
          new Element({ type: "select-one", name: "source", value: "given" }),
          new Element({ type: "number", name: "limit", value: "2" }),
        ];
        fields.source = fields[0];
        const [button, complaint] = [new Element(), new Element()];
        elements.start = new Element({ elements: fields, querySelector: (what) => (what === ".error" ? complaint : button) });
        const lines = [1, 2, 3].map((number) => JSON.stringify({ question: `Q${number}` })).join("\\n\\n");
        elements["set-file"] = new Element({ files: [{ name: "set.jsonl", text: async () => lines }] });
        globalThis.fetch = async (url, { body }) => {
          console.log(body);
          return Response.json({ id: "abc" });
        };
        location.assign = () => {};
        await import("./evaluations.js");
        elements.start.dispatchEvent(new Event("submit"));
    """)

    assert sent == {"source": "given", "limit": 2, "questions": [{"question": "Q1"}, {"question": "Q2"}]}


@pytest.mark.parametrize(
    "progress", [{"stage": "reread", "status": "searchable"}, {"stage": "ocr", "done": 1200, "total": 3400}]
)
def test_progress_is_told_in_the_words_of_the_page_that_it_updates(run: Callable[[str], Any], progress: dict[str, Any]):
    words = run(f"""
        import {{ inWords }} from "./progress.js";
        console.log(JSON.stringify(inWords({json.dumps(progress)})));
    """)

    assert f">{words}<" in str(_ENVIRONMENT.get_template("parts.html").module.progress(progress, "a.pdf"))
