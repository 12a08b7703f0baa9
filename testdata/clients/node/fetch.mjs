import { base, chunks, nextLink, ranges, run } from './scenarios.mjs';

async function get(url, how) {
  const answer = await fetch(url, how);
  if (!answer.ok && answer.status !== 304) {
    throw Object.assign(new Error(`status ${answer.status}`), { body: await answer.text() });
  }
  return answer;
}
const length = async (path, how) => `${(await (await get(base + path, how)).arrayBuffer()).byteLength} bytes`;

await run({
  async token() {
    let items = 0;
    for (let page = ''; ; ) {
      const answer = await (await get(`${base}/token/items${page}`)).json();
      items += answer.items.length;
      if (!answer.nextPageToken) return `${items} items`;
      page = `?pageToken=${answer.nextPageToken}`;
    }
  },
  async absolute() {
    let items = 0;
    for (let url = `${base}/absolute/items`; url; ) {
      const answer = await (await get(url)).json();
      items += answer.items.length;
      url = answer.next;
    }
    return `${items} items`;
  },
  async link() {
    let items = 0;
    for (let url = `${base}/link/items`; url; ) {
      const answer = await get(url);
      items += (await answer.json()).length;
      url = nextLink(answer.headers.get('link'));
    }
    return `${items} items`;
  },
  async upload() {
    const answer = await get(`${base}/upload`, { method: 'POST', body: ReadableStream.from(chunks()), duplex: 'half' });
    return `${(await answer.json()).bytes} bytes`;
  },
  async resumable() {
    const begun = await get(`${base}/resumable`, { method: 'POST' });
    let sent;
    for (const [body, range] of ranges()) {
      sent = await fetch(begun.headers.get('location'), { method: 'PUT', body, headers: { 'Content-Range': range } });
    }
    return `${(await sent.json()).bytes} bytes`;
  },
  async events() {
    const answer = await get(`${base}/events`);
    let text = '';
    for await (const part of answer.body.pipeThrough(new TextDecoderStream())) text += part;
    return `${text.match(/^data:/gm).length} events`;
  },
  gzip: () => length('/packed/gzip'),
  br: () => length('/packed/br', { headers: { 'Accept-Encoding': 'br' } }),
  zstd: () => length('/packed/zstd', { headers: { 'Accept-Encoding': 'zstd' } }),
  async head() {
    const answer = await get(`${base}/file`, { method: 'HEAD' });
    return `${answer.status} ${answer.headers.get('content-length')}`;
  },
  async etag() {
    const first = await get(`${base}/file`);
    await first.arrayBuffer();
    const again = await get(`${base}/file`, { headers: { 'If-None-Match': first.headers.get('etag') } });
    return `${first.status} ${again.status}`;
  },
  moved: async () => (await get(`${base}/moved`)).status,
  away: async () => (await get(`${base}/away`)).text(),
  async slow() {
    const stop = new AbortController();
    const answer = await get(`${base}/slow`, { signal: stop.signal });
    await answer.body.getReader().read();
    stop.abort();
    return '1 line, then cancelled';
  },
  async parallel() {
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => get(`${base}/parallel?n=${n}`)));
    return answers.length;
  },
});
