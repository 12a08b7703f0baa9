import http.client

import scenarios


def get():
    connection = http.client.HTTPSConnection("api.example.invalid")
    connection.request("GET", "/file")
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {body.decode()}")
    return f"{answer.status} {len(body)}"


scenarios.run(globals())
