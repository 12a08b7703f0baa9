// What the Node programs of this folder share: they run the scenarios that their arguments
// name, and end as a program does whose client threw.
export const base = 'https://api.example.invalid';
export const size = 1 << 20;
export const parts = [262_144, 262_144, 100_000];

// A body whose length the client does not know.
export async function* chunks() {
  for (let i = 0; i < 16; i++) yield new Uint8Array(size / 16);
}

// Each part of the resumable upload with its Content-Range.
export function* ranges() {
  const total = parts.reduce((a, b) => a + b);
  let at = 0;
  for (const length of parts) {
    yield [new Uint8Array(length), `bytes ${at}-${at + length - 1}/${total}`];
    at += length;
  }
}

// The address of the next page in a Link header.
export const nextLink = (header) => /<([^>]*)>; rel="next"/.exec(header ?? '')?.[1];

// Prints NAME: RESULT for each scenario in the arguments. What a client throws ends the
// program with its text, and the response's if it has one, on stderr.
export async function run(scenarios) {
  for (const name of process.argv.slice(2)) {
    try {
      console.log(`${name}: ${await scenarios[name]()}`);
    } catch (error) {
      const body = error.response?.data ?? error.response?.body ?? error.body ?? '';
      console.error(`${error.name}: ${error.message} ${error.cause ?? ''}\n${typeof body === 'string' ? body : JSON.stringify(body)}`);
      process.exit(1);
    }
  }
  process.exit(0); // agents keep connections, and with them the process
}
