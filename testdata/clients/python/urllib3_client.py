import concurrent.futures

import urllib3

import scenarios
from scenarios import BASE

pool = urllib3.PoolManager()


def send(method, url, **how):
    answer = pool.request(method, url, **how)
    if answer.status >= 400:
        raise RuntimeError(f"status {answer.status}: {answer.data.decode()}")
    return answer


def get():
    answer = send("GET", f"{BASE}/file")
    return f"{answer.status} {len(answer.data)}"


def upload():
    answer = send("POST", f"{BASE}/upload", body=scenarios.chunks(), headers={"Transfer-Encoding": "chunked"}, chunked=True)
    return answer.data.decode().strip(' {"}\n').replace('bytes":', "") + " bytes"


def gzip():
    return f"{len(send('GET', f'{BASE}/packed/gzip').data)} bytes"


def moved():
    return send("GET", f"{BASE}/moved").status


def parallel():
    with concurrent.futures.ThreadPoolExecutor(50) as many:
        return sum(many.map(lambda n: send("GET", f"{BASE}/parallel?n={n}").status == 200, range(50)))


scenarios.run(globals())
