// Every page, in both themes, on a desk and on a phone: is it valid, can everybody
// use it, does it fit? With SCREENSHOTS=directory each is kept as a picture.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { HtmlValidate } from "html-validate";
import { launch, open, start } from "./host.mjs";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const validator = new HtmlValidate({ extends: ["html-validate:standard", "html-validate:a11y"] });
const pictures = process.env.SCREENSHOTS;
if (pictures) mkdirSync(pictures, { recursive: true });

let host, browser, failed, delivered;
before(async () => {
  [host, browser] = await Promise.all([start(), launch()]);
  await fill();
});
after(async () => { await browser?.close(); await host?.stop(); });

// fill makes something to look at: an endpoint that delivers and fails, one that is
// paused, one of each other kind.
async function fill() {
  const api = async (method, path, body) => {
    const answer = await fetch(host.address + "/api/v1/workspaces/42/webhooks" + path, {
      method, headers: { "content-type": "application/json" }, body: body && JSON.stringify(body),
    });
    assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.clone().text()}`);
    return answer.status === 204 ? {} : answer.json();
  };
  const { endpoint: paused } = await api("POST", "", {
    url: "https://hooks.example.com/a/rather/long/path/that/has/to/break/somewhere?tenant=42&source=links", kind: "event",
    events: ["link.*", "domain.verified", "domain.ssl_failed", "member.invited", "audit.event", "usage.threshold_80"],
    description: "Paused: <b>until</b> the migration is over", headers: { "X-Team": "billing", Authorization: "Bearer hunter2" }, max_in_flight: 4, rate_limit: 2.5,
  });
  await api("PATCH", `/${paused.id}`, { is_active: false });
  await api("POST", "", { kind: "siem", url: host.receiver + "?siem" });
  await api("POST", "", { kind: "telegram", events: ["member.*"], config: { chat_id: "-1001234567890", bot_token: "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9" } });
  for (let i = 0; i < 3; i++) await host.publish();
  await host.tell("fails");
  for (let i = 0; i < 2; i++) await host.publish("link.deleted");
  const settled = async (status) => (await api("GET", `/1/deliveries?status=${status}&type=link.${status === "failed" ? "deleted" : "created"}`)).deliveries;
  while (!(failed = (await settled("failed"))[0]?.id)) await new Promise((resolve) => setTimeout(resolve, 50));
  while (!(delivered = (await settled("delivered"))[0]?.id)) await new Promise((resolve) => setTimeout(resolve, 50));
  await host.tell("works");
  await api("POST", "/1/rotate-secret", { seen_rotations: 0 });
}

const pages = () => ({
  endpoints: "", form: "/new", endpoint: "/1", paused: "/2", siem: "/3", edit: "/2/edit", rotate: "/1/rotate", delete: "/2/delete", recover: "/1/recover",
  log: "/1/deliveries", "log-empty": "/1/deliveries?status=failed&type=test", "log-mistake": "/1/deliveries?since=soon", delivery: `/1/deliveries/${failed}`, gone: "/99",
});

// inspect looks at the page that is open: is it valid HTML, can everybody use it,
// does it fit? What only a form leads to is taken from the browser, in its spelling.
async function inspect(page, name, picture, { valid = true, axe = true } = {}) {
  if (valid) {
    const text = await page.evaluate(async (again) => again ? (await fetch(location.href)).text() : "<!doctype html>" + document.documentElement.outerHTML, !name.includes("form:"));
    const report = await validator.validateString(text);
    assert.deepEqual(report.results.flatMap((r) => r.messages).map((m) => `${m.line}: ${m.message} (${m.ruleId})`), [], `${name}: HTML`);
  }
  if (axe) {
    await page.evaluate(axeSource);
    const found = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
    assert.deepEqual(found.violations.map((v) => `${v.impact}: ${v.id}: ${v.nodes.map((n) => n.target + " " + n.failureSummary).join("; ")}`), [], `${name}: axe`);
  }
  await fits(page, name);
  if (pictures) await page.screenshot({ path: join(pictures, picture + ".png"), fullPage: true });
  assert.deepEqual(page.complaints, [], name);
}

async function fits(page, name) {
  const [width, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width <= room, `${name} is ${width} wide, with room for ${room}`);
}

const views = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: { colorScheme: "light", viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true },
};

for (const [view, options] of Object.entries(views)) {
  test(`every page, ${view}`, async () => {
    const page = await open(browser, options);
    for (const [name, path] of Object.entries(pages())) {
      await page.goto(host.top + path);
      if (name === "endpoint" || name === "edit") for (const details of await page.locator("details:not([open]) > summary").all()) await details.click();
      // The HTML is the same in every view, and what axe looks at the same on a phone but for what is hidden there.
      await inspect(page, name, `${view}-${name}`, { valid: view === "light", axe: view !== "phone" || ["endpoints", "endpoint", "log", "delivery"].includes(name) });
    }
    // What only a form leads to.
    await page.goto(host.top + "/new");
    await page.getByLabel("URL").fill("http://example.com");
    await page.getByText("Further settings").click();
    await page.getByLabel("Other event types").fill("link.craeted");
    await page.getByLabel("Extra headers").fill("Authorization: Bearer hunter2");
    await page.getByRole("button", { name: "Add endpoint" }).click();
    await page.getByText("Not saved yet.").waitFor();
    await inspect(page, "form: mistakes", `${view}-mistakes`);
    await page.getByLabel("URL").fill(host.receiver);
    await page.getByLabel("Other event types").fill("");
    await page.getByLabel("Extra headers").fill("");
    await page.getByRole("button", { name: "Add endpoint" }).click();
    await page.getByText("sends to the same place already").waitFor();
    await inspect(page, "form: twin", `${view}-twin`);
    await page.getByLabel("Add another one all the same").check();
    await page.getByRole("button", { name: "Add endpoint" }).click();
    await page.getByText("Copy the signing secret now").waitFor();
    await inspect(page, "form: secret", `${view}-secret`);
    await page.context().close();
  });
}

test("other languages", async () => {
  for (const [locale, title] of Object.entries({ "de-AT": "Endpunkte", "ru-RU": "Эндпоинты", "ja-JP": "エンドポイント", "pt-PT": "Endpoints" })) {
    const page = await open(browser, { ...views.phone, locale });
    for (const name of ["endpoints", "form", "endpoint", "rotate", "log", "delivery", "gone"]) {
      await page.goto(host.top + pages()[name]);
      if (name === "endpoints") assert.equal(await page.getByRole("heading", { level: 1 }).innerText(), title);
      await fits(page, `${locale}: ${name}`);
      if (pictures) await page.screenshot({ path: join(pictures, `${locale.slice(0, 2)}-${name}.png`), fullPage: true });
    }
    assert.deepEqual(page.complaints, []);
    await page.context().close();
  }
  for (const [locale, colorScheme] of [["de-DE", "light"], ["ja-JP", "dark"]]) {
    const page = await open(browser, { locale, colorScheme });
    for (const name of ["endpoint", "form"]) {
      await page.goto(host.top + pages()[name]);
      await inspect(page, name, `${locale.slice(0, 2)}-desk-${name}`);
    }
    await page.context().close();
  }
});
