import asyncio
import sys

import httpx
import zstandard

import scenarios
from scenarios import BASE

# The first argument h2 has the client ask for HTTP/2.
http2 = "h2" in sys.argv
if http2:
    sys.argv.remove("h2")
client = httpx.Client(http2=http2)


def get(url, **how):
    answer = client.get(url, **how)
    answer.raise_for_status()
    return answer


def token():
    items, page = 0, {}
    while True:
        answer = get(f"{BASE}/token/items", params=page).json()
        items += len(answer["items"])
        if "nextPageToken" not in answer:
            return f"{items} items"
        page = {"pageToken": answer["nextPageToken"]}


def absolute():
    items, url = 0, f"{BASE}/absolute/items"
    while url:
        answer = get(url).json()
        items, url = items + len(answer["items"]), answer.get("next")
    return f"{items} items"


def link():
    items, url = 0, f"{BASE}/link/items"
    while url:
        answer = get(url)
        items, url = items + len(answer.json()), answer.links.get("next", {}).get("url")
    return f"{items} items"


def upload():
    answer = client.post(f"{BASE}/upload", content=scenarios.chunks())
    answer.raise_for_status()
    return f"{answer.json()['bytes']} bytes"


def resumable():
    answer = client.post(f"{BASE}/resumable")
    answer.raise_for_status()
    for part, where in scenarios.ranges():
        sent = client.put(answer.headers["Location"], content=part, headers={"Content-Range": where})
        assert sent.status_code in (200, 308), sent.text
    return f"{sent.json()['bytes']} bytes"


def events():
    with client.stream("GET", f"{BASE}/events") as answer:
        answer.raise_for_status()
        return f"{sum(line.startswith('data:') for line in answer.iter_lines())} events"


def gzip():
    return f"{len(get(f'{BASE}/packed/gzip').content)} bytes"


def br():
    return f"{len(get(f'{BASE}/packed/br').content)} bytes"


def zstd():
    with client.stream("GET", f"{BASE}/packed/zstd", headers={"Accept-Encoding": "zstd"}) as answer:
        packed = b"".join(answer.iter_raw())
    return f"{len(zstandard.ZstdDecompressor().decompressobj().decompress(packed))} bytes"


def head():
    answer = client.head(f"{BASE}/file")
    answer.raise_for_status()
    return f"{answer.status_code} {answer.headers['Content-Length']}"


def etag():
    first = get(f"{BASE}/file")
    again = client.get(f"{BASE}/file", headers={"If-None-Match": first.headers["ETag"]})
    return f"{first.status_code} {again.status_code}"


def moved():
    return get(f"{BASE}/moved", follow_redirects=True).status_code


def away():
    return get(f"{BASE}/away", follow_redirects=True).text


def slow():
    with client.stream("GET", f"{BASE}/slow") as answer:
        answer.raise_for_status()
        next(answer.iter_lines())
    return "1 line, then cancelled"


def parallel():
    async def all_at_once():
        async with httpx.AsyncClient(http2=http2, timeout=60) as many:
            answers = await asyncio.gather(*(many.get(f"{BASE}/parallel?n={n}") for n in range(50)))
            return sum(answer.status_code == 200 for answer in answers)

    return asyncio.run(all_at_once())


def transport_status():
    """A client whose transport is its own takes no proxy from the environment."""
    with httpx.Client(transport=httpx.HTTPTransport()) as own:
        return own.get(f"{BASE}/file").raise_for_status() or 200


scenarios.run(globals())
