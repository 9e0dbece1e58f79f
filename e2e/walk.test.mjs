// The life of an endpoint, as somebody lives it in the dashboard.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, start } from "./host.mjs";

let host, browser;
before(async () => { [host, browser] = await Promise.all([start("-empty"), launch()]); });
after(async () => { await browser?.close(); await host?.stop(); });

const secretForm = /^whsec_[A-Za-z0-9+/]{43}=$/;

for (const javaScriptEnabled of [true, false]) {
  test(`the whole path, ${javaScriptEnabled ? "with" : "without"} JavaScript`, async () => {
    await host.tell("works");
    const page = await open(browser, { javaScriptEnabled, permissions: ["clipboard-read", "clipboard-write"] });
    // Pages keep themselves up to date with JavaScript, which is seen once; otherwise,
    // and without, somebody asks for them anew.
    const until = async (condition, { byItself = false } = {}) => {
      for (let i = 0; ; i++) {
        if (await condition()) return;
        assert.ok(i < 300, "it did not come to that: " + await page.locator("main").innerText());
        await new Promise((resolve) => setTimeout(resolve, 100));
        if (!byItself || !javaScriptEnabled) await page.getByRole("link", { name: "Refresh" }).click();
      }
    };
    const rows = page.locator("table.deliveries tbody tr");

    // Add an endpoint.
    await page.goto(host.top);
    await page.getByText("No endpoints yet").waitFor();
    await page.getByRole("link", { name: "Add endpoint" }).click();
    assert.deepEqual(await page.locator("[name=events]:checked").evaluateAll((ticks) => ticks.map((tick) => tick.value)), ["link.created", "link.updated", "link.deleted"]);
    await page.getByLabel("Description").fill("Mine, <b>not</b> bold");
    await page.getByRole("button", { name: "Add endpoint" }).click();
    await page.getByText("Enter the URL to send to.").waitFor();
    assert.equal(await page.getByLabel("Description").inputValue(), "Mine, <b>not</b> bold");
    await page.getByLabel("URL").fill(host.receiver);
    await page.getByRole("button", { name: "Add endpoint" }).click();

    // See the secret once.
    await page.getByRole("heading", { name: "Copy the signing secret now" }).waitFor();
    const secret = await page.locator("[data-secret]").innerText();
    assert.match(secret, secretForm);
    if (javaScriptEnabled) {
      await page.getByRole("button", { name: "Copy" }).click();
      await page.getByRole("button", { name: "Copied" }).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), secret);
    }
    await page.getByRole("link", { name: "I have copied it" }).click();
    await page.getByRole("heading", { name: host.receiver }).waitFor();
    assert.ok(!(await page.content()).includes(secret));
    const endpoint = page.url();
    if (javaScriptEnabled) { // back to a page that was left
      await page.goBack();
      assert.ok(!(await page.content()).includes(secret));
      await page.goto(endpoint);
    }

    // Publish, and watch it arrive.
    await page.getByRole("link", { name: "Delivery log" }).click();
    await page.getByText("No deliveries").waitFor();
    await host.publish();
    await until(async () => await rows.count() === 1 && (await rows.first().innerText()).includes("Delivered"), { byItself: true });
    assert.match(await rows.first().innerText(), /link\.created.*200.*ms.*1 of 3/s);
    if (javaScriptEnabled) assert.match(await page.locator("[data-spoken]").innerText(), /Updated: delivery \d+, link\.created: /);

    // Make the receiver fail, and see the attempts.
    await host.tell("fails");
    await host.publish("link.deleted");
    await until(async () => await rows.count() === 2 && (await rows.first().innerText()).includes("Failed"));
    assert.match(await rows.first().innerText(), /link\.deleted.*500.*3 of 3/s);
    await page.getByLabel("Status").selectOption("failed");
    await page.getByRole("button", { name: "Apply" }).click();
    await until(async () => await rows.count() === 1);
    await rows.first().getByRole("link").click();
    assert.equal(await page.locator("details.attempt").count(), 3);
    const latest = page.locator("details.attempt[open]");
    assert.equal(await latest.count(), 1);
    assert.match(await latest.innerText(), /Attempt 3.*500 Internal Server Error.*X-Webhook-Delivery:/s);
    assert.match(await latest.innerText(), /<script>alert\('out of order'\)<\/script>/, "what a receiver sent is text");
    assert.match(await page.locator("section:has(#payload)").innerText(), /"title": "Spring & <summer> “sale”"/);

    // Retry.
    await host.tell("works");
    await page.getByRole("button", { name: "Retry" }).click();
    await page.getByText("The delivery was queued again.").waitFor();
    await until(async () => await page.locator("details.attempt").count() === 4 && /Delivered/.test(await page.locator("dl.tiles").innerText()));
    const delivery = page.url().replace(/\?.*/, "");

    // Rotate.
    await page.goto(endpoint);
    await page.getByRole("link", { name: "Rotate secret" }).click();
    const stale = await open(browser, { javaScriptEnabled });
    await stale.goto(page.url());
    await page.getByRole("button", { name: "Rotate secret" }).click();
    await page.getByRole("heading", { name: "Copy the new signing secret now" }).waitFor();
    const second = await page.locator("[data-secret]").innerText();
    assert.match(second, secretForm);
    assert.notEqual(second, secret);
    assert.match(await page.locator("main").innerText(), /The old secret also signs until .* \(in 7 days\)/);
    await stale.getByRole("button", { name: "Rotate secret" }).click();
    await stale.getByText("The secret was rotated already").waitFor();
    assert.ok(!/whsec_[A-Za-z0-9]{8}/.test(await stale.content()));
    if (javaScriptEnabled) { // a reload does not send the form again
      await page.reload();
      await page.getByText("The previous secret also signs until").waitFor();
      assert.ok(!(await page.content()).includes(second));
    }
    await stale.context().close();

    // Pause: what is published now is never sent.
    await page.goto(endpoint);
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("This endpoint is paused.").waitFor();
    assert.ok(await page.getByRole("button", { name: "Send test event" }).isDisabled());
    await host.publish();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByText("The endpoint was resumed.").waitFor();
    await page.getByRole("button", { name: "Send test event" }).click();
    await page.getByText("A test event is on its way.").waitFor();
    await until(async () => /Delivered/.test(await page.locator("dl.tiles").innerText()));
    await page.getByRole("navigation", { name: "You are here" }).getByRole("link", { name: "Deliveries" }).click();
    assert.equal(await rows.count(), 3, "two events and a test");

    // Edit, and delete.
    await page.goto(endpoint);
    await page.getByRole("link", { name: "Edit" }).click();
    await page.getByLabel("Description").fill("Changed");
    await page.getByRole("button", { name: "Save changes" }).click();
    await page.getByText("The changes were saved.").waitFor();
    await page.getByRole("link", { name: "Delete", exact: true }).click();
    await page.getByRole("button", { name: "Delete endpoint" }).click();
    await page.getByText("The endpoint was deleted.").waitFor();
    await page.getByText("No endpoints yet").waitFor();
    assert.equal((await page.goto(delivery)).status(), 404);
    await page.getByRole("heading", { name: "There is no such endpoint" }).waitFor();

    assert.deepEqual(page.complaints, []);
    assert.ok(!host.log().includes(secret) && !host.log().includes(second));
    await page.context().close();
  });
}
