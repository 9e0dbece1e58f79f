// What goes wrong between a person, their browser and the pages.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { launch, open, start } from "./host.mjs";

let host, browser, endpoints = 0;
before(async () => { [host, browser] = await Promise.all([start("-empty"), launch()]); });
after(async () => { await browser?.close(); await host?.stop(); });
beforeEach(() => host.tell("works"));

const as = (page, user) => page.context().addCookies([{ name: "demo_user", value: user, url: host.address }]);

// add adds an endpoint and leads to its page.
async function add(page) {
  await page.goto(host.top + "/new");
  await page.getByLabel("URL").fill(host.receiver + "?n=" + ++endpoints);
  await page.getByRole("button", { name: "Add endpoint" }).click();
  await page.getByRole("link", { name: "I have copied it" }).click();
  await page.getByRole("heading", { name: host.receiver }).waitFor();
  return page.url();
}

test("the session is lost while somebody types", async () => {
  const page = await open(browser);
  await page.goto(host.top + "/new");
  await page.getByLabel("URL").fill(host.receiver + "?typed");
  await page.getByLabel("Description").fill("kept");
  await page.getByText("Further settings").click();
  await page.getByLabel("Extra headers").fill("X-Team: billing\nAuthorization: Bearer hunter2");
  await as(page, "nobody");
  await page.getByRole("button", { name: "Add endpoint" }).click();
  await page.getByText("You are signed out, so this was not saved.").waitFor();
  assert.ok(!(await page.content()).includes("hunter2"));
  const [signIn] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("link", { name: "Sign in" }).click()]);
  await signIn.getByRole("button", { name: "Somebody who may edit" }).click();
  await signIn.close();
  assert.equal(await page.getByLabel("Description").inputValue(), "kept");
  await page.getByLabel("Extra headers").fill("X-Team: billing\nAuthorization: Bearer hunter2");
  await page.getByRole("button", { name: "Add endpoint" }).click();
  await page.getByText("Copy the signing secret now").waitFor();
  await page.getByRole("link", { name: "I have copied it" }).click();
  assert.match(await page.locator("main").innerText(), /Authorization: \*\*\*.*X-Team: billing/s);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("a page that keeps itself up to date stops when it may no longer", async () => {
  const page = await open(browser);
  const endpoint = await add(page);
  await page.getByRole("button", { name: "Live" }).waitFor();
  await as(page, "nobody");
  await page.locator(".notice").getByText("This page no longer updates itself.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Live" }).getAttribute("aria-pressed"), "false");
  assert.equal((await page.reload()).status(), 401);
  await page.getByRole("heading", { name: "You are signed out" }).waitFor();
  await as(page, "viewer");
  await page.goto(endpoint);
  assert.equal(await page.locator("form[method=post]").count(), 0);
  assert.equal((await page.goto(endpoint + "/edit")).status(), 403);
  await page.getByRole("heading", { name: "You may not do this" }).waitFor();
  await page.context().close();
});

