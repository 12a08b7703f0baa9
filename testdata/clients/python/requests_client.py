import concurrent.futures
import io

import requests
import zstandard

import scenarios
from scenarios import BASE

session = requests.Session()


def get(url, **how):
    answer = session.get(url, **how)
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
    answer = session.post(f"{BASE}/upload", data=scenarios.chunks())
    answer.raise_for_status()
    return f"{answer.json()['bytes']} bytes"


def resumable():
    answer = session.post(f"{BASE}/resumable")
    answer.raise_for_status()
    for part, where in scenarios.ranges():
        sent = session.put(answer.headers["Location"], data=part, headers={"Content-Range": where})
        sent.raise_for_status()
    return f"{sent.json()['bytes']} bytes"


def events():
    with get(f"{BASE}/events", stream=True) as answer:
        return f"{sum(line.startswith(b'data:') for line in answer.iter_lines())} events"


def gzip():
    return f"{len(get(f'{BASE}/packed/gzip').content)} bytes"


def br():
    return f"{len(get(f'{BASE}/packed/br', headers={'Accept-Encoding': 'br'}).content)} bytes"


def zstd():
    with get(f"{BASE}/packed/zstd", headers={"Accept-Encoding": "zstd"}, stream=True) as answer:
        packed = io.BytesIO(answer.raw.read(decode_content=False))
    return f"{len(zstandard.ZstdDecompressor().stream_reader(packed).read())} bytes"


def head():
    answer = session.head(f"{BASE}/file")
    answer.raise_for_status()
    return f"{answer.status_code} {answer.headers['Content-Length']}"


def etag():
    first = get(f"{BASE}/file")
    again = get(f"{BASE}/file", headers={"If-None-Match": first.headers["ETag"]})
    return f"{first.status_code} {again.status_code}"


def moved():
    return get(f"{BASE}/moved").status_code


def away():
    return get(f"{BASE}/away").text


def slow():
    with get(f"{BASE}/slow", stream=True) as answer:
        next(answer.iter_lines(chunk_size=1))
    return "1 line, then cancelled"


def parallel():
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        return sum(pool.map(lambda n: requests.get(f"{BASE}/parallel?n={n}").ok, range(50)))


def verify_status():
    """A call that names a file of roots itself, which a proxy's authority is not in."""
    return get(f"{BASE}/file", verify=scenarios.own_roots()).status_code


scenarios.run(globals())
