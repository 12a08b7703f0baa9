import asyncio

import aiohttp

import scenarios
from scenarios import BASE


def once(call):
    """A scenario that has a session of its own."""

    async def within():
        async with aiohttp.ClientSession() as session:
            return await call(session)

    return lambda: asyncio.run(within())


async def read(session, url, **how):
    async with session.get(url, **how) as answer:
        if answer.status >= 400:
            raise RuntimeError(f"status {answer.status}: {await answer.text()}")
        return answer, await answer.read(), await answer.json() if answer.content_type == "application/json" else None


@once
async def link(session):
    items, url = 0, f"{BASE}/link/items"
    while url:
        answer, _, page = await read(session, url)
        items, url = items + len(page), answer.links.get("next", {}).get("url")
    return f"{items} items"


@once
async def upload(session):
    async def chunks():
        for chunk in scenarios.chunks():
            yield chunk

    async with session.post(f"{BASE}/upload", data=chunks(), expect100=True) as answer:
        return f"{(await answer.json())['bytes']} bytes"


@once
async def events(session):
    _, text, _ = await read(session, f"{BASE}/events")
    return f"{text.count(b'data:')} events"


@once
async def gzip(session):
    return f"{len((await read(session, f'{BASE}/packed/gzip'))[1])} bytes"


@once
async def head(session):
    async with session.head(f"{BASE}/file") as answer:
        return f"{answer.status} {answer.headers['Content-Length']}"


@once
async def etag(session):
    first, _, _ = await read(session, f"{BASE}/file")
    again, _, _ = await read(session, f"{BASE}/file", headers={"If-None-Match": first.headers["ETag"]})
    return f"{first.status} {again.status}"


@once
async def moved(session):
    return (await read(session, f"{BASE}/moved"))[0].status


@once
async def parallel(session):
    answers = await asyncio.gather(*(read(session, f"{BASE}/parallel?n={n}") for n in range(50)))
    return len(answers)


scenarios.run(globals())
