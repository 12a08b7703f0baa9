// Vendors' own clients, as their documentation begins.
import { Readable } from 'node:stream';
import { run } from './scenarios.mjs';

await run({
  async videos() {
    const { google } = await import('googleapis');
    const youtube = google.youtube({ version: 'v3', auth: 'an-example' });
    let videos = 0;
    for (let pageToken; ; ) {
      const { data } = await youtube.videos.list({ part: ['id'], pageToken });
      videos += data.items.length;
      pageToken = data.nextPageToken;
      if (!pageToken) return `${videos} videos`;
    }
  },
  async insert() {
    const { google } = await import('googleapis');
    const youtube = google.youtube({ version: 'v3', auth: 'an-example' });
    const { data } = await youtube.videos.insert({ part: ['id'], requestBody: {}, media: { body: Readable.from([Buffer.alloc(300_000)]) } });
    return data.id;
  },
  async issues() {
    const { Octokit } = await import('octokit');
    const octokit = new Octokit({ auth: 'an-example' });
    const repo = { owner: 'octo', repo: 'hello' };
    await octokit.rest.repos.get(repo);
    return `${(await octokit.paginate(octokit.rest.issues.listForRepo, repo)).length} issues`;
  },
  async customers() {
    return customers({});
  },
  async fetch_customers() {
    const { default: Stripe } = await import('stripe');
    return customers({ httpClient: Stripe.createFetchHttpClient() });
  },
  async channels() {
    const { WebClient } = await import('@slack/web-api');
    const slack = new WebClient('xoxb-example', { logLevel: 'error' });
    let channels = 0;
    for await (const page of slack.paginate('conversations.list')) channels += page.channels.length;
    return `${channels} channels`;
  },
  async chat() {
    const { default: OpenAI } = await import('openai');
    const asked = { model: 'm', messages: [{ role: 'user', content: 'hello' }] };
    const completions = new OpenAI({ apiKey: 'an-example' }).chat.completions;
    const whole = (await completions.create(asked)).choices[0].message.content;
    let streamed = '';
    for await (const part of await completions.create({ ...asked, stream: true })) streamed += part.choices[0].delta.content;
    return `${whole}, ${streamed}`;
  },
  async message() {
    const { default: Anthropic } = await import('@anthropic-ai/sdk');
    const asked = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'hello' }] };
    const { messages } = new Anthropic({ apiKey: 'an-example' });
    const whole = (await messages.create(asked)).content[0].text;
    return `${whole}, ${await messages.stream(asked).finalText()}`;
  },
});

async function customers(how) {
  const { default: Stripe } = await import('stripe');
  const stripe = new Stripe('sk_test_example', { host: 'api.stripe.invalid', ...how });
  let found = 0;
  for await (const _ of stripe.customers.list({ limit: 1 })) found++;
  await stripe.customers.create({ email: 'a@example.com' });
  return `${found} customers, 1 created`;
}
