// The scenarios that the arguments name, with the library that the first one names.
import { adapters } from './adapters.mjs';
import { base, chunks, nextLink, ranges, run } from './scenarios.mjs';

const [library] = process.argv.splice(2, 1);
const send = await adapters[library]();

await run({
  async token() {
    let items = 0;
    for (let page = ''; ; ) {
      const answer = JSON.parse((await send(`${base}/token/items${page}`)).text);
      items += answer.items.length;
      if (!answer.nextPageToken) return `${items} items`;
      page = `?pageToken=${answer.nextPageToken}`;
    }
  },
  async link() {
    let items = 0;
    for (let url = `${base}/link/items`; url; ) {
      const answer = await send(url);
      items += JSON.parse(answer.text).length;
      url = nextLink(answer.header('link'));
    }
    return `${items} items`;
  },
  async upload() {
    const answer = await send(`${base}/upload`, { method: 'POST', body: chunks });
    return `${JSON.parse(answer.text).bytes} bytes`;
  },
  async resumable() {
    const begun = await send(`${base}/resumable`, { method: 'POST' });
    let sent;
    for (const [body, range] of ranges()) {
      sent = await send(begun.header('location'), { method: 'PUT', body, headers: { 'Content-Range': range } });
    }
    return `${JSON.parse(sent.text).bytes} bytes`;
  },
  async get() {
    const answer = await send(`${base}/file`);
    return `${answer.status} ${answer.text.length}`;
  },
  async gzip() {
    return `${(await send(`${base}/packed/gzip`)).text.length} bytes`;
  },
  async head() {
    const answer = await send(`${base}/file`, { method: 'HEAD' });
    return `${answer.status} ${answer.header('content-length')}`;
  },
  async etag() {
    const first = await send(`${base}/file`);
    const again = await send(`${base}/file`, { headers: { 'If-None-Match': first.header('etag') } });
    return `${first.status} ${again.status}`;
  },
  async moved() {
    return (await send(`${base}/moved`)).status;
  },
  async parallel() {
    return (await Promise.all(Array.from({ length: 50 }, (_, n) => send(`${base}/parallel?n=${n}`)))).length;
  },
});
