// A receiver that knows nothing of Elido: whatever arrives at /hooks it gives to
// the npm packages of Stripe and Standard Webhooks, as their documentation has
// it, and answers what they say. The tests of this folder talk to it.
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';
import Stripe from 'stripe';

const libraries = {
  stripe: {
    header: 'elido-signature',
    verify: (body, headers, secret) => Stripe.webhooks.constructEvent(body, headers['elido-signature'], secret),
    sign: (body, secret) => ({
      'Elido-Signature': Stripe.webhooks.generateTestHeaderString({ payload: body.toString(), secret }),
    }),
  },
  standardwebhooks: {
    header: 'webhook-signature',
    verify: (body, headers, secret) => new Webhook(secret).verify(body, headers),
    sign: (body, secret) => {
      const now = new Date();
      return {
        'Webhook-Id': '7',
        'Webhook-Timestamp': String(Math.floor(now / 1000)),
        'Webhook-Signature': new Webhook(secret).sign('7', now, body),
      };
    },
  },
};

let secrets = {}; // by the names that the tests have for them

// verdict is the type of the event that a library made of a request, or why it
// made none.
function verdict(library, body, headers, secret) {
  try {
    return library.verify(body, headers, secret).type;
  } catch (error) {
    return `refused: ${error.message.split('\n')[0]}`;
  }
}

function judge(body, headers) {
  const all = {};
  for (const [name, library] of Object.entries(libraries)) {
    if (!(library.header in headers)) continue;
    all[name] = {};
    for (const [which, secret] of Object.entries(secrets)) {
      all[name][which] = verdict(library, body, headers, secret);
      all[name][`${which}, altered`] = verdict(library, Buffer.concat([body, Buffer.from(' ')]), headers, secret);
    }
  }
  return all;
}

const routes = {
  'PUT /secrets': (body) => {
    secrets = JSON.parse(body);
    return {};
  },
  'POST /hooks': judge,
  'POST /sign': (body) => {
    const { library, secret, text } = JSON.parse(body);
    return libraries[library].sign(Buffer.from(text), secret);
  },
};

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const route = routes[`${request.method} ${request.url}`];
  response.writeHead(route ? 200 : 404, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(route ? route(Buffer.concat(chunks), request.headers) : {}));
});
server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
process.stdin.on('end', () => process.exit(0)).resume(); // whoever started it is gone
