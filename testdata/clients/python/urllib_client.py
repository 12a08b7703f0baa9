import json
import urllib.error
import urllib.request

import scenarios
from scenarios import BASE


def send(url, **how):
    try:
        return urllib.request.urlopen(urllib.request.Request(url, **how))
    except urllib.error.HTTPError as error:
        if error.code in (304, 308):
            return error
        raise type(error)(error.url, error.code, error.read().decode(), error.headers, None) from None


def pages(path, following):
    items, url = 0, BASE + path
    while url:
        answer = json.load(send(url))
        items, url = items + len(answer["items"]), following(answer)
    return f"{items} items"


def token():
    return pages("/token/items", lambda a: "nextPageToken" in a and f"{BASE}/token/items?pageToken={a['nextPageToken']}")


def absolute():
    return pages("/absolute/items", lambda a: a.get("next"))


def upload():
    answer = send(f"{BASE}/upload", data=scenarios.chunks(), method="POST", headers={"Transfer-Encoding": "chunked"})
    return f"{json.load(answer)['bytes']} bytes"


def resumable():
    begun = send(f"{BASE}/resumable", data=b"", method="POST")
    for part, where in scenarios.ranges():
        sent = send(begun.headers["Location"], data=part, method="PUT", headers={"Content-Range": where})
    return f"{json.load(sent)['bytes']} bytes"


def head():
    answer = send(f"{BASE}/file", method="HEAD")
    return f"{answer.status} {answer.headers['Content-Length']}"


def etag():
    first = send(f"{BASE}/file")
    again = send(f"{BASE}/file", headers={"If-None-Match": first.headers["ETag"]})
    return f"{first.status} {again.status}"


def moved():
    return send(f"{BASE}/moved").status


def away():
    return send(f"{BASE}/away").read().decode()


scenarios.run(globals())
