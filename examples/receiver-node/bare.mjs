// A receiver of Elido's webhooks that needs Node.js 20 and nothing else.
//
//	WEBHOOK_SECRET=whsec_… node bare.mjs
//
// For a program of your own take verify() and receive(), and put your work
// into handle(). docs/receiving.md says why each step is there.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const maxBody = 1 << 20; // bytes
const tolerance = 300; // seconds, into the past and into the future
const remember = 14 * 24 * 60 * 60 * 1000; // milliseconds

// While a secret is being replaced, give both: WEBHOOK_SECRET="whsec_new whsec_old".
const secrets = (process.env.WEBHOOK_SECRET ?? "").split(/\s+/).filter(Boolean);
if (secrets.length === 0 || secrets.some((secret) => secret.length < 24)) {
  console.error("WEBHOOK_SECRET: give the whole whsec_… string that the endpoint was created with");
  process.exit(1);
}

// A Refusal is answered with its status. Whatever is not 2xx comes again.
class Refusal extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

// verify throws a Refusal unless body, a Buffer of the bytes as they were
// received, was signed with one of the secrets within the tolerance. (Node.js
// joins headers that are there twice with a comma, which no pattern here allows.)
function verify(headers, body) {
  const signatures = [];
  // The second one is there while a secret is being replaced, signed with the old one.
  for (const name of ["x-elido-signature", "x-elido-signature-previous"]) {
    const value = headers[name];
    if (!value?.startsWith("v1=")) continue; // not there, or of a version yet to come
    if (!/^v1=[0-9a-f]{64}$/.test(value)) throw new Refusal(400, `malformed header: ${name}`);
    signatures.push(Buffer.from(value.slice("v1=".length), "hex"));
  }
  if (signatures.length === 0) throw new Refusal(400, "no signature");

  const timestamp = headers["x-webhook-timestamp"];
  if (!/^[1-9][0-9]{0,11}$/.test(timestamp)) throw new Refusal(400, "missing or malformed header: x-webhook-timestamp");
  const age = Math.floor(Date.now() / 1000) - Number(timestamp);
  if (Math.abs(age) > tolerance) throw new Refusal(400, age > 0 ? "stale timestamp" : "timestamp in the future");

  let genuine = false;
  for (const secret of secrets) { // the key is the whole string, "whsec_" included
    const wanted = createHmac("sha256", secret).update(`${timestamp}.`).update(body).digest();
    for (const signature of signatures) {
      // Both have 32 bytes, which timingSafeEqual insists on.
      if (timingSafeEqual(wanted, signature)) genuine = true;
    }
  }
  if (!genuine) throw new Refusal(401, "wrong signature");
}

function readBody(request) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    let size = 0;
    request.on("data", (chunk) => {
      size += chunk.length;
      if (size <= maxBody) chunks.push(chunk);
      else reject(new Refusal(413, "body too large")); // what still comes is dropped
    });
    request.on("end", () => resolve(Buffer.concat(chunks)));
    request.on("error", reject);
  });
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// handle does what is to be done about an event, and throws if it could not.
// The sender waits 10 seconds: store the event here, in a table or a queue, and
// do what takes time afterwards.
let failures = Number(process.env.FAIL_FIRST ?? 0); // to see what happens: fail this often
async function handle(event) {
  if (failures-- > 0) throw new Error(`FAIL_FIRST: no work done for ${event.type}`);
}

// The deliveries that were handled, and when. A restart forgets this map: where
// that matters, use a table with the delivery id as primary key, written in the
// transaction that stores the event.
const handled = new Map();
const busy = new Set(); // those being handled right now

async function receive(request) {
  const body = await readBody(request);
  verify(request.headers, body);

  const delivery = request.headers["x-webhook-delivery"];
  if (!/^[0-9]{1,20}$/.test(delivery)) throw new Refusal(400, "missing or malformed header: x-webhook-delivery");
  let event;
  try {
    // JSON.parse rounds integers above 2^53; nothing else should parse the body.
    event = JSON.parse(body.toString("utf8"));
  } catch {
    throw new Refusal(400, "not JSON");
  }
  if (typeof event?.type !== "string" || !isObject(event.data)) throw new Refusal(400, "not an event");

  if (busy.has(delivery)) throw new Refusal(503, "being handled already"); // comes again, should the other one fail
  const duplicate = handled.has(delivery);
  if (!duplicate) {
    busy.add(delivery);
    try {
      await handle(event);
      handled.set(delivery, Date.now()); // after the work, never before
    } finally {
      busy.delete(delivery);
    }
    for (const [id, at] of handled) { // the oldest comes first
      if (Date.now() - at < remember) break;
      handled.delete(id);
    }
  }
  console.log(JSON.stringify({ delivery, type: event.type, duplicate, data: event.data }));
}

const server = createServer(async (request, response) => {
  const answer = (status, text = "") => response.writeHead(status, { "Content-Type": "text/plain" }).end(text);
  if (request.url !== "/webhooks") return answer(404);
  if (request.method !== "POST") return response.writeHead(405, { Allow: "POST" }).end();
  try {
    await receive(request);
    answer(200);
  } catch (error) {
    console.error(error instanceof Refusal ? `refused: ${error.message}` : error);
    // The sender's delivery log shows the text, so it holds nothing private.
    if (error instanceof Refusal) answer(error.status, error.message);
    else answer(500, "internal error");
  }
});
server.requestTimeout = 10_000; // milliseconds for the whole request
server.listen(Number(process.env.PORT ?? 8090), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/webhooks`);
});