test("a page that keeps itself up to date leaves alone what somebody is at", async () => {
  const page = await open(browser);
  const endpoint = await add(page);
  await host.publish();
  const rows = page.locator("table.deliveries tbody tr");
  await rows.first().waitFor();
  await page.getByText("As a table").click();
  await page.getByRole("link", { name: "Delivery log" }).focus();
  // It can be told to stop, and asked at once by telling it to go on.
  const live = page.getByRole("button", { name: "Live" });
  await live.click();
  await host.publish("link.updated");
  await page.getByRole("link", { name: "Edit" }).focus();
  await page.getByRole("link", { name: "Delivery log" }).focus();
  await page.keyboard.press("Shift+Tab"); // back to the button
  await page.keyboard.press("Space");
  await page.waitForFunction(() => document.querySelectorAll("table.deliveries tbody tr").length === 2);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.liveSwitch), "", "the focus stays");
  assert.ok(await page.locator("#numbers").evaluate((details) => details.open), "what was opened stays open");
  assert.equal(await page.locator("tr.new").count(), 1);
  // What is selected is not taken away.
  await rows.first().getByRole("link").evaluate((link) => { getSelection().selectAllChildren(link); });
  await host.publish("link.deleted");
  await live.evaluate((button) => { button.click(); button.click(); });
  await page.waitForResponse(endpoint);
  await page.evaluate(() => new Promise(requestAnimationFrame));
  assert.equal(await rows.count(), 2);
  await page.evaluate(() => getSelection().removeAllRanges());
  await live.evaluate((button) => { button.click(); button.click(); });
  await page.waitForFunction(() => document.querySelectorAll("table.deliveries tbody tr").length === 3);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("two clicks are one, with JavaScript and without", async () => {
  for (const javaScriptEnabled of [true, false]) {
    const page = await open(browser, { javaScriptEnabled });
    const endpoint = await add(page);
    const posts = [];
    page.on("request", (request) => { if (request.method() === "POST") posts.push(request.url()); });
    await page.goto(endpoint + "/rotate");
    await page.getByRole("button", { name: "Rotate secret" }).dblclick();
    await page.locator("[data-secret], .notice.warn").first().waitFor();
    if (javaScriptEnabled) {
      assert.equal(posts.length, 1);
      assert.match(await page.locator("[data-secret]").innerText(), /^whsec_/);
    }
    await page.goto(endpoint);
    assert.match(await page.locator("main").innerText(), /Rotated 1 time\./);

    const before = await (await page.context().request.get(host.top)).text();
    await page.goto(host.top + "/new");
    await page.getByLabel("URL").fill(`${host.receiver}?twice=${javaScriptEnabled}`);
    await page.getByRole("button", { name: "Add endpoint" }).dblclick();
    await page.locator("[data-secret], #form-error").first().waitFor();
    const rows = (text) => text.split("<tr>").length;
    assert.equal(rows(await (await page.context().request.get(host.top)).text()), rows(before) + 1);
    await page.context().close();
  }
});

test("a form of another kind asks for its fields alone", async () => {
  const page = await open(browser);
  await page.goto(host.top + "/new");
  await page.getByText("Further settings").click();
  const visible = async () => (await page.locator("form label:visible").allInnerTexts()).filter((label) => ["URL", "Chat", "Bot token", "DSN", "Other event types", "Your own signing secret"].includes(label));
  for (const [kind, fields] of Object.entries({
    Webhook: ["URL", "Other event types", "Your own signing secret"], SIEM: ["URL", "Your own signing secret"], Discord: ["URL", "Other event types"],
    Telegram: ["Chat", "Bot token", "Other event types"], Sentry: ["DSN", "Other event types"],
  })) {
    await page.getByRole("radio", { name: kind }).check();
    assert.deepEqual(await visible(), fields, kind);
  }
  await page.context().close();
});

test("everything can be reached by keyboard, in an order that makes sense", async () => {
  const page = await open(browser);
  await add(page);
  const stops = [];
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press("Tab");
    stops.push(await page.evaluate(() => {
      const style = getComputedStyle(document.activeElement);
      return document.activeElement.textContent.trim() + (style.outlineStyle === "none" ? " WITHOUT AN OUTLINE" : "");
    }));
  }
  assert.deepEqual(stops.slice(0, 8), ["Skip to content", "Webhooks", "Workspace 42", "Endpoints", "Send test event", "Pause", "Edit", "Delete"]);
  assert.deepEqual(stops.filter((stop) => stop.includes("WITHOUT")), []);
  await page.goto(page.url());
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  // Mistakes are where the focus is.
  await page.goto(host.top + "/new");
  await page.getByRole("button", { name: "Add endpoint" }).click();
  await page.getByText("Not saved yet.").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "form-error");
  assert.equal(await page.getByLabel("URL").getAttribute("aria-invalid"), "true");
  await page.context().close();
});
