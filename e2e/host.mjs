// The host that the tests look at: examples/admin, as anybody would run it, and a
// browser.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const program = join(import.meta.dirname, "bin", "admin"); // npm test builds it
const browserPath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

// start starts the program, and returns its address and what ends it.
export async function start(...args) {
  const child = spawn(program, ["-every", "0", "-retry", "150ms,250ms", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((resolve) => { child.once("exit", resolve); });
  let log = "";
  child.stderr.on("data", (text) => { log += text; });
  const address = await new Promise((resolve, reject) => {
    child.stdout.once("data", (line) => resolve(String(line).match(/http:\S+(?=\/)/)[0]));
    child.once("error", reject);
    child.once("exit", () => reject(new Error("the program ended: " + log)));
  });
  return {
    address,
    top: address + "/webhooks/workspaces/42/endpoints",
    receiver: address + "/receiver",
    log: () => log,
    async stop() {
      child.kill("SIGINT");
      await ended;
    },
    // What a person does on the host's own page.
    publish: (type = "link.created") => send(address, "/publish", { type }),
    tell: (mood) => send(address, "/tell", { mood }),
  };
}

async function send(address, path, fields) {
  const answer = await fetch(address + path, { method: "POST", body: new URLSearchParams(fields), redirect: "manual" });
  if (answer.status !== 303) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
}

export async function launch() {
  if (!browserPath) throw new Error("no Chromium: apt-get install chromium, or set CHROMIUM");
  return chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

// open opens a tab of its own. Whatever the page complains of, scripts that fail and
// what its policy refused, is in complaints.
export async function open(browser, options = {}) {
  const context = await browser.newContext({ locale: "en-US", viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("console", (message) => {
    // The browser itself tells of each answer that is an error.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) page.complaints.push(message.text());
  });
  return page;
}
