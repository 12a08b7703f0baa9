// Each library behind one function: send(url, {method, headers, body}) gives
// {status, header(name), text}, and throws as the library does. redirect says that it follows one.
import http2 from 'node:http2';
import https from 'node:https';
import { Readable } from 'node:stream';
import { chunks } from './scenarios.mjs';

// A body of unknown length, where the library takes a stream.
const stream = (body) => (body === chunks ? Readable.from(chunks()) : body && Buffer.from(body));
const plain = (headers) => ({ 'Accept-Encoding': 'identity', ...headers });
const refused = (status, body) => Object.assign(new Error(`status ${status}`), { body });

function overHTTPS(agent) {
  return (url, { method = 'GET', headers, body } = {}) =>
    new Promise((resolve, reject) => {
      const request = https.request(url, { method, headers: plain(headers), agent }, async (answer) => {
        let text = '';
        for await (const part of answer) text += part;
        if (answer.statusCode > 308) return reject(refused(answer.statusCode, text));
        resolve({ status: answer.statusCode, header: (name) => answer.headers[name], text });
      });
      request.on('error', reject);
      if (body === chunks) Readable.from(chunks()).pipe(request);
      else request.end(body);
    });
}

async function overHTTP2(url, { method = 'GET', headers = {}, body } = {}) {
  const { origin, pathname, search } = new URL(url);
  const session = http2.connect(origin);
  try {
    return await new Promise((resolve, reject) => {
      session.on('error', reject);
      const call = session.request({ ':method': method, ':path': pathname + search, ...headers }, { endStream: !body });
      let answer;
      let text = '';
      call.on('response', (headers) => { answer = headers; });
      call.on('data', (part) => { text += part; });
      call.on('error', reject);
      call.on('end', () => {
        const status = answer[':status'];
        if (status > 308) reject(refused(status, text));
        else resolve({ status, header: (name) => answer[name], text });
      });
      if (body === chunks) Readable.from(chunks()).pipe(call);
      else if (body) call.end(Buffer.from(body));
    });
  } finally {
    session.close();
  }
}

const fetches = (fetch) => async (url, { method, headers, body } = {}) => {
  const answer = await fetch(url, { method, headers, body: stream(body), duplex: 'half' });
  const text = await answer.text();
  if (answer.status > 308) throw refused(answer.status, text);
  return { status: answer.status, header: (name) => answer.headers.get(name), text };
};

const taken = (status) => status <= 308;

export const adapters = {
  https: async () => overHTTPS(),
  agent: async () => overHTTPS(new https.Agent({ keepAlive: true })),
  http2: async () => overHTTP2,
  'node-fetch': async () => fetches((await import('node-fetch')).default),
  async undici() {
    const { EnvHttpProxyAgent, fetch } = await import('undici');
    const dispatcher = new EnvHttpProxyAgent();
    return fetches((url, how) => fetch(url, { ...how, dispatcher }));
  },
  async axios(more) {
    const { default: axios } = await import('axios');
    return async (url, { method, headers, body } = {}) => {
      const answer = await axios({ url, method, headers, data: stream(body), validateStatus: taken, responseType: 'text', transformResponse: (text) => text, ...more });
      return { status: answer.status, header: (name) => answer.headers[name], text: answer.data };
    };
  },
  'axios-direct': () => adapters.axios({ proxy: false }),
  async got(more) {
    const got = (await import('got')).got.extend({ ...more });
    return async (url, { method, headers, body } = {}) => {
      const answer = await got(url, { method, headers, body: stream(body), throwHttpErrors: method !== 'PUT' }); // 308 is no error of an upload
      return { status: answer.statusCode, header: (name) => answer.headers[name], text: answer.body };
    };
  },
  'got-http2': () => adapters.got({ http2: true }),
};
